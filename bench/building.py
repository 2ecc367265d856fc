"""Building a batch of records, against aiokafka's compiled builder."""

from __future__ import annotations

from functools import partial

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from bench.turns import Comparison, Side
from ottla.records.builder import build_batch
from ottla.records.reader import read_batch

RECORD_COUNT = 1_000
VALUE_SIZE = 256
TIMESTAMP_MS = 1_700_000_000_000

Input = list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]


def records(*, count: int = RECORD_COUNT, value_size: int = VALUE_SIZE) -> Input:
    """Records with a short key and no headers, a millisecond apart."""
    return [(b"key-%06d" % index, b"v" * value_size, TIMESTAMP_MS + index, []) for index in range(count)]


def comparisons() -> list[Comparison]:
    """Both sides start from the same list and end with a finished batch."""
    given = records()
    ours, theirs = partial(build_batch, given), partial(build_with_aiokafka, given)
    if read_batch(ours()) != read_batch(theirs()):
        raise AssertionError("the two builders made batches with different records")
    settings = f"{RECORD_COUNT:,} records of {VALUE_SIZE} B, keys, no headers, no compression"
    return [Comparison("build a batch", settings, Side("ottla", ours), ((Side("aiokafka", theirs), 2.0),))]


def build_with_aiokafka(given: Input) -> bytes | bytearray:
    """One batch, as aiokafka's producer makes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**30,
    )
    append = builder.append
    for offset, (key, value, timestamp_ms, headers) in enumerate(given):
        append(offset, timestamp_ms, key, value, headers)
    built: bytearray = builder.build()
    return built
