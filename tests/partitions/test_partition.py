"""A partition's leader: what is visible when, who is told what, and what a failing disk does to it."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace

import pytest

from ottla.clock import ManualClock
from ottla.config import Settings
from ottla.errors import (
    FencedLeaderEpoch,
    InvalidTimestamp,
    LogClosed,
    PartitionOffline,
    RecordTooLarge,
    Refusal,
    StorageFault,
    UnknownLeaderEpoch,
)
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs import BrokerConfigs, TopicConfig, topic_config
from ottla.partitions.partition import RETRY_MS, UNWATCHED_SYNC_MS, Partition, Written
from ottla.partitions.sync_pool import InlineSyncs, SyncPool
from ottla.partitions.unsynced import UnsyncedBytes
from ottla.partitions.watermarks import AcksAll
from ottla.records.batch import TimestampType, check
from ottla.records.control import MarkerType
from ottla.scheduler import ManualScheduler
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from ottla.storage.runs import Appended
from tests.storage.workbench import NOW_MS, batch, marker, sequenced

DEFAULTS = topic_config({}, BrokerConfigs(Settings.resolve(BROKER_CONFIGS)))
OS = replace(DEFAULTS, acks_all=AcksAll.OS)


@dataclass
class Stage:
    """A partition on a disk in memory, moved by hand."""

    disk: MemoryDisk = field(default_factory=lambda: MemoryDisk(seed=1))
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS))
    unsynced: UnsyncedBytes = field(default_factory=UnsyncedBytes)

    def __post_init__(self) -> None:
        self.scheduler = ManualScheduler(self.clock)

    def settle(self) -> None:
        """Let everything happen that is under way, also what nobody waits for."""
        self.scheduler.advance(UNWATCHED_SYNC_MS)

    def partition(self, config: TopicConfig | None = None, *, index: int = 0) -> Partition:
        config = config or DEFAULTS
        log = Log.open(self.disk, f"/data/topic-{index}", config=config.log, clock=self.clock)
        return Partition(
            log,
            leader_epoch=0,
            config=config,
            scheduler=self.scheduler,
            syncs=InlineSyncs(self.scheduler),
            clock=self.clock,
            unsynced=self.unsynced,
        )


@pytest.fixture
def stage() -> Stage:
    return Stage()


class Told:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.words: list[Refusal | None] = []
        self.woken = 0

    def __call__(self, word: Refusal | None) -> None:
        self.words.append(word)

    def wake(self, place: int) -> None:
        self.woken += 1


def put(partition: Partition, data: bytes) -> Written:
    return partition.append(data, check(data))


def test_nothing_is_visible_before_it_is_durable(stage: Stage) -> None:
    partition = stage.partition()
    assert put(partition, batch(b"a")) == Written(Appended(0, 0), -1)
    assert partition.high_watermark == 0
    assert partition.read(0, bytes_max=1_000, committed_only=False).slice is None
    stage.settle()
    assert partition.high_watermark == 1
    assert partition.read(0, bytes_max=1_000, committed_only=False).slice is not None


def test_with_the_page_cache_policy_what_is_written_is_visible(stage: Stage) -> None:
    partition = stage.partition(OS)
    put(partition, batch(b"a"))
    assert partition.high_watermark == 1
    stage.settle()
    assert partition.log.synced_offset == 0


def test_one_pass_is_one_group_commit(stage: Stage) -> None:
    syncs: list[str] = []
    partition = stage.partition()
    stage.disk.on_operation = lambda name, moment: syncs.append(name) if name == "sync .log" else None
    told = Told()
    for _ in range(10):
        written = put(partition, batch())
        partition.when_durable(written.appended.last_offset + 1, told)
    assert told.words == []
    stage.settle()
    assert told.words == [None] * 10
    assert len(set(syncs)) == 1
    assert len(syncs) <= 2, "the moments before and after one sync"


def test_waiting_for_what_is_durable_already_ends_at_once(stage: Stage) -> None:
    partition = stage.partition()
    put(partition, batch())
    stage.settle()
    told = Told()
    partition.when_durable(1, told)
    assert told.words == [None]


def test_a_retry_waits_for_the_original(stage: Stage) -> None:
    partition = stage.partition()
    put(partition, sequenced(7, 0))
    again = put(partition, sequenced(7, 0))
    assert again.appended == Appended(0, 0, True)
    told = Told()
    partition.when_durable(1, told)
    assert told.words == []
    stage.settle()
    assert told.words == [None]


def test_a_sync_that_nobody_waits_for_waits_a_little_and_one_that_a_reader_waits_for_does_not(stage: Stage) -> None:
    partition = stage.partition()
    put(partition, batch())
    stage.scheduler.run()
    assert partition.high_watermark == 0
    partition.watch(Told(), 0)
    stage.scheduler.run()
    assert partition.high_watermark == 1
    put(partition, batch())
    stage.scheduler.run()
    assert partition.high_watermark == 2


def test_watchers_are_woken_when_the_visible_end_moves(stage: Stage) -> None:
    partition = stage.partition()
    told = Told()
    partition.watchers.add((told, 0))
    put(partition, batch())
    assert told.woken == 0
    stage.settle()
    assert told.woken == 1
    partition.watchers.discard((told, 0))
    put(partition, batch())
    stage.settle()
    assert told.woken == 1


def test_an_open_transaction_is_hidden_from_those_who_read_committed(stage: Stage) -> None:
    partition = stage.partition()
    put(partition, batch(b"plain"))
    put(partition, sequenced(7, 0, transactional=True))
    stage.settle()
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
    assert partition.read(1, bytes_max=1_000, committed_only=True).slice is None
    assert partition.read(1, bytes_max=1_000, committed_only=False).slice is not None
    put(partition, marker(7, MarkerType.ABORT))
    stage.settle()
    found = partition.read(1, bytes_max=1_000, committed_only=True)
    assert found.last_stable_offset == 3
    assert [(entry.producer_id, entry.first_offset) for entry in found.aborted] == [(7, 1)]


@pytest.mark.parametrize("policy", [AcksAll.DISK, AcksAll.OS])
def test_the_end_of_a_transaction_shows_its_records_once_it_is_visible_itself(stage: Stage, policy: AcksAll) -> None:
    partition = stage.partition(replace(DEFAULTS, acks_all=policy))
    put(partition, sequenced(7, 0, transactional=True))
    stage.settle()
    put(partition, marker(7, MarkerType.COMMIT, epoch=1))
    assert partition.last_stable_offset == (2 if policy is AcksAll.OS else 0)
    stage.settle()
    assert partition.last_stable_offset == 2


def test_an_open_transaction_whose_beginning_was_deleted_leaves_readers_at_the_start(stage: Stage) -> None:
    partition = stage.partition()
    put(partition, sequenced(7, 0, transactional=True))
    put(partition, batch(b"plain"))
    stage.settle()
    partition.delete_records(1, lambda fault: None)
    stage.settle()
    assert partition.log.log_start_offset == 1
    assert partition.last_stable_offset == 1
    found = partition.read(1, bytes_max=1_000, committed_only=True)
    assert (found.slice, found.last_stable_offset, partition.look().last_stable_offset) == (None, 1, 1)
    put(partition, marker(7, MarkerType.ABORT, epoch=1))
    stage.settle()
    found = partition.read(1, bytes_max=1_000, committed_only=True)
    assert found.slice is not None
    assert found.last_stable_offset == 3


def test_a_reader_of_few_bytes_is_told_of_few_aborted_transactions(stage: Stage) -> None:
    partition = stage.partition()
    for sequence in range(300):
        put(partition, sequenced(7, sequence, transactional=True))
        put(partition, marker(7, MarkerType.ABORT))
    stage.settle()
    found = partition.read(0, bytes_max=100, committed_only=True)
    assert found.aborted[0].first_offset == 0
    assert len(found.aborted) < 60


def test_a_marker_is_written_however_small_batches_must_be(stage: Stage) -> None:
    partition = stage.partition()
    put(partition, sequenced(7, 0, transactional=True))
    partition.configure(replace(DEFAULTS, max_message_bytes=1))
    with pytest.raises(RecordTooLarge):
        put(partition, sequenced(7, 1, transactional=True))
    put(partition, marker(7, MarkerType.COMMIT))
    stage.settle()
    assert partition.last_stable_offset == 2


@pytest.mark.parametrize(("asked", "error"), [(-1, None), (0, None), (1, UnknownLeaderEpoch)])
def test_a_client_with_another_idea_of_the_leader_is_refused(
    stage: Stage, asked: int, error: type[Refusal] | None
) -> None:
    partition = stage.partition()
    if error is None:
        partition.check_epoch(asked)
    else:
        with pytest.raises(error, match="leader epoch 1 was asked for, it is 0"):
            partition.check_epoch(asked)
    partition.leader_epoch = 5
    with pytest.raises(FencedLeaderEpoch):
        partition.check_epoch(4)


def test_a_batch_above_the_limit_is_refused(stage: Stage) -> None:
    partition = stage.partition(replace(DEFAULTS, max_message_bytes=100))
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes is 100"):
        put(partition, batch(b"x" * 100))


def test_a_topic_can_stamp_records_with_the_brokers_time(stage: Stage) -> None:
    partition = stage.partition(replace(DEFAULTS, timestamp_type=TimestampType.LOG_APPEND_TIME))
    stage.clock.advance(5)
    written = put(partition, batch(timestamp_ms=12))
    assert written.append_time_ms == NOW_MS + 5
    (found,) = partition.log.batches(offset=0)
    assert check(found.data).max_timestamp == NOW_MS + 5
    assert found.header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_timestamps_too_far_from_the_clock_are_refused(stage: Stage) -> None:
    partition = stage.partition(replace(DEFAULTS, timestamp_before_max_ms=100, timestamp_after_max_ms=50))
    put(partition, batch(timestamp_ms=NOW_MS - 100))
    put(partition, batch(timestamp_ms=NOW_MS + 50))
    with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.before\.max\.ms"):
        put(partition, batch(timestamp_ms=NOW_MS - 101))
    with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.after\.max\.ms"):
        put(partition, batch(timestamp_ms=NOW_MS + 51))


def test_flush_messages_and_flush_ms_sync_the_page_cache_policy_too(stage: Stage) -> None:
    partition = stage.partition(replace(OS, flush_messages=3, flush_ms=1_000))
    put(partition, batch())
    put(partition, batch())
    stage.scheduler.run()
    assert partition.log.synced_offset == 0
    put(partition, batch())
    stage.scheduler.run()
    assert partition.log.synced_offset == 3
    put(partition, batch())
    stage.scheduler.advance(999)
    assert partition.log.synced_offset == 3
    stage.scheduler.advance(1)
    assert partition.log.synced_offset == 4


def test_too_many_unsynced_bytes_are_synced_whatever_the_policy(stage: Stage) -> None:
    partition = stage.partition(replace(OS, max_message_bytes=10 << 20))
    put(partition, batch(b"x" * (5 << 20)))
    stage.settle()
    assert partition.log.synced_offset == 0
    put(partition, batch(b"x" * (4 << 20)))
    assert stage.unsynced.total > 9 << 20
    stage.settle()
    assert partition.log.synced_offset == 2
    assert stage.unsynced.total == 0


def test_everybody_is_synced_when_all_together_hold_too_much_though_nobody_has_more_than_its_share() -> None:
    stage = Stage(unsynced=UnsyncedBytes(bytes_max=2_000, bytes_max_per_partition=1_000))
    partitions = [stage.partition(OS, index=index) for index in range(2)]
    put(partitions[0], batch(b"x" * 500))
    stage.settle()
    assert [each.log.synced_offset for each in partitions] == [0, 0]
    put(partitions[1], batch(b"x" * 500))
    assert stage.unsynced.total > 1_000
    # Before anybody has to wait.
    assert not stage.unsynced.too_many
    stage.settle()
    assert [each.log.synced_offset for each in partitions] == [1, 1]
    assert stage.unsynced.total == 0


def test_what_was_hurried_once_is_hurried_again_when_there_is_too_much_anew() -> None:
    stage = Stage(unsynced=UnsyncedBytes(bytes_max=1_000, bytes_max_per_partition=2_000))
    partition = stage.partition(OS)
    for end_offset in (1, 2):
        put(partition, batch(b"x" * 1_500))
        stage.settle()
        assert partition.log.synced_offset == end_offset


def test_whoever_syncs_is_not_hurried_with_the_others() -> None:
    asked: list[str] = []

    class Holder:
        def __init__(self, name: str) -> None:
            self._name = name

        def ask_sync(self) -> None:
            asked.append(self._name)

    unsynced = UnsyncedBytes(bytes_max=100)
    first, second = Holder("first"), Holder("second")
    unsynced.add(first, 50)
    unsynced.begin(first, 50)
    unsynced.add(second, 50)
    assert asked == []
    unsynced.add(second, 1)
    assert asked == ["second"]
    unsynced.begin(second, 51)
    # A sync that failed leaves its bytes where they were.
    unsynced.fail(51)
    unsynced.add(first, 1)
    assert asked == ["second", "first"]


# --- another policy while records come -----------------------------------------------------------------


def test_what_was_visible_stays_so_when_acknowledgements_begin_to_mean_the_disk(stage: Stage) -> None:
    partition = stage.partition(OS)
    put(partition, batch(b"a"))
    stage.settle()
    partition.configure(DEFAULTS)
    assert partition.high_watermark == 1
    put(partition, batch(b"b"))
    assert partition.high_watermark == 1, "what comes after the change waits for the disk"


def test_what_is_not_synced_is_when_acknowledgements_begin_to_mean_the_disk(stage: Stage) -> None:
    partition = stage.partition(OS)
    put(partition, batch(b"a"))
    stage.settle()
    partition.configure(DEFAULTS)
    stage.scheduler.run()
    assert partition.log.synced_offset == 1


def test_readers_are_woken_when_the_page_cache_begins_to_be_enough(stage: Stage) -> None:
    partition = stage.partition()
    put(partition, batch(b"a"))
    watcher = Told()
    partition.watchers.add((watcher, 0))
    partition.configure(OS)
    assert watcher.woken == 1
    assert partition.high_watermark == 1


# --- a failing disk ------------------------------------------------------------------------------------


def test_a_failed_sync_takes_the_partition_offline_and_everybody_is_told(stage: Stage) -> None:
    partition = stage.partition()
    waiter, watcher = Told(), Told()
    partition.watchers.add((watcher, 0))
    put(partition, batch())
    partition.when_durable(1, waiter)
    stage.disk.fail_next("sync", ".log", errno.EIO)
    stage.settle()
    assert [type(word) for word in waiter.words] == [PartitionOffline]
    assert watcher.woken == 1
    assert stage.unsynced.total == 0
    with pytest.raises(PartitionOffline, match="is offline"):
        put(partition, batch())
    with pytest.raises(PartitionOffline):
        partition.read(0, bytes_max=1, committed_only=False)
    late = Told()
    partition.when_durable(1, late)
    assert [type(word) for word in late.words] == [PartitionOffline]


def test_a_full_disk_refuses_the_batch_and_the_partition_stays(stage: Stage) -> None:
    partition = stage.partition()
    stage.disk.fail_next("append", ".log", errno.ENOSPC)
    with pytest.raises(PartitionOffline, match="the disk is full, nothing of the batch was kept"):
        put(partition, batch())
    assert partition.offline is None
    put(partition, batch())
    stage.settle()
    assert partition.high_watermark == 1


def test_a_sync_without_space_fails_those_who_wait_and_is_tried_again(stage: Stage) -> None:
    partition = stage.partition()
    waiter = Told()
    put(partition, batch())
    partition.log.roll()
    partition.when_durable(1, waiter)
    stage.disk.fail_next("append", ".index", errno.ENOSPC)
    stage.disk.fail_next("append", ".timeindex", errno.ENOSPC)
    stage.scheduler.run()
    assert [type(word) for word in waiter.words] == [PartitionOffline]
    assert partition.high_watermark == 0
    # The second try finds the other index without space.
    stage.scheduler.advance(2 * RETRY_MS)
    assert partition.high_watermark == 1
    assert stage.unsynced.total == 0


def test_a_pool_of_threads_syncs_and_answers_on_the_owners_thread(stage: Stage) -> None:
    pool = SyncPool(stage.scheduler, threads=2)

    class Job:
        ran = False

        def run(self) -> None:
            self.ran = True

    jobs = [Job() for _ in range(20)]
    told = Told()
    for job in jobs:
        pool.submit(job, told)  # type: ignore[arg-type]
    pool.close()
    assert all(job.ran for job in jobs)
    assert told.words == []
    stage.settle()
    assert told.words == [None] * 20


def test_a_segment_that_cannot_be_begun_takes_the_log_offline_with_the_partition(stage: Stage) -> None:
    partition = stage.partition(replace(DEFAULTS, log=replace(DEFAULTS.log, segment_bytes=100)))
    put(partition, batch(b"a"))
    stage.settle()
    stage.disk.fail_next("open", ".log", errno.EIO)
    with pytest.raises(PartitionOffline):
        put(partition, batch(b"b"))
    with pytest.raises(LogClosed, match="offline after a disk fault"):
        partition.log.roll()


def test_a_job_with_a_bug_in_it_is_reported_and_its_thread_goes_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    pool = SyncPool(stage.scheduler, threads=1)
    ran: list[int] = []

    class Buggy:
        def run(self) -> None:
            raise ZeroDivisionError("a bug")

    class Fine:
        def run(self) -> None:
            ran.append(1)

    faults: list[StorageFault | None] = []
    pool.submit(Buggy(), faults.append)
    pool.submit(Fine(), faults.append)
    pool.close()
    stage.scheduler.run()
    assert ran == [1]
    assert [type(fault) for fault in faults] == [StorageFault, type(None)]
    assert "ZeroDivisionError: a bug" in caplog.text
