"""A partition's log: append, read, sync, and keep in bounds.

Offsets are never reused or renumbered. What a sync has covered survives a power loss; what is beyond it
may be lost, from the end backwards, and nothing else. The log is synchronous and has one owner; only a
`SyncJob` may run on another thread. It knows no topics, no network and no watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.clock import Clock
from ottla.errors import DiskFull, InvalidBatch, LogClosed, RecordTooLarge, StorageError, StorageFault
from ottla.protocol.wire import COPIED_BYTES_MAX
from ottla.records.batch import (
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    OFFSET_DELTA_MAX,
    PREFIX_SIZE,
    BatchHeader,
    Buffer,
    check,
    prefix,
    walk,
)
from ottla.records.control import Marker, parse_marker
from ottla.records.plain import Run
from ottla.storage import producer_snapshot, retention
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.checkpoint import encode_epochs, write_atomically
from ottla.storage.compaction import CompactionResult
from ottla.storage.compaction_plan import CompactionPlan
from ottla.storage.compaction_turn import CompactionTurn
from ottla.storage.disk import Disk
from ottla.storage.ends import LOOK_FIRST
from ottla.storage.log_config import SEGMENT_BYTES_MAX, LogConfig
from ottla.storage.producer_replay import aborted_in, producers_at, remove_snapshots, replay_batch
from ottla.storage.readable_log import ReadableLog
from ottla.storage.recovery import EPOCHS_FILE, Recovery, RecoveryReport, note_failure
from ottla.storage.removal import ReleaseJob, RemovalJob, write_log_start
from ottla.storage.retention import SegmentFacts
from ottla.storage.rolling import look_again, roll_is_due
from ottla.storage.runs import Appended, headers_of
from ottla.storage.segment import SNAPSHOT_SUFFIX, Segment, file_name
from ottla.storage.segments import Segments
from ottla.storage.swap import SwapJob
from ottla.storage.sync import PendingSync, SyncJob, seal_segments

_logger = logging.getLogger(__name__)


class Log(ReadableLog):
    """One partition's log. Use `Log.open`."""

    def __init__(self, disk: Disk, directory: str, *, config: LogConfig, clock: Clock) -> None:
        self._disk = disk
        self.directory = directory
        self._clock = clock
        self._config = config
        opened = Recovery(disk, directory, config, now_ms=clock.now_ms()).run()
        self._segments = Segments(opened.segments)
        self.epochs = opened.epochs
        self.producers = opened.producers
        self.recovery: RecoveryReport = opened.report
        self.log_start_offset = opened.log_start_offset
        self.end_offset = self._segments.active.end_offset
        self.synced_offset = self.end_offset
        """Everything below this offset survives a power loss."""
        self._pending = PendingSync()
        self._compaction = CompactionTurn()
        self._epoch = self.epochs.latest
        self._failure: BaseException | None = None
        self._closed = False

    @classmethod
    def open(cls, disk: Disk, directory: str, *, config: LogConfig, clock: Clock) -> Log:
        """Open the log in a directory, which is made if it is missing, and recover it if it was not closed."""
        return cls(disk, directory, config=config, clock=clock)

    @property
    def config(self) -> LogConfig:
        """The settings; new ones count from the next append on."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segments.active.look_from_ms = LOOK_FIRST

    # --- facts ---------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._segments.size

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is the active segment."""
        return tuple(self._segments)

    # --- appending -----------------------------------------------------------------------------------

    def append(self, batch: Buffer, header: BatchHeader | None = None, *, leader_epoch: int) -> Appended:
        """Append one batch as the leader, giving it the next offsets.

        `header` is what `check` returned for it; without one the batch is checked here. Nothing is
        changed when this raises a Refusal or DiskFull.
        """
        if self._closed:
            self._require_open()
        if header is None:
            header = check(batch)
        length, delta, producer_id = header.length, header.last_offset_delta, header.producer_id
        if length + LOG_OVERHEAD != len(batch) or header.record_count != delta + 1:
            raise InvalidBatch(f"{len(batch)} bytes are not one batch of {header.record_count} contiguous records")
        marker: Marker | None = None
        if producer_id >= 0:
            if header.is_control:
                marker = parse_marker(batch, checked=True)
                if marker is not None:
                    self.producers.check_marker(header, marker)
            else:
                repeated = self.producers.check_batch(header)
                if repeated is not None:
                    return Appended(repeated.first_offset, repeated.last_offset, True)
        first, last = self.end_offset, self.end_offset + delta
        parts: tuple[Buffer, ...]
        if length <= COPIED_BYTES_MAX and type(batch) is not memoryview:
            parts = (prefix(first, length, leader_epoch) + batch[PREFIX_SIZE:],)
        else:
            parts = (prefix(first, length, leader_epoch), memoryview(batch)[PREFIX_SIZE:])
        self._write(parts, header, first, last)
        if leader_epoch != self._epoch:
            self._pending.epochs_changed |= self.epochs.assign(leader_epoch, start_offset=first)
            self._epoch = leader_epoch
        if producer_id >= 0:
            if marker is not None:
                self._note_aborted(self.producers.replay_marker(header, marker, offset=first))
            elif not header.is_control:
                self.producers.replay_batch(header, base_offset=first)
        return Appended(first, last)

    def append_replicated(self, data: Buffer) -> int:
        """Append whole batches as the leader wrote them, with its offsets; returns how many.

        A cut-off last batch is left out. A batch below the end of the log raises InvalidBatch.
        """
        self._require_open()
        count = 0
        for position, _ in walk(data):
            header = check(data, position)
            if header.base_offset < self.end_offset:
                raise InvalidBatch(f"offset {header.base_offset} came, the log ends at {self.end_offset}")
            batch = memoryview(data)[position : position + header.size]
            self._write((batch,), header, header.base_offset, header.last_offset)
            self._pending.epochs_changed |= self.epochs.assign(header.leader_epoch, start_offset=header.base_offset)
            self._note_aborted(replay_batch(self.producers, header, batch))
            count += 1
        return count

    def append_run(self, run: Run, *, leader_epoch: int, oldest_ms: int, newest_ms: int, batch_bytes_max: int) -> bool:
        """Append plain batches with one write, as `append` would; false where they have to be looked at one by one."""
        if self._closed:
            self._require_open()
        active = self._segments.active
        if (
            leader_epoch != self._epoch
            or active.end_offset != self.end_offset
            or not active.place(
                run,
                leader_epoch=leader_epoch,
                oldest_ms=oldest_ms,
                newest_ms=newest_ms,
                batch_bytes_max=batch_bytes_max,
                bytes_max=self._config.segment_bytes,
            )
        ):
            return False
        if (headers := headers_of(run, self.producers) if run.has_producer else ()) is None:
            return False
        try:
            active.write(run)
        except StorageFault as error:
            self._fail_unless_full(error)
            raise
        self.end_offset = run.end_offset
        for header, offset in headers:
            self.producers.replay_batch(header, base_offset=offset)
        run.log_start_offset = self.log_start_offset
        return True

    def _write(self, parts: tuple[Buffer, ...], header: BatchHeader, first: int, last: int) -> None:
        size = header.length + LOG_OVERHEAD
        newest_ms = header.max_timestamp if header.record_count else NO_TIMESTAMP
        active = self._segments.active
        if (
            active.size + size > self._config.segment_bytes
            or newest_ms >= active.look_from_ms
            or last - active.base_offset > OFFSET_DELTA_MAX
        ):
            active = self._make_room(active, header, first=first, last=last)
        try:
            active.append(parts, first=first, last=last, newest_ms=newest_ms, size=size)
        except StorageFault as error:
            self._fail_unless_full(error)
            raise
        self.end_offset = last + 1

    def _note_aborted(self, transaction: AbortedTransaction | None) -> None:
        if transaction is not None:
            self._segments.active.note_aborted(transaction)

    def begin_epoch(self, epoch: int) -> None:
        """Note a new leader epoch before anything is written under it; durable with the next sync."""
        self._require_open()
        self._pending.epochs_changed |= self.epochs.assign(epoch, start_offset=self.end_offset)
        self._epoch = self.epochs.latest

    # --- segments ------------------------------------------------------------------------------------

    def _make_room(self, active: Segment, header: BatchHeader, *, first: int, last: int) -> Segment:
        """An active segment that can take the batch."""
        if header.size > SEGMENT_BYTES_MAX:
            raise RecordTooLarge(f"a batch of {header.size} bytes, a segment holds {SEGMENT_BYTES_MAX} at most")
        if active.seal is not None:
            self._unseal(active)
        is_out_of_reach = last - active.base_offset > OFFSET_DELTA_MAX
        if is_out_of_reach or (
            active.size and roll_is_due(active, header, self._config, last_offset=last, clock=self._clock)
        ):
            # After a gap too wide for an index entry, the new segment must begin with the batch itself.
            base_offset = self.end_offset if last - self.end_offset <= OFFSET_DELTA_MAX else first
            self._roll_to(base_offset)
        active = self._segments.active
        look_again(active, self._config, last_offset=last)
        return active

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty."""
        self._require_open()
        if self._segments.active.size:
            self._roll_to(self.end_offset)

    def _roll_to(self, base_offset: int) -> None:
        old = self._segments.active
        if old.seal is not None:
            # The mark of a clean stop must not outlive what is written from here on.
            self._unseal(old)
        new = self._new_segment(base_offset)
        # The range up to the next segment is the earlier one's, also where a gap is.
        old.end_offset = base_offset
        snapshot = producer_snapshot.encode(self.producers.entries)
        self._pending.note_rolled(old, snapshot=(new.path(SNAPSHOT_SUFFIX), snapshot))

    def _new_segment(self, base_offset: int) -> Segment:
        segment = self._segment(base_offset)
        segment.create()
        self._segments.add(segment)
        self._pending.names_changed = True
        return segment

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._disk,
            self.directory,
            base_offset,
            interval_bytes=self._config.index_interval_bytes,
            now_ms=self._clock.now_ms(),
            aborted_of=lambda segment: aborted_in(self._disk, self.directory, self.segments, segment),
        )

    def _unseal(self, segment: Segment) -> None:
        """Before a segment is written to, nothing may say that it is finished."""
        with self._offline_on_fault():
            segment.unseal()
            self._disk.sync_directory(self.directory)

    # --- durability ----------------------------------------------------------------------------------

    def prepare_sync(self) -> SyncJob | None:
        """A job that makes everything appended so far durable, or None when it is.

        One job at a time: `complete_sync` or `fail_sync` must follow before the next.
        """
        self._require_open()
        return self._pending.prepare(
            self._disk,
            self.directory,
            end_offset=self.end_offset,
            active=self._segments.active.file if self.end_offset != self.synced_offset else None,
            epochs=self._epochs_file,
            now_ms=self._clock.now_ms(),
        )

    def complete_sync(self, job: SyncJob) -> None:
        """The job has run: what it covered is durable."""
        self._pending.complete(job)
        self.synced_offset = max(self.synced_offset, job.end_offset)

    def fail_sync(self, job: SyncJob, error: StorageFault) -> None:
        """The job raised. For lack of space it can be tried again; any other failure takes the log offline.

        A failed sync is never repeated: the kernel has given up the bytes and calls them clean.
        """
        self._pending.put_back(job)
        self._fail_unless_full(error)

    def _fail_unless_full(self, error: StorageFault) -> None:
        if not isinstance(error, DiskFull):
            self.fail(error)

    def _epochs_file(self) -> tuple[str, bytes]:
        return f"{self.directory}/{EPOCHS_FILE}", encode_epochs(self.epochs.entries)

    def sync(self) -> None:
        """Make everything appended so far durable, here and now."""
        job = self.prepare_sync()
        if job is None:
            return
        try:
            job.run()
        except StorageFault as error:
            self.fail_sync(job, error)
            raise
        self.complete_sync(job)

    @contextmanager
    def _offline_on_fault(self) -> Iterator[None]:
        """Half a change is no state to go on from: reopening the log brings it into order."""
        try:
            yield
        except StorageFault as error:
            self.fail(error)
            raise

    def fail(self, error: StorageError) -> None:
        """Go offline, and leave word for the next opening that the page cache may show what the disk lacks."""
        if self._closed:
            return
        self._failure = error
        self._closed = True
        note_failure(self._disk, self.directory, error)

    def _require_open(self) -> None:
        if self._failure is not None:
            raise LogClosed(f"{self.directory}: offline after a disk fault ({self._failure}); reopen it to recover")
        if self._closed:
            raise LogClosed(f"{self.directory}: the log is closed")

    def close(self) -> None:
        """Make everything durable and leave the mark of a clean stop, so that the next opening reads nothing."""
        if not self._closed:
            self.sync()
            if self._segments.active.seal is None:
                snapshot = producer_snapshot.encode(self.producers.entries)
                path = f"{self.directory}/{file_name(self.end_offset, SNAPSHOT_SUFFIX)}"
                now_ms, files = self._clock.now_ms(), [(path, snapshot)]
                active = [self._segments.active]
                seal_segments(self._disk, self.directory, active, now_ms=now_ms, small_files=files, closed=True)
        self._closed = True
        for segment in self._segments:
            segment.release()

    def forget(self) -> ReleaseJob:
        """The directory is about to be removed: nothing is used any more. The job lets go of the files."""
        self._closed = True
        return ReleaseJob(list(self._segments))

    # --- bounds --------------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> RemovalJob:
        """Raise the log start; segments that lie wholly below it go. Durable once the job has run."""
        self._require_readable(before_offset)
        return self._removal(before_offset, retention.below(self._removable(), before_offset))

    def apply_retention(self, *, below_offset: int) -> RemovalJob | None:
        """Drop sealed segments that are too old or too much; the job removes their files.

        Nothing at or beyond `below_offset`, the high watermark, goes.
        """
        self._require_open()
        removable = self._removable()
        count = retention.expired(
            removable,
            self._config,
            now_ms=self._clock.now_ms(),
            log_bytes=self.size,
            below_offset=below_offset,
        )
        count = max(count, retention.below(removable, self.log_start_offset))
        if not count:
            return None
        return self._removal(max(self.log_start_offset, self._segments[count].base_offset), count)

    def _removable(self) -> list[SegmentFacts]:
        """What may be removed now: nothing while compacted segments are put in the place of others."""
        return [] if self._compaction.is_swapping else self._segments.facts()

    def _removal(self, log_start_offset: int, count: int) -> RemovalJob:
        self.log_start_offset = max(self.log_start_offset, log_start_offset)
        self._pending.epochs_changed |= self.epochs.truncate_start(self.log_start_offset)
        removed = [self._segments.pop_first() for _ in range(count)]
        first = self._segments[0].base_offset
        return RemovalJob(self._disk, self.directory, self.log_start_offset, removed, first)

    def truncate_to(self, offset: int) -> None:
        """Forget everything from `offset` on, and a batch that reaches across it; no sync may be under way.

        Durable when this returns.
        """
        self._require_readable(offset)
        assert not self._compaction.is_swapping, "a log is not truncated while segments are swapped"
        target = self._segments[self._segments.index_of(offset)]
        position = target.position_of(offset)
        if position < target.size:
            offset = min(offset, target.header_at(position).base_offset)
        if offset >= self.end_offset:
            return
        if offset < self.log_start_offset:
            # Records were deleted up to the middle of a batch, and now the rest of it goes too.
            self.restart_at(self.log_start_offset)
            return
        self._pending.forget_from(target.base_offset)
        with self._offline_on_fault():
            if target.seal is not None:
                self._unseal(target)
            while self._segments.active is not target:
                self._segments.pop_last().remove()
            # The segments behind must be gone before this one is cut, or a crash would leave a gap.
            self._disk.sync_directory(self.directory)
            target.cut(position=position, end_offset=offset)
            self.end_offset = offset
            self.synced_offset = min(self.synced_offset, offset)
            self._forget_beyond(offset)

    def restart_at(self, offset: int) -> None:
        """Drop the whole log and begin again at an offset, as a follower does that was left behind."""
        self._require_open()
        self._pending.forget_from(0)
        with self._offline_on_fault():
            # Once this is durable, recovery knows that nothing below it counts.
            write_log_start(self._disk, self.directory, offset)
            while len(self._segments):
                self._segments.pop_last().remove()
            self._new_segment(offset)
            self._disk.sync_directory(self.directory)
            self.log_start_offset = self.end_offset = self.synced_offset = offset
            self._forget_beyond(0)

    def _forget_beyond(self, offset: int) -> None:
        """After a truncation: epochs, snapshots and producers know nothing beyond `offset`."""
        # Before the file below is written: that syncs the directory, so that no snapshot comes back.
        remove_snapshots(self._disk, self.directory, beyond=offset)
        self.epochs.truncate_end(offset)
        self._epoch = self.epochs.latest
        write_atomically(self._disk, *self._epochs_file())
        self.producers = producers_at(self._disk, self.directory, self.segments, offset)

    # --- upkeep --------------------------------------------------------------------------------------

    def plan_compaction(self, *, high_watermark: int) -> CompactionPlan | None:
        """What there is to compact now; `compaction.compact` does it, in another process if need be."""
        self._require_open()
        return self._compaction.plan(
            self._segments,
            self._config,
            now_ms=self._clock.now_ms(),
            first_unstable_offset=self.first_unstable_offset(high_watermark),
            high_watermark=high_watermark,
        )

    def install_compaction(self, planned: CompactionPlan, result: CompactionResult) -> SwapJob | None:
        """A job that puts compacted segments in place; None, and nothing changes, when the log has moved on.

        Until `complete_compaction` readers see the segments as they were.
        """
        self._require_open()
        return self._compaction.install(self._disk, self.directory, self._segments, planned, result)

    def complete_compaction(self, job: SwapJob) -> ReleaseJob:
        """The swap has run: from now on the compacted segments are read. The new job lets go of the old ones."""
        replaced: list[Segment] = []
        for base_offset, seal in job.seals.items():
            segment = self._segment(base_offset)
            segment.adopt(seal)
            replaced += self._segments.replace_range(segment)
        self._compaction.complete(job)
        return ReleaseJob(replaced)

    def expire_producers(self) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`; returns how many."""
        return self.producers.expire(now_ms=self._clock.now_ms(), expiration_ms=self._config.producer_id_expiration_ms)

    def release(self) -> None:
        """Let go of descriptors and indexes of sealed segments; they come back at the next use."""
        for segment in self.segments[:-1]:
            segment.release()
