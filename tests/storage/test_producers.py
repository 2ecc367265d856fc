"""What a log remembers of its producers, whatever becomes of their records: sequences, epochs, ends of transactions."""

from __future__ import annotations

import pytest

from ottla.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    Refusal,
)
from ottla.records.control import MarkerType
from ottla.storage.compaction import compact
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from ottla.storage.runs import Appended
from tests.storage.workbench import NOW_MS, Workbench, batch, installed, keyed, marker, removed, sequenced

DAY_MS = 24 * 60 * 60 * 1_000


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(seed=1)


@pytest.fixture
def bench(disk: MemoryDisk) -> Workbench:
    return Workbench(disk, "/data/topic-0")


def put(log: Log, data: bytes) -> Appended:
    return log.append(data, leader_epoch=0)


def open_at(log: Log, epoch: int = 0) -> None:
    put(log, sequenced(7, 0, epoch=epoch, transactional=True))


# --- batches that no producer sends --------------------------------------------------------------------


@pytest.mark.parametrize("is_known", [False, True], ids=["a new producer", "a known producer"])
@pytest.mark.parametrize("sequence", [-1, -2, -(2**31)])
def test_a_producers_batch_without_a_sequence_number_is_refused(
    bench: Workbench, sequence: int, *, is_known: bool
) -> None:
    log = bench.open()
    if is_known:
        put(log, sequenced(7, 0))
    end_offset = log.end_offset
    with pytest.raises(InvalidRecord, match="without a sequence number"):
        put(log, batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
    assert log.end_offset == end_offset


@pytest.mark.parametrize("is_known", [False, True], ids=["a new producer", "a known producer"])
@pytest.mark.parametrize("epoch", [-1, -(2**15)])
def test_a_producers_batch_without_an_epoch_is_refused(bench: Workbench, epoch: int, *, is_known: bool) -> None:
    log = bench.open()
    if is_known:
        put(log, sequenced(7, 0))
    end_offset = log.end_offset
    with pytest.raises(InvalidProducerEpoch, match="is none"):
        put(log, sequenced(7, 1, epoch=epoch))
    assert log.end_offset == end_offset


# --- markers and epochs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(MarkerType))
def test_after_a_marker_of_the_same_epoch_sequences_go_on(bench: Workbench, kind: MarkerType) -> None:
    log = bench.open()
    open_at(log)
    put(log, marker(7, kind))
    with pytest.raises(OutOfOrderSequence):
        put(log, sequenced(7, 0, count=2, transactional=True))
    assert put(log, sequenced(7, 0, transactional=True)).repeated
    assert put(log, sequenced(7, 1, transactional=True)) == Appended(2, 2)


@pytest.mark.parametrize("kind", list(MarkerType))
@pytest.mark.parametrize("is_reopened", [False, True], ids=["at once", "after a restart"])
def test_after_a_marker_of_the_next_epoch_sequences_begin_anew(
    bench: Workbench, kind: MarkerType, *, is_reopened: bool
) -> None:
    log = bench.open()
    open_at(log)
    put(log, marker(7, kind, epoch=1))
    assert log.first_unstable_offset(log.end_offset) is None
    if is_reopened:
        log.close()
        log = bench.open()
    with pytest.raises(InvalidProducerEpoch):
        put(log, sequenced(7, 0, transactional=True))
    with pytest.raises(InvalidProducerEpoch):
        put(log, sequenced(7, 1, transactional=True))
    with pytest.raises(OutOfOrderSequence, match="0 was due"):
        put(log, sequenced(7, 1, epoch=1, transactional=True))
    assert put(log, sequenced(7, 0, epoch=1, transactional=True)) == Appended(2, 2)
    assert log.first_unstable_offset(log.end_offset) == 2


def test_a_marker_that_is_written_twice_aborts_once(bench: Workbench) -> None:
    log = bench.open()
    open_at(log)
    put(log, marker(7, MarkerType.ABORT, epoch=1))
    put(log, marker(7, MarkerType.ABORT, epoch=1))
    for _ in range(2):
        aborted = log.aborted_transactions(offset=0, end_offset=log.end_offset)
        assert [(entry.first_offset, entry.last_offset) for entry in aborted] == [(0, 1)]
        log.close()
        log = bench.open()
    assert put(log, sequenced(7, 0, epoch=1, transactional=True)) == Appended(3, 3)


def test_a_marker_for_a_producer_that_never_wrote_here_fences_its_older_epochs(bench: Workbench) -> None:
    log = bench.open()
    put(log, marker(7, MarkerType.ABORT, epoch=3))
    assert log.aborted_transactions(offset=0, end_offset=1) == []
    with pytest.raises(InvalidProducerEpoch):
        put(log, sequenced(7, 0, epoch=2, transactional=True))
    assert put(log, sequenced(7, 0, epoch=3, transactional=True)) == Appended(1, 1)


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_newer_epoch_does_not_join_a_transaction_that_an_older_one_has_open(
    bench: Workbench, *, is_transactional: bool
) -> None:
    """Otherwise the end of the new one would decide about the records of the old one."""
    log = bench.open()
    open_at(log, epoch=4)
    with pytest.raises(InvalidTransactionState, match="in epoch 4"):
        put(log, sequenced(7, 0, epoch=5, transactional=is_transactional))
    put(log, marker(7, MarkerType.COMMIT, epoch=5))
    put(log, sequenced(7, 0, epoch=5, transactional=True))
    put(log, marker(7, MarkerType.ABORT, epoch=6))
    aborted = log.aborted_transactions(offset=0, end_offset=log.end_offset)
    assert [(entry.first_offset, entry.last_offset) for entry in aborted] == [(2, 3)]


# --- what survives ---------------------------------------------------------------------------------------


def check_is_known(log: Log) -> None:
    """Producer 7 has written up to sequence 2 in epoch 1."""
    assert put(log, sequenced(7, 2, epoch=1)).repeated
    for data, error in [
        (sequenced(7, 0, epoch=0), InvalidProducerEpoch),
        (sequenced(7, 4, epoch=1), OutOfOrderSequence),
        (sequenced(7, 1, epoch=2), OutOfOrderSequence),
    ]:
        with pytest.raises(Refusal) as refused:
            put(log, data)
        assert type(refused.value) is error
    assert not put(log, sequenced(7, 3, epoch=1)).repeated


def write_and_roll(log: Log) -> None:
    """All that producer 7 has written stands in segments that are sealed."""
    for sequence in range(3):
        put(log, sequenced(7, sequence, epoch=1))
    log.roll()
    put(log, batch(b"of somebody else"))
    log.roll()
    log.sync()


@pytest.mark.parametrize("end", ["none", "close", "crash"])
def test_sequences_are_checked_after_all_records_of_a_producer_have_expired(
    disk: MemoryDisk, bench: Workbench, end: str
) -> None:
    log = bench.open(retention_ms=1_000)
    write_and_roll(log)
    bench.clock.advance(10_000)
    assert removed(log, below_offset=log.end_offset) == 2
    if end == "close":
        log.close()
    if end == "crash":
        disk.crash()
    if end != "none":
        log = bench.open(retention_ms=1_000)
    check_is_known(log)


@pytest.mark.parametrize("end", ["none", "close", "crash"])
def test_sequences_are_checked_after_all_records_were_deleted(disk: MemoryDisk, bench: Workbench, end: str) -> None:
    log = bench.open()
    write_and_roll(log)
    log.delete_records(log.end_offset).run()
    assert log.log_start_offset == log.end_offset
    if end == "close":
        log.close()
    if end == "crash":
        disk.crash()
    if end != "none":
        log = bench.open()
    check_is_known(log)


@pytest.mark.parametrize("end", ["none", "close", "crash", "snapshots lost"])
def test_sequences_are_checked_after_the_last_batch_of_a_producer_was_compacted(
    disk: MemoryDisk, bench: Workbench, end: str
) -> None:
    settings = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.0}
    log = bench.open(**settings)
    write_and_roll(log)
    put(log, keyed([(b"k", b"the newest of its key")]))
    log.roll()
    log.sync()
    plan = log.plan_compaction(high_watermark=log.end_offset)
    assert plan is not None
    assert installed(log, plan, compact(disk, bench.directory, plan))
    assert [found.header.record_count for found in log.batches(offset=0)] == [0, 1]
    if end in ("close", "snapshots lost"):
        log.close()
    if end == "crash":
        disk.crash()
    if end == "snapshots lost":
        for name in bench.names(".snapshot"):
            disk.remove(f"{bench.directory}/{name}")
    if end != "none":
        log = bench.open(**settings)
    check_is_known(log)


