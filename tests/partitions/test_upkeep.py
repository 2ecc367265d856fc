"""What a partition does beside appending and reading: deleting, jobs in order, retries, the ends of epochs."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from ottla.clock import ManualClock
from ottla.config import Settings
from ottla.errors import LogClosed, OffsetOutOfRange, PartitionOffline, PolicyViolation, Refusal, StorageFault
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs import BrokerConfigs, topic_config
from ottla.partitions.partition import RETRY_MS, Partition
from ottla.partitions.sync_pool import Done, Job, run_job
from ottla.partitions.unsynced import UnsyncedBytes
from ottla.records.batch import check
from ottla.scheduler import ManualScheduler
from ottla.storage.epochs import EpochStart
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from tests.storage.workbench import NOW_MS, batch


class Note:
    """A job that remembers that it ran."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self._name = name
        self._ran = ran

    def run(self) -> None:
        self._ran.append(self._name)


class HeldSyncs:
    """Runs jobs when it is told to."""

    def __init__(self, scheduler: ManualScheduler) -> None:
        self._scheduler = scheduler
        self.waiting: list[tuple[Job, Done]] = []

    def submit(self, job: Job, done: Done) -> None:
        self.waiting.append((job, done))

    def finish(self) -> None:
        job, done = self.waiting.pop(0)
        self._scheduler.post(partial(done, run_job(job)))
        self._scheduler.run()

    def close(self) -> None:
        """There is nothing to wait for."""


class Bench:
    """A partition whose jobs wait."""

    def __init__(self, *, leader_epoch: int = 0, **configs: str) -> None:
        self.clock = ManualClock(NOW_MS)
        self.scheduler = ManualScheduler(self.clock)
        self.syncs = HeldSyncs(self.scheduler)
        self.disk = MemoryDisk(seed=1)
        own = {name.replace("_", "."): value for name, value in configs.items()}
        config = topic_config(own, BrokerConfigs(Settings.resolve(BROKER_CONFIGS)))
        self.partition = Partition(
            Log.open(self.disk, "/data/topic-0", config=config.log, clock=self.clock),
            leader_epoch=leader_epoch,
            config=config,
            scheduler=self.scheduler,
            syncs=self.syncs,
            clock=self.clock,
            unsynced=UnsyncedBytes(),
        )
        self.faults: list[StorageFault | None] = []

    def put(self, *values: bytes) -> None:
        data = batch(*values)
        self.partition.append(data, check(data))

    def settle(self) -> None:
        """Sync, and run every job there is."""
        self.partition.ask_sync()
        self.scheduler.run()
        while self.syncs.waiting:
            self.syncs.finish()


# --- jobs --------------------------------------------------------------------------------------------------


def test_jobs_run_one_after_the_other() -> None:
    bench = Bench()
    ran: list[str] = []
    for name in "abc":
        bench.partition.run(Note(name, ran), bench.faults.append)
    for count in (1, 2, 3):
        assert len(bench.syncs.waiting) == 1
        bench.syncs.finish()
        assert ran == list("abc")[:count]
    assert bench.faults == [None] * 3


def test_whoever_waits_for_a_partition_to_be_idle_waits_for_its_sync_and_its_jobs() -> None:
    bench = Bench()
    told: list[str] = []
    bench.put(b"1")
    bench.partition.ask_sync()
    bench.partition.run(Note("job", []), bench.faults.append)
    bench.scheduler.run()
    bench.partition.when_idle(lambda: told.append("idle"))
    bench.syncs.finish()
    assert not told
    bench.syncs.finish()
    assert told == ["idle"]


def test_a_partition_with_nothing_to_do_is_idle_at_once() -> None:
    told: list[str] = []
    Bench().partition.when_idle(lambda: told.append("idle"))
    assert told == ["idle"]


def test_a_sync_asked_for_during_one_that_finds_the_disk_full_is_not_forgotten() -> None:
    bench = Bench(segment_bytes="60")
    outcomes: list[Refusal | None] = []
    bench.put(b"1")
    bench.put(b"2")
    bench.partition.when_durable(2, outcomes.append)
    bench.scheduler.run()
    bench.put(b"3")
    bench.partition.when_durable(3, outcomes.append)
    # The finished segment's index finds no room; the next sync was asked for while this one was under way.
    bench.disk.fail_next("append", "index", errno.ENOSPC)
    bench.syncs.finish()
    assert [type(outcome) for outcome in outcomes] == [PartitionOffline, PartitionOffline]
    bench.scheduler.advance(RETRY_MS)
    bench.settle()
    assert bench.partition.high_watermark == 3
    bench.put(b"4")
    bench.partition.when_durable(4, outcomes.append)
    bench.settle()
    assert outcomes[2:] == [None]


