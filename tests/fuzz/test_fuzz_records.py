"""Random and damaged batches through every reader: a BatchError or an answer, and never much memory.

FUZZ_CASES in the environment sets how many; each case is replayed by its number.
"""

from __future__ import annotations

import os
import tracemalloc
from collections import Counter
from random import Random

import pytest

from ottla.errors import BatchError, InvalidBatch
from ottla.records import kernel
from ottla.records.compression import Codec, compress
from ottla.records.reader import read_batch
from tests.fuzz.records_cases import DECOMPRESSED_BYTES_MAX, ask_everything, random_case
from tests.records.samples import raw_batch
from tests.report import Report

CASES = int(os.environ.get("FUZZ_CASES", "20000"))
PORTIONS = 10
MEASURED_CASES = 200


@pytest.mark.slow
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_every_reader_gives_an_answer_or_a_batch_error(portion: int, report_lines: Report) -> None:
    counts: Counter[str] = Counter()
    for number in range(portion, CASES, PORTIONS):
        try:
            counts.update(ask_everything(random_case(Random(number))))
        except Exception as e:
            e.add_note(f"case {number}")
            raise
    report_lines.count("fuzzed record batches, by outcome", counts)
    assert counts["records"]
    assert counts["InvalidBatch"]


def test_the_cases_of_a_short_run_reach_every_kind_of_outcome() -> None:
    counts: Counter[str] = Counter()
    for number in range(1_500):
        counts.update(ask_everything(random_case(Random(number))))
    wanted = {"records", "columns", "TruncatedBatch", "CorruptBatch", "InvalidBatch", "InvalidText"}
    assert wanted | {"UnsupportedBatch", "UnsupportedCompression"} <= counts.keys()


def test_no_case_takes_much_more_memory_than_its_bound() -> None:
    for number in range(MEASURED_CASES):
        case = random_case(Random(number))
        tracemalloc.start()
        try:
            ask_everything(case)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # The records of a bound's worth of payload, as Python objects, are some forty times as large.
        assert peak < 40 * DECOMPRESSED_BYTES_MAX + 64 * len(case), number


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_is_a_bomb_costs_no_more_than_its_bound(codec: Codec) -> None:
    bomb = raw_batch(compress(codec, bytes(16 * 1024 * 1024)), attributes=int(codec))
    tracemalloc.start()
    try:
        with pytest.raises(BatchError):
            read_batch(bomb, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * DECOMPRESSED_BYTES_MAX + 8 * len(bomb)


def test_a_count_of_two_billion_records_costs_nothing() -> None:
    batch = raw_batch(b"\x00" * 100, count=2**31 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            read_batch(batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_the_kernel_takes_part_when_it_has_to() -> None:
    if os.environ.get("REQUIRE_KERNEL") != "1":
        pytest.skip("REQUIRE_KERNEL is not 1")
    assert kernel.AVAILABLE
