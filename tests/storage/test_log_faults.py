"""A log whose disk fails, fills up, or was damaged behind its back."""

from __future__ import annotations

import errno

import pytest

from ottla.errors import DiskFull, LogClosed, StorageFault
from ottla.storage.compaction import compact
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from ottla.storage.runs import Appended
from tests.storage.workbench import NOW_MS, Workbench, batch, installed, keyed, records_of, sequenced


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(seed=1)


@pytest.fixture
def bench(disk: MemoryDisk) -> Workbench:
    return Workbench(disk, "/data/topic-0")


def filled(log: Log, count: int = 10) -> Log:
    for number in range(count):
        log.append(batch(b"%d" % number), leader_epoch=0)
    return log


def path_of(bench: Workbench, name: str) -> str:
    return f"{bench.directory}/{name}"


def damage(bench: Workbench, name: str, *, keep: int) -> None:
    file = bench.disk.open(path_of(bench, name))
    file.truncate(keep)
    file.sync()
    file.close()


# --- syncing -----------------------------------------------------------------------------------------


def test_a_sync_covers_what_was_appended_before_it_and_not_what_came_after(bench: Workbench) -> None:
    log = filled(bench.open())
    job = log.prepare_sync()
    assert job is not None
    log.append(batch(b"later"), leader_epoch=0)
    job.run()
    assert log.synced_offset == 0
    log.complete_sync(job)
    assert (log.synced_offset, log.end_offset) == (10, 11)


def test_a_segment_may_roll_while_a_sync_is_under_way(bench: Workbench) -> None:
    log = filled(bench.open(segment_bytes=300))
    job = log.prepare_sync()
    assert job is not None
    filled(log)
    job.run()
    log.complete_sync(job)
    assert log.synced_offset == 10
    log.sync()
    assert [segment.seal is not None for segment in log.segments] == [True] * (len(log.segments) - 1) + [False]


def test_a_synced_log_has_nothing_to_sync(bench: Workbench) -> None:
    log = filled(bench.open())
    log.sync()
    assert log.prepare_sync() is None


def test_a_failed_sync_takes_the_log_offline(bench: Workbench, disk: MemoryDisk) -> None:
    log = filled(bench.open())
    disk.fail_next("sync", ".log", errno.EIO)
    with pytest.raises(StorageFault):
        log.sync()
    assert log.synced_offset == 0
    for work in (lambda: log.append(batch(), leader_epoch=0), log.sync, lambda: log.read(offset=0, bytes_max=9)):
        with pytest.raises(LogClosed, match=r"offline after a disk fault .* reopen it to recover"):
            work()
    log.close()


def test_a_retry_to_an_offline_log_is_not_acknowledged_as_a_repeat(bench: Workbench, disk: MemoryDisk) -> None:
    log = bench.open()
    log.append(sequenced(7, 0), leader_epoch=0)
    disk.fail_next("sync", ".log", errno.EIO)
    with pytest.raises(StorageFault):
        log.sync()
    with pytest.raises(LogClosed):
        log.append(sequenced(7, 0), leader_epoch=0)


def test_after_a_failed_sync_the_next_opening_writes_the_bytes_again(bench: Workbench, disk: MemoryDisk) -> None:
    log = filled(bench.open())
    disk.fail_next("sync", ".log", errno.EIO)
    with pytest.raises(StorageFault):
        log.sync()
    # The page cache still shows the ten records, though the disk never got them.
    again = bench.open()
    assert again.synced_offset == 10
    disk.crash()
    assert [record.offset for record in records_of(bench.open())] == list(range(10))
    assert "sync-failed" not in bench.names()


def test_a_failed_append_takes_the_log_offline(bench: Workbench, disk: MemoryDisk) -> None:
    log = filled(bench.open())
    log.sync()
    disk.fail_next("append", ".log", errno.EIO)
    with pytest.raises(StorageFault):
        log.append(batch(), leader_epoch=0)
    with pytest.raises(LogClosed):
        log.append(batch(), leader_epoch=0)
    assert [record.offset for record in records_of(bench.open())] == list(range(10))


# --- a full disk -------------------------------------------------------------------------------------