def test_what_a_full_disk_kept_from_being_sealed_is_sealed_later_also_without_new_records() -> None:
    bench = Bench()
    bench.put(b"1")
    bench.settle()
    bench.partition.log.roll()
    bench.disk.fail_next("append", ".snapshot.tmp", errno.ENOSPC)
    bench.settle()
    assert bench.partition.log.segments[0].seal is None
    bench.scheduler.advance(RETRY_MS)
    bench.syncs.finish()
    assert bench.partition.log.segments[0].seal is not None


# --- ending ------------------------------------------------------------------------------------------------


def test_a_partition_with_records_that_are_not_on_the_disk_is_not_settled() -> None:
    bench = Bench()
    bench.put(b"1")
    assert not bench.partition.is_settled
    bench.settle()
    assert bench.partition.is_settled


def test_settling_syncs_also_where_the_page_cache_is_enough() -> None:
    bench = Bench(ottla_acks_all="os")
    bench.put(b"1")
    bench.partition.settle()
    bench.scheduler.run()
    bench.syncs.finish()
    assert bench.partition.is_settled
    assert bench.partition.log.synced_offset == 1


def test_settling_what_is_settled_begins_nothing() -> None:
    bench = Bench()
    bench.put(b"1")
    bench.settle()
    bench.partition.settle()
    assert bench.partition.is_settled


def test_a_timer_that_fires_after_the_close_begins_nothing() -> None:
    bench = Bench()
    bench.put(b"1")
    bench.partition.close()
    bench.scheduler.advance(RETRY_MS)
    assert bench.syncs.waiting == []


def test_a_closed_partition_refuses_records_and_its_log_stays_clean() -> None:
    bench = Bench()
    bench.put(b"1")
    bench.partition.close()
    with pytest.raises(PartitionOffline, match="the broker is closed"):
        bench.put(b"2")
    log = bench.partition.log
    assert Log.open(bench.disk, log.directory, config=log.config, clock=bench.clock).recovery.clean


def test_a_fault_after_the_close_leaves_no_mark_in_a_log_that_is_in_order() -> None:
    bench = Bench()
    bench.put(b"1")
    bench.partition.close()
    names = bench.disk.names("/data/topic-0")
    bench.partition.fail(StorageFault("a job", "run"))
    assert bench.disk.names("/data/topic-0") == names


def test_a_partition_whose_sync_has_not_ended_cannot_be_closed_in_order() -> None:
    bench = Bench()
    bench.put(b"1")
    bench.partition.ask_sync()
    bench.scheduler.run()
    with pytest.raises(LogClosed, match="a sync has not come to its end"):
        bench.partition.close()


# --- deleting records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 3])
def test_only_what_is_visible_can_be_deleted(offset: int) -> None:
    bench = Bench()
    bench.put(b"1", b"2")
    bench.settle()
    bench.put(b"3")
    with pytest.raises(OffsetOutOfRange):
        bench.partition.delete_records(offset, bench.faults.append)


def test_a_partition_that_is_only_compacted_keeps_its_records() -> None:
    bench = Bench(cleanup_policy="compact")
    with pytest.raises(PolicyViolation):
        bench.partition.delete_records(0, bench.faults.append)


def test_the_start_moves_and_is_durable_when_the_job_has_run() -> None:
    bench = Bench()
    bench.put(b"1", b"2")
    bench.settle()
    bench.partition.delete_records(1, bench.faults.append)
    assert bench.faults == []
    bench.syncs.finish()
    assert bench.faults == [None]
    bench.disk.crash()
    reopened = Log.open(bench.disk, "/data/topic-0", config=bench.partition.config.log, clock=bench.clock)
    assert reopened.log_start_offset == 1


# --- epochs ------------------------------------------------------------------------------------------------


def test_epochs_end_where_the_next_one_begins_also_without_records_of_their_own() -> None:
    bench = Bench(leader_epoch=3)
    partition = bench.partition
    assert partition.end_of_epoch(3) == EpochStart(3, 0)
    assert partition.end_of_epoch(1) == EpochStart(1, 0)
    bench.put(b"1", b"2")
    partition.leader_epoch = 6
    bench.settle()
    found = {epoch: partition.end_of_epoch(epoch) for epoch in range(-1, 8)}
    assert found == {
        -1: EpochStart(-1, -1),
        0: EpochStart(0, 0),
        1: EpochStart(1, 0),
        2: EpochStart(2, 0),
        3: EpochStart(3, 2),
        4: EpochStart(3, 2),
        5: EpochStart(3, 2),
        6: EpochStart(6, 2),
        7: EpochStart(-1, -1),
    }