def test_the_end_of_a_transaction_is_known_after_its_records_were_compacted_and_snapshots_lost(
    disk: MemoryDisk, bench: Workbench
) -> None:
    settings = {"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.0}
    log = bench.open(**settings)
    open_at(log)
    put(log, marker(7, MarkerType.ABORT, epoch=1))
    put(log, keyed([(b"k", b"the newest of its key")]))
    log.roll()
    log.sync()
    plan = log.plan_compaction(high_watermark=log.end_offset)
    assert plan is not None
    assert installed(log, plan, compact(disk, bench.directory, plan))
    log.close()
    for name in bench.names(".snapshot"):
        disk.remove(f"{bench.directory}/{name}")
    log = bench.open(**settings)
    assert log.first_unstable_offset(log.end_offset) is None
    with pytest.raises(InvalidProducerEpoch):
        put(log, sequenced(7, 1, transactional=True))
    put(log, sequenced(7, 0, epoch=1, transactional=True))


# --- silence ---------------------------------------------------------------------------------------------


def test_a_producer_that_writes_records_of_long_ago_is_not_taken_for_silent(bench: Workbench) -> None:
    log = bench.open(producer_id_expiration_ms=DAY_MS)
    old = batch(producer_id=7, producer_epoch=0, base_sequence=0, timestamp_ms=NOW_MS - 30 * DAY_MS)
    put(log, old)
    assert log.expire_producers() == 0
    assert put(log, old) == Appended(0, 0, True)
    bench.clock.advance(DAY_MS - 1)
    assert log.expire_producers() == 0
    bench.clock.advance(1)
    assert log.expire_producers() == 1


def test_a_producer_that_was_silent_before_a_restart_is_forgotten_after_it(bench: Workbench) -> None:
    log = bench.open(producer_id_expiration_ms=DAY_MS)
    put(log, sequenced(7, 0))
    put(log, sequenced(8, 0, transactional=True))
    log.close()
    bench.clock.advance(DAY_MS)
    log = bench.open(producer_id_expiration_ms=DAY_MS)
    assert log.expire_producers() == 1
    assert [entry.producer_id for entry in log.producers.entries] == [8]
