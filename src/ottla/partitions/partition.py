"""One partition that this broker leads: its log, what of it is visible, and who waits for it.

Everything here runs on the owner's thread; only sync jobs run elsewhere. At most one sync is under way,
and it begins at the end of the pass that asked for it, so that one pass is one group commit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec import Struct as Value

from ottla.clock import Clock
from ottla.errors import (
    DiskFull,
    FencedLeaderEpoch,
    LogClosed,
    OffsetOutOfRange,
    PartitionOffline,
    PolicyViolation,
    RecordTooLarge,
    Refusal,
    StorageError,
    StorageFault,
    UnknownLeaderEpoch,
)
from ottla.metadata.configs import TopicConfig
from ottla.partitions.sync_pool import Done, Job, SyncRunner
from ottla.partitions.timestamps import TimestampLimits
from ottla.partitions.unsynced import UnsyncedBytes
from ottla.partitions.waiters import OffsetWaiters, Settled, Watcher, Watchers
from ottla.partitions.watermarks import AcksAll, high_watermark, last_stable_offset
from ottla.records.batch import CONTROL_BIT, BatchHeader, Buffer, TimestampType, peek, restamp_append_time
from ottla.records.plain import Run
from ottla.scheduler import Scheduler
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochStart
from ottla.storage.log import Log
from ottla.storage.runs import Appended
from ottla.storage.segments import LogSlice
from ottla.storage.sync import SyncJob

UNWATCHED_SYNC_MS = 1_000
"""How long a sync may wait that nobody waits for: neither an acknowledgement nor a reader."""
RETRY_MS = 1_000
"""How long after a full disk the next sync is tried."""
NO_EPOCH = -1
ACKS_ALL, ACKS_LEADER = -1, 1

_logger = logging.getLogger(__name__)


class Written(Value, frozen=True, gc=False):
    """What a leader answers for a batch."""

    appended: Appended
    append_time_ms: int
    """The broker's time when the topic stamps records itself, else -1."""


class Read(NamedTuple):
    """What a fetch gets of one partition."""

    slice: LogSlice | None
    high_watermark: int
    last_stable_offset: int
    aborted: list[AbortedTransaction]
    """For read_committed: what the reader must skip in the slice's range."""


