"""Batches that are appended with one write: the log is what it would be had they come one by one."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

import pytest

from ottla.errors import (
    DiskFull,
    InvalidProducerEpoch,
    InvalidTransactionState,
    LogClosed,
    OutOfOrderSequence,
    StorageFault,
)
from ottla.records.compression import Codec
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from tests.records.samples import run_of
from tests.storage.workbench import CODECS, NOW_MS, Workbench, batch, sequenced

DIRECTORY = "/data/topic-0"
EPOCH = 3
SEGMENT_MS = 1_000
PLAIN_CODECS = [codec for codec in CODECS if codec is not Codec.ZSTD]


def _bench() -> Workbench:
    return Workbench(MemoryDisk(seed=1), DIRECTORY)


def _opened(**changes: object) -> Log:
    """A log that has a batch in each of the first places, so that the next one needs no closer look."""
    log = _bench().open(**changes)
    for _ in range(3):
        log.append(batch(b"before"), leader_epoch=EPOCH)
    return log


def _run(log: Log, batches: Sequence[bytes], *, leader_epoch: int = EPOCH) -> int | None:
    run = run_of(batches)
    is_taken = log.append_run(
        run, leader_epoch=leader_epoch, oldest_ms=0, newest_ms=2 * NOW_MS, batch_bytes_max=1 << 20
    )
    return run.offsets[0] if is_taken else None


def _facts(log: Log) -> object:
    """All that an append changes, in memory and in files."""
    segments = [
        (
            segment.base_offset,
            segment.end_offset,
            segment.size,
            segment.max_timestamp_ms,
            segment.max_timestamp_offset,
            segment.rolling_timestamp_ms(),
            [data for _, data in segment.index_files()],
            [segment.position_of(offset) for offset in range(segment.base_offset, segment.end_offset)],
        )
        for segment in log.segments
    ]
    assert isinstance(log._disk, MemoryDisk)
    return segments, log.end_offset, log.size, log.producers.entries, log.epochs.entries, log._disk.files()


# --- where a run is taken ------------------------------------------------------------------------------


def test_a_run_is_written_with_one_append_and_numbered_in_order() -> None:
    log = _opened()
    assert isinstance(log._disk, MemoryDisk)
    seen: list[str] = []
    log._disk.on_operation = lambda operation, moment: seen.append(operation) if moment == "after" else None
    assert _run(log, [batch(b"a"), batch(b"b", b"c"), batch(b"d")]) == 3
    assert seen == ["append .log"]
    assert [(found.header.base_offset, found.header.last_offset) for found in log.batches(offset=3)] == [
        (3, 3),
        (4, 5),
        (6, 6),
    ]
    assert log.end_offset == 7


@pytest.mark.parametrize("codec", PLAIN_CODECS)
def test_a_run_leaves_what_single_appends_leave(codec: Codec) -> None:
    batches = [batch(*(b"%d" % n for n in range(count)), codec=codec) for count in (1, 3, 40)]
    together, singly = _opened(index_interval_bytes=100), _opened(index_interval_bytes=100)
    assert _run(together, batches) == 3
    for data in batches:
        singly.append(data, leader_epoch=EPOCH)
    assert _facts(together) == _facts(singly)


def test_the_index_gets_an_entry_at_each_interval_inside_a_run() -> None:
    log = _opened(index_interval_bytes=200)
    assert _run(log, [batch(b"%d" % n) for n in range(20)]) == 3
    singly = _opened(index_interval_bytes=200)
    for n in range(20):
        singly.append(batch(b"%d" % n), leader_epoch=EPOCH)
    assert log.segments[0].indexes.offsets.count > 3
    assert _facts(log) == _facts(singly)


def test_the_newest_timestamp_of_a_run_need_not_be_the_last() -> None:
    batches = [batch(b"%d" % n, timestamp_ms=NOW_MS + shift) for n, shift in enumerate((5, 90, 30, 90))]
    log = _opened()
    assert _run(log, batches) == 3
    assert (log.segments[0].max_timestamp_ms, log.segments[0].max_timestamp_offset) == (NOW_MS + 90, 4)


def test_a_producers_run_is_remembered_batch_by_batch() -> None:
    batches = [sequenced(7, sequence, count=2) for sequence in range(0, 14, 2)]
    log = _opened()
    assert _run(log, batches) == 3
    again = log.append(batches[-1], leader_epoch=EPOCH)
    assert (again.repeated, again.first_offset, again.last_offset) == (True, 15, 16)


def test_sequences_go_on_over_their_largest_number_inside_a_run() -> None:
    log = _opened()
    batches = [sequenced(7, 2**31 - 2, count=2), sequenced(7, 0), sequenced(7, 1)]
    assert _run(log, batches) == 3
    assert log.append(sequenced(7, 2), leader_epoch=EPOCH).first_offset == 7


def test_an_opening_after_a_run_finds_it_whole() -> None:
    bench = _bench()
    log = bench.open()
    for _ in range(2):
        log.append(batch(b"before"), leader_epoch=EPOCH)
    assert _run(log, [sequenced(7, sequence) for sequence in range(6)]) == 2
    log.sync()
    assert isinstance(bench.disk, MemoryDisk)
    bench.disk.crash()
    recovered = bench.open()
    assert recovered.end_offset == 8
    assert recovered.producers.entries == log.producers.entries
    assert recovered.append(sequenced(7, 5), leader_epoch=EPOCH).repeated


def test_a_power_loss_in_a_run_keeps_its_first_batches_or_none() -> None:
    lengths = set()
    for seed in range(60):
        bench = Workbench(MemoryDisk(seed), DIRECTORY)
        log = bench.open()
        for _ in range(2):
            log.append(batch(b"before"), leader_epoch=EPOCH)
        log.sync()
        assert _run(log, [batch(b"%d" % n) for n in range(5)]) == 2
        assert isinstance(bench.disk, MemoryDisk)
        bench.disk.crash()
        recovered = bench.open()
        assert [found.header.base_offset for found in recovered.batches(offset=0)] == list(range(recovered.end_offset))
        lengths.add(recovered.end_offset)
    assert {2, 7} < lengths <= set(range(2, 8))


# --- where it is not, and nothing has changed ----------------------------------------------------------


def _is_left_alone(log: Log, batches: Sequence[bytes], *, leader_epoch: int = EPOCH) -> bool:
    before = _facts(log)
    return _run(log, batches, leader_epoch=leader_epoch) is None and _facts(log) == before


def test_the_first_batch_of_a_log_is_looked_at_by_itself() -> None:
    assert _is_left_alone(_bench().open(), [batch()])


def test_a_new_leader_epoch_is_noted_batch_by_batch() -> None:
    assert _is_left_alone(_opened(), [batch()], leader_epoch=EPOCH + 1)


def test_a_segment_of_a_clean_stop_is_unsealed_first() -> None:
    bench = _bench()
    log = bench.open()
    for _ in range(3):
        log.append(batch(), leader_epoch=EPOCH)
    log.close()
    assert _is_left_alone(bench.open(), [batch()])


def test_a_run_that_does_not_fit_into_the_segment_rolls_where_single_batches_do() -> None:
    one = batch(b"value")
    log = _opened(segment_bytes=6 * len(one))
    assert _is_left_alone(log, [one, one, one, one])
    assert _run(log, [one, one]) == 3


def test_a_run_that_could_fill_the_index_rolls_where_single_batches_do() -> None:
    log = _opened(index_interval_bytes=0, segment_index_bytes=48)
    entries_left = 48 // 8 - log.segments[0].indexes.offsets.count
    assert _is_left_alone(log, [batch()] * (entries_left + 1))
    assert _run(log, [batch()] * entries_left) == 3
    assert _is_left_alone(log, [batch()])


def test_a_timestamp_beyond_the_time_of_the_segment_is_looked_at_by_itself() -> None:
    log = _opened(segment_ms=SEGMENT_MS)
    late = batch(timestamp_ms=NOW_MS + SEGMENT_MS + 1)
    assert _is_left_alone(log, [batch(), late])
    assert _run(log, [batch(), batch(timestamp_ms=NOW_MS + SEGMENT_MS)]) == 3


def test_new_settings_are_looked_at_before_the_next_run() -> None:
    bench = _bench()
    log = bench.open()
    for _ in range(3):
        log.append(batch(), leader_epoch=EPOCH)
    log.config = bench.config
    assert _is_left_alone(log, [batch()])


def test_bytes_that_are_not_one_batch_are_left_to_be_refused() -> None:
    whole = batch()
    assert _is_left_alone(_opened(), [whole, whole + b"more"])


@pytest.mark.parametrize(
    "second",
    [
        sequenced(7, 0),
        sequenced(7, 2),
        sequenced(7, 1, epoch=1),
        sequenced(8, 1),
        batch(),
    ],
    ids=["repeat", "gap", "epoch", "producer", "none"],
)
def test_a_batch_that_does_not_follow_the_one_before_it_is_looked_at_by_itself(second: bytes) -> None:
    assert _is_left_alone(_opened(), [sequenced(7, 0), second])


def test_a_producer_behind_batches_of_nobody_is_looked_at_by_itself() -> None:
    assert _is_left_alone(_opened(), [batch(), sequenced(7, 0)])


def test_a_run_that_begins_with_a_repeat_is_looked_at_batch_by_batch() -> None:
    log = _opened()
    log.append(sequenced(7, 0), leader_epoch=EPOCH)
    assert _is_left_alone(log, [sequenced(7, 0), sequenced(7, 1)])


@pytest.mark.parametrize(
    ("first", "refusal"),
    [
        (sequenced(7, 3, epoch=1), OutOfOrderSequence),
        (sequenced(7, 1, epoch=0), InvalidProducerEpoch),
        (sequenced(7, 1, epoch=1), InvalidTransactionState),
    ],
)
def test_the_refusal_of_the_first_batch_changes_nothing(first: bytes, refusal: type[Exception]) -> None:
    log = _opened()
    log.append(sequenced(7, 0, epoch=1, transactional=True), leader_epoch=EPOCH)
    before = _facts(log)
    with pytest.raises(refusal):
        _run(log, [first, sequenced(7, 2, epoch=1)])
    assert _facts(log) == before


def test_a_full_disk_keeps_nothing_of_a_run_and_the_log_goes_on() -> None:
    log = _opened()
    assert isinstance(log._disk, MemoryDisk)
    batches = [sequenced(7, 0), sequenced(7, 1)]
    log._disk.capacity_bytes = log._disk.used_bytes() + len(batches[0])
    before = _facts(log)
    with pytest.raises(DiskFull):
        _run(log, batches)
    assert _facts(log) == before
    assert log.append(batches[0], leader_epoch=EPOCH).first_offset == 3
    log._disk.heal()
    assert _run(log, [batches[1]]) == 4


def test_a_disk_that_fails_under_a_run_takes_the_log_offline() -> None:
    log = _opened()
    assert isinstance(log._disk, MemoryDisk)
    log._disk.fail_next("append", ".log", errno.EIO)
    with pytest.raises(StorageFault):
        _run(log, [batch(), batch()])
    with pytest.raises(LogClosed):
        _run(log, [batch()])
    assert log.end_offset == 3


# --- both ways, by chance ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_random_runs_and_single_appends_leave_the_same_log(seed: int) -> None:
    chance = Random(seed)
    settings: dict[str, object] = {
        "segment_bytes": chance.choice([900, 3_000, 20_000]),
        "index_interval_bytes": chance.choice([0, 150, 1_000]),
        "segment_index_bytes": chance.choice([80, 160, 4_000]),
        "segment_ms": SEGMENT_MS,
    }
    benches = [_bench(), _bench()]
    together, singly = (bench.open(**settings) for bench in benches)
    sequence, now_ms, runs = 0, NOW_MS, 0
    for _ in range(60):
        batches = []
        is_mixed, has_producer = chance.random() < 0.2, chance.random() < 0.5
        for _ in range(chance.randint(1, 6)):
            count = chance.choice([1, 1, 2, 9])
            fields: dict[str, object] = {}
            if chance.random() < 0.5 if is_mixed else has_producer:
                fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
                sequence += count
            now_ms += chance.choice([0, 0, 1, 50])
            values = [b"v" * chance.randint(0, 90) for _ in range(count)]
            batches.append(batch(*values, timestamp_ms=now_ms - chance.choice([0, 0, 30]), **fields))  # type: ignore[arg-type]
        if _run(together, batches) is None:
            for data in batches:
                together.append(data, leader_epoch=EPOCH)
        else:
            runs += len(batches) > 1
        for data in batches:
            singly.append(data, leader_epoch=EPOCH)
        assert together.end_offset == singly.end_offset
    assert runs > 1
    assert _facts(together) == _facts(singly)
    together.close()
    singly.close()
    reopened, other = (bench.open(**settings) for bench in benches)
    assert reopened.producers.entries == other.producers.entries
    assert _facts(reopened) == _facts(other)