def test_a_full_disk_refuses_the_append_and_nothing_else(bench: Workbench, disk: MemoryDisk) -> None:
    log = filled(bench.open())
    disk.fail_next("append", ".log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.append(sequenced(7, 0), leader_epoch=0)
    assert log.end_offset == 10
    assert log.append(sequenced(7, 0), leader_epoch=0) == Appended(10, 10)
    log.close()
    assert [record.offset for record in records_of(bench.open())] == list(range(11))


@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", ".snapshot.tmp", "leader-epoch-checkpoint.tmp", ".seal.tmp"]
)
def test_a_sync_that_found_no_space_can_be_tried_again(bench: Workbench, disk: MemoryDisk, suffix: str) -> None:
    log = filled(bench.open(segment_bytes=300, index_interval_bytes=0))
    disk.fail_next("append", suffix, errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.sync()
    assert log.synced_offset == 0
    log.sync()
    assert log.synced_offset == 10
    disk.crash()
    again = bench.open(segment_bytes=300, index_interval_bytes=0)
    assert [record.offset for record in records_of(again)] == list(range(10))


# --- damage that no crash explains ---------------------------------------------------------------------


def test_a_sealed_segment_cut_short_loses_only_its_own_tail(bench: Workbench) -> None:
    log = filled(bench.open(segment_bytes=300))
    log.close()
    assert [segment.base_offset for segment in log.segments[:3]] == [0, 4, 8]
    size = len(batch(b"0"))
    damage(bench, "00000000000000000004.log", keep=2 * size + 10)
    log = bench.open(segment_bytes=300)
    assert [record.offset for record in records_of(log)] == [0, 1, 2, 3, 4, 5, 8, 9]
    (sentence,) = log.recovery.damage
    assert f"00000000000000000004.log: damaged at byte {2 * size} of {2 * size + 10}" in sentence
    assert "from offset 6 up to the next segment are lost" in sentence
    assert [record.offset for record in records_of(log, offset=6)] == [8, 9]
    log.close()
    assert bench.open(segment_bytes=300).recovery.damage == []


def test_a_seal_that_is_lost_or_damaged_costs_a_scan_and_no_record(bench: Workbench) -> None:
    log = filled(bench.open(segment_bytes=300))
    log.close()
    damage(bench, "00000000000000000000.seal", keep=30)
    bench.disk.remove(path_of(bench, "00000000000000000004.seal"))
    log = bench.open(segment_bytes=300)
    assert [record.offset for record in records_of(log)] == list(range(10))
    assert log.recovery.scanned_bytes > 0
    log.close()
    assert bench.open(segment_bytes=300).recovery.scanned_bytes == 0


def test_leader_epochs_that_are_lost_are_read_from_the_log(bench: Workbench) -> None:
    log = bench.open(segment_bytes=300)
    for number in range(10):
        log.append(batch(), leader_epoch=number // 3)
    expected = log.epochs.entries
    log.close()
    damage(bench, "leader-epoch-checkpoint", keep=5)
    log = bench.open(segment_bytes=300)
    assert log.epochs.entries == expected
    assert len(log.recovery.damage) == 1


# --- compaction and what happens beside it ---------------------------------------------------------------


def compacted(bench: Workbench) -> Log:
    return bench.open(segment_bytes=300, compact=True, delete=False, min_cleanable_dirty_ratio=0.0)


def fill_keys(log: Log) -> None:
    for number in range(12):
        log.append(keyed([(b"k%d" % (number % 2), b"%d" % number)], timestamp_ms=NOW_MS), leader_epoch=0)
    log.sync()


def test_a_compaction_is_installed_and_survives_a_restart(bench: Workbench) -> None:
    log = compacted(bench)
    fill_keys(log)
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    assert installed(log, planned, compact(bench.disk, bench.directory, planned))
    expected = [(record.offset, record.value) for record in records_of(log)]
    assert len(expected) < 12
    assert {value for _, value in expected} >= {b"10", b"11"}
    log.close()
    assert [(record.offset, record.value) for record in records_of(compacted(bench))] == expected
    assert not [name for name in bench.names() if "cleaned" in name or "swap" in name]


@pytest.mark.parametrize("meanwhile", ["delete_records", "truncate_to", "restart_at"])
def test_a_compaction_that_the_log_has_overtaken_is_dropped(bench: Workbench, meanwhile: str) -> None:
    log = compacted(bench)
    fill_keys(log)
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    result = compact(bench.disk, bench.directory, planned)
    if meanwhile == "delete_records":
        log.delete_records(6).run()
    else:
        getattr(log, meanwhile)(6)
    before = [record.offset for record in records_of(log)]
    assert not installed(log, planned, result)
    assert [record.offset for record in records_of(log)] == before
    assert not [name for name in bench.names() if "cleaned" in name]


def test_a_result_is_installed_once_only(bench: Workbench) -> None:
    log = compacted(bench)
    fill_keys(log)
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    result = compact(bench.disk, bench.directory, planned)
    assert installed(log, planned, result)
    assert not installed(log, planned, result)


def test_a_swap_that_fails_half_way_is_finished_by_the_next_opening(bench: Workbench, disk: MemoryDisk) -> None:
    log = compacted(bench)
    fill_keys(log)
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    result = compact(bench.disk, bench.directory, planned)
    disk.fail_next("rename", ".index.cleaned", errno.EIO)
    with pytest.raises(StorageFault):
        installed(log, planned, result)
    with pytest.raises(LogClosed):
        log.read(offset=0, bytes_max=1)
    log = compacted(bench)
    assert log.recovery.swaps_finished == 1
    values = {record.value for record in records_of(log)}
    assert values >= {b"10", b"11"}
    assert len(values) < 12