class Partition:
    """A partition's leader."""

    def __init__(
        self,
        log: Log,
        *,
        leader_epoch: int,
        config: TopicConfig,
        scheduler: Scheduler,
        syncs: SyncRunner,
        clock: Clock,
        unsynced: UnsyncedBytes,
        is_internal: bool = False,
    ) -> None:
        self.log = log
        self.is_internal = is_internal
        """Whether only the broker itself may write here."""
        self.leader_epoch = leader_epoch
        self._shown_offset = 0
        """Below it everything was visible once, when the page cache was enough for that; it stays so."""
        self._take(config)
        self.watchers = Watchers()
        self._scheduler = scheduler
        self._syncs = syncs
        self._clock = clock
        self._unsynced = unsynced
        self._durable = OffsetWaiters()
        self._job: SyncJob | None = None
        self._job_bytes = 0
        self._upkeep: deque[tuple[Job, Done]] = deque()
        """Jobs beside the syncs: the first is under way."""
        self._when_idle: list[Callable[[], None]] = []
        self._sync_asked = False
        self._flush_timer_set = False
        self._sync_timer_set = False
        self._bytes = 0
        """Appended since the last sync began."""
        self._flushed_at_offset = log.end_offset
        self.offline: Refusal | None = None
        """Why the partition cannot be used, when it cannot."""
        self._unreadable = ""
        self._full_at_offset = -1

    def _take(self, config: TopicConfig) -> None:
        """What the topic's settings come to here."""
        self.config = config
        """The settings; `configure` sets them anew when they change."""
        self.acks_all = AcksAll(config.acks_all)
        self._is_durable = self.acks_all is AcksAll.DISK
        self._is_stamping = config.timestamp_type is TimestampType.LOG_APPEND_TIME
        # A compacted topic's records are looked at one by one.
        self._takes_runs = not (self.is_internal or self._is_stamping or config.log.compact)
        self._timestamps = TimestampLimits(config)
        self.durable_acks: tuple[int, ...] = (ACKS_ALL,) if self._is_durable else ()
        """Which acknowledgements wait until the records are synced."""
        if config.flush_messages == 1:
            self.durable_acks = (ACKS_ALL, ACKS_LEADER)

    # --- what is visible -----------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        log = self.log
        watermark = high_watermark(self.acks_all, end_offset=log.end_offset, synced_offset=log.synced_offset)
        return max(watermark, self._shown_offset)

    @property
    def last_stable_offset(self) -> int:
        watermark = self.high_watermark
        return last_stable_offset(watermark, self.log.first_unstable_offset(watermark))

    def configure(self, config: TopicConfig) -> None:
        """Take new settings; they count from the next append on."""
        before = self.acks_all
        self._take(config)
        self.log.config = config.log
        if before is self.acks_all:
            return
        if before is AcksAll.OS:
            # What was seen is not taken back; what comes waits for the disk.
            self._shown_offset = self.log.end_offset
        if self.log.synced_offset < self.log.end_offset:
            self.ask_sync()
        self.watchers.wake()

    def watch(self, watcher: Watcher, place: int) -> None:
        """Tell a reader when there is more to see, by its own number; what is not yet durable is hurried on."""
        self.watchers.add((watcher, place))
        if self.acks_all is AcksAll.DISK and self.log.synced_offset < self.log.end_offset:
            self.ask_sync()

    def unwatch(self, watcher: Watcher, place: int) -> None:
        """Tell it no more; fine when it was not told before."""
        self.watchers.discard((watcher, place))

    def unreadable(self, fault: StorageError) -> PartitionOffline:
        """The refusal for a read that met damage. Only that read fails: the rest is served and written on."""
        reason = f"{self.log.directory} cannot be read there: {fault}"
        # A consumer asks again and again; that is no news.
        if reason != self._unreadable:
            self._unreadable = reason
            _logger.error("%s", reason)
        return PartitionOffline(reason)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client whose idea of the leader is not ours; -1 means that it has none."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        what = f"leader epoch {current_leader_epoch} was asked for, it is {self.leader_epoch}"
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(what)
        raise UnknownLeaderEpoch(what)

    def read(self, offset: int, *, bytes_max: int, committed_only: bool) -> Read:
        """What a consumer may see from an offset on. At least one batch, if there is one."""
        self.require_online()
        watermark = self.high_watermark
        if watermark < self.log.end_offset:
            self.ask_sync()
        stable = last_stable_offset(watermark, self.log.first_unstable_offset(watermark))
        end = stable if committed_only else watermark
        found = self.log.slice(offset=offset, bytes_max=bytes_max, end_offset=end)
        aborted: list[AbortedTransaction] = []
        if committed_only and found is not None:
            aborted = self.log.aborted_in(found, offset=offset, end_offset=end)
        return Read(found, watermark, stable, aborted)

    def look(self) -> Read:
        """As `read`, without records: for a fetch that has no room left."""
        self.require_online()
        watermark = self.high_watermark
        return Read(None, watermark, last_stable_offset(watermark, self.log.first_unstable_offset(watermark)), [])

    def end_of_epoch(self, epoch: int) -> EpochStart:
        """Up to where a leader epoch wrote, with the newest epoch at or below the one that was asked for."""
        end_offset, latest = self.log.end_offset, self.log.epochs.latest
        if not 0 <= epoch <= self.leader_epoch:
            return EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.leader_epoch or latest == UNDEFINED_EPOCH:
            # The present epoch ends where the log does, also while nothing has been written under it.
            return EpochStart(epoch, end_offset)
        if epoch > latest:
            return EpochStart(latest, end_offset)
        return self.log.epochs.end_offset(epoch, log_end_offset=end_offset)

    # --- appending -----------------------------------------------------------------------------------

    def append(self, batch: Buffer, header: BatchHeader) -> Written:
        """Append one checked batch. Raises a Refusal, or PartitionOffline when the disk fails."""
        if self.offline is not None:
            self.require_online()
        config = self.config
        size = len(batch)
        # A marker is never too large: without it the transaction could not end.
        if size > config.max_message_bytes and not header.is_control:
            raise RecordTooLarge(f"{size} bytes, max.message.bytes is {config.max_message_bytes}")
        append_time_ms = -1
        # What the broker writes for itself must not be refused because somebody has set the system's clock.
        if not (header.attributes & CONTROL_BIT or self.is_internal):
            now_ms = self._clock.now_ms()
            if self._is_stamping:
                append_time_ms = now_ms
                stamped = bytearray(batch)
                restamp_append_time(stamped, timestamp_ms=append_time_ms)
                batch, header = stamped, peek(stamped)
            else:
                age_ms = now_ms - header.max_timestamp
                if age_ms > config.timestamp_before_max_ms or -age_ms > config.timestamp_after_max_ms:
                    self._timestamps.check(header, now_ms)
        try:
            appended = self.log.append(batch, header, leader_epoch=self.leader_epoch)
        except (StorageFault, LogClosed) as error:
            raise self._refusal(error) from error
        if not appended.repeated:
            self._note_appended(size)
        return Written(appended, append_time_ms)

    def append_run(self, run: Run, *, now_ms: int) -> bool:
        """Append several plain batches with one write, checking them; false if it must be one by one."""
        if self.offline is not None or not self._takes_runs:
            return False
        timestamps = self._timestamps
        try:
            is_taken = self.log.append_run(
                run,
                leader_epoch=self.leader_epoch,
                oldest_ms=now_ms - timestamps.before_max_ms,
                newest_ms=now_ms + timestamps.after_max_ms,
                batch_bytes_max=self.config.max_message_bytes,
            )
        except (StorageFault, LogClosed) as error:
            raise self._refusal(error) from error
        if is_taken:
            self._note_appended(run.size)
        return is_taken

    def _refusal(self, error: StorageError) -> PartitionOffline:
        """What a producer is told when the disk fails; the partition goes offline, unless only space is lacking."""
        if isinstance(error, DiskFull):
            self._say_full(error)
            return PartitionOffline(f"the disk is full, nothing of the batch was kept: {error}")
        self._go_offline(error)
        return PartitionOffline(str(error))

    def _note_appended(self, size: int) -> None:
        """So many bytes more: see to it that they are synced, and seen."""
        self._bytes += size
        self._unsynced.add(self, size)
        if not self._is_durable:
            self._flush_by_policy()
            if self.watchers:
                self.watchers.wake()
        elif self.watchers or self._bytes > self._unsynced.bytes_max_per_partition:
            self.ask_sync()
        elif not self._sync_asked and not self._sync_timer_set:
            self._sync_timer_set = True
            self._scheduler.call_later(UNWATCHED_SYNC_MS, self._sync_by_time)

    def _say_full(self, error: DiskFull) -> None:
        """Once, however many producers try again; and again when there was room in between."""
        if self._full_at_offset != self.log.end_offset:
            self._full_at_offset = self.log.end_offset
            _logger.error(
                "%s: the disk is full (%s); writes are refused until there is room: free some, or shorten retention",
                self.log.directory,
                error,
            )

    def when_durable(self, end_offset: int, settled: Settled) -> None:
        """Call back once everything below `end_offset` survives a power loss."""
        if self.offline is not None:
            settled(self.offline)
        elif self.log.synced_offset >= end_offset:
            settled(None)
        else:
            self._durable.add(end_offset, settled)
            self.ask_sync()

    # --- syncing -------------------------------------------------------------------------------------

    def ask_sync(self) -> None:
        """Sync at the end of this pass, or as soon as the sync that is under way has ended."""
        if not self._sync_asked:
            self._sync_asked = True
            if self._job is None:
                self._scheduler.call_soon(self._begin_sync)

    def _flush_by_policy(self) -> None:
        config = self.config
        has_much = self._bytes > self._unsynced.bytes_max_per_partition
        if has_much or self.log.end_offset - self._flushed_at_offset >= config.flush_messages:
            self.ask_sync()
        elif config.flush_ms < 2**62 and not self._flush_timer_set:
            self._flush_timer_set = True
            self._scheduler.call_later(config.flush_ms, self._flush_by_time)

    def _sync_by_time(self) -> None:
        self._sync_timer_set = False
        if self.offline is None and self.log.synced_offset < self.log.end_offset:
            self.ask_sync()

    def _sync_again(self) -> None:
        """Whatever the failed sync had to do beside the records, as sealing segments, is to be done too."""
        self._sync_timer_set = False
        if self.offline is None:
            self.ask_sync()

    def _flush_by_time(self) -> None:
        self._flush_timer_set = False
        if self.offline is None:
            self.ask_sync()

    def _begin_sync(self) -> None:
        self._sync_asked = False
        if self.offline is not None or self._job is not None:
            return
        try:
            job = self.log.prepare_sync()
        except StorageError as error:
            self._go_offline(error)
            return
        if job is None:
            self._durable.reached(self.log.synced_offset)
            return
        self._job = job
        self._job_bytes, self._bytes = self._bytes, 0
        self._unsynced.begin(self, self._job_bytes)
        self._flushed_at_offset = job.end_offset
        self._syncs.submit(job, partial(self._end_sync, job))

    def _end_sync(self, job: SyncJob, fault: StorageFault | None) -> None:
        self._job = None
        if self.offline is not None:
            self._unsynced.end(self._job_bytes)
            self._tell_idle()
            return
        if fault is not None:
            self._bytes += self._job_bytes
            self._unsynced.fail(self._job_bytes)
            self.log.fail_sync(job, fault)
            if isinstance(fault, DiskFull):
                # Asked for while this one was under way: the retry is to begin it, so it counts as not asked.
                self._sync_asked = False
                self._say_full(fault)
                self._durable.fail(PartitionOffline(f"the disk is full: {fault}"))
                # The timer that would sync unasked is taken to be set, so that this one comes in its place.
                self._sync_timer_set = True
                self._scheduler.call_later(RETRY_MS, self._sync_again)
            else:
                self._go_offline(fault)
            self._tell_idle()
            return
        self._unsynced.end(self._job_bytes)
        self.log.complete_sync(job)
        self._durable.reached(self.log.synced_offset)
        if self.acks_all is AcksAll.DISK:
            self.watchers.wake()
        if self._sync_asked:
            self._scheduler.call_soon(self._begin_sync)
        self._tell_idle()

    # --- upkeep --------------------------------------------------------------------------------------

    def delete_records(self, before_offset: int, done: Done) -> None:
        """Raise the log start to an offset, at most the high watermark; a lower one than it is changes nothing."""
        self.require_online()
        if self.config.log.compact and not self.config.log.delete:
            raise PolicyViolation("records of a topic that is only compacted cannot be deleted; write tombstones")
        if not 0 <= before_offset <= self.high_watermark:
            raise OffsetOutOfRange(f"offset {before_offset}, the high watermark is {self.high_watermark}")
        # Done also where there is nothing to raise: an earlier try may have failed to make it durable.
        self.run(self.log.delete_records(max(before_offset, self.log.log_start_offset)), done)

    def run(self, job: Job, done: Done) -> None:
        """Run a job on the log's files off this thread. One after the other: two of them may write one file."""
        self._upkeep.append((job, done))
        if len(self._upkeep) == 1:
            self._syncs.submit(job, self._ran)

    def _ran(self, fault: StorageFault | None) -> None:
        _, done = self._upkeep.popleft()
        if self._upkeep:
            self._syncs.submit(self._upkeep[0][0], self._ran)
        done(fault)
        self._tell_idle()

    @property
    def is_busy(self) -> bool:
        """Whether a job touches the log's files."""
        return self._job is not None or bool(self._upkeep)

    def settle(self) -> None:
        """Sync what there is, whatever the policy: the partition is about to be closed."""
        if self.offline is None and self.log.synced_offset < self.log.end_offset:
            self.ask_sync()

    @property
    def is_settled(self) -> bool:
        """Whether all that can be is on the disk, no job touches the log's files and none is about to."""
        if self.is_busy or self.offline is not None:
            return not self.is_busy
        return not self._sync_asked and self.log.synced_offset == self.log.end_offset

    def when_idle(self, told: Callable[[], None]) -> None:
        """Call back once no job touches the log's files: before they may be taken away."""
        self._when_idle.append(told)
        self._tell_idle()

    def _tell_idle(self) -> None:
        if self._when_idle and not self.is_busy:
            waiting, self._when_idle = self._when_idle, []
            for told in waiting:
                told()

    def roll_if_expired(self) -> None:
        """Begin a new segment when all of the active one has outlived `retention.ms`, so that it can go."""
        config, active = self.config.log, self.log.segments[-1]
        is_old = config.retention_ms >= 0 and 0 <= active.max_timestamp_ms < self._clock.now_ms() - config.retention_ms
        if config.delete and is_old and self.high_watermark == self.log.end_offset:
            self.log.roll()
            self.ask_sync()

    # --- failing and ending --------------------------------------------------------------------------

    def _go_offline(self, cause: StorageError) -> None:
        if self.offline is None:
            reason = PartitionOffline(f"{self.log.directory} is offline: {cause}")
            _logger.error("%s", reason)
            # Not every fault has reached the log by itself, and one that is offline must not be closed as if in order.
            self.log.fail(cause)
            self._leave(reason)

    def _leave(self, reason: Refusal) -> None:
        self.offline = reason
        self._unsynced.drop(self, self._bytes)
        self._bytes = 0
        self._durable.fail(reason)
        self.watchers.wake()

    def fail(self, fault: StorageFault) -> None:
        """A job of the log failed: the partition goes offline until the log is reopened."""
        self.log.fail(fault)
        self._go_offline(fault)

    def retire(self, reason: Refusal) -> None:
        """The topic was deleted: whoever waits is told, and nothing more is taken."""
        self._leave(reason)

    def close(self) -> None:
        """Close the log in order; for any thread, once no sync is under way and nothing is appended any more."""
        if self.offline is not None:
            return
        # First, so that a timer that fires meanwhile begins nothing.
        self.offline = PartitionOffline(f"{self.log.directory}: the broker is closed")
        if self._job is not None:
            raise LogClosed(f"{self.log.directory}: a sync has not come to its end")
        self.log.close()

    def require_online(self) -> None:
        """Raise the reason when the partition cannot be used."""
        if self.offline is not None:
            raise self.offline
