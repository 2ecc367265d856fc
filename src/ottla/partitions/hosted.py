"""The partitions that this broker holds, opened when they are first used.

Follows the catalog: directories are made and removed, by jobs off the owner's thread, when a change that
asks for it is durable. One partition that cannot be opened is offline by itself; the others do not notice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ottla.clock import Clock
from ottla.errors import (
    DiskFull,
    InvalidTopicLayout,
    NotLeader,
    OttlaError,
    PartitionNotFound,
    PartitionOffline,
    Refusal,
    StorageError,
    StorageFault,
    TopicNotFound,
)
from ottla.metadata.catalog import Catalog
from ottla.metadata.changes import Change, PutBrokerConfigs, PutTopic, PutTopicConfigs, PutUnfinished, Topic, Work
from ottla.metadata.image import Image
from ottla.metadata.internal_topics import is_internal
from ottla.metadata.judgement import Judgement
from ottla.partitions.partition import Partition
from ottla.partitions.sync_pool import Done, Job, SyncRunner
from ottla.partitions.unsynced import UnsyncedBytes
from ottla.scheduler import Scheduler
from ottla.storage.disk import Disk
from ottla.storage.layout import DataDirectory, PartitionMetadata
from ottla.storage.log import Log
from ottla.storage.removal import ReleaseJob

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlaceJob:
    """Makes the directories of new partitions."""

    directory: DataDirectory
    topic: str
    topic_id: UUID
    partitions: range

    def run(self) -> None:
        for index in self.partitions:
            # A topic that grows while it is being made is asked for from its first partition on.
            if not self._is_there(index):
                self.directory.create_partition(self.topic, index, PartitionMetadata(self.topic_id))

    def _is_there(self, index: int) -> bool:
        try:
            return self.directory.read_metadata(self.topic, index).topic_id == self.topic_id
        except InvalidTopicLayout:
            return False


@dataclass(slots=True)
class RemoveJob:
    """Takes the directories of a deleted topic away, then removes what is in them."""

    disk: Disk
    directory: DataDirectory
    topic: str
    partitions: Sequence[int]
    new_id: Callable[[], UUID]
    releases: Sequence[ReleaseJob] = ()
    """For the logs that were open: the last to close a file is the one who waits until its space is free."""
    aside: list[str] = field(default_factory=list)

    def run(self) -> None:
        for index in self.partitions:
            if self.disk.is_directory(self.directory.partition_path(self.topic, index)):
                self.aside.append(self.directory.set_aside(self.topic, index, deletion_id=self.new_id()))
        for path in self.aside:
            self.disk.remove_directory(path)
        for release in self.releases:
            release.run()


class _Task(NamedTuple):
    """A job on a topic's directories."""

    job: Job
    done: Done
    after: Sequence[Partition] = ()
    """Partitions whose own jobs must have ended: they would write into a directory of the same name made anew."""


@dataclass(slots=True)
class _Placing:
    """A topic whose directories are being made, or could not be."""

    job: PlaceJob
    """The last one; it does the work of those before it too."""
    first: int
    """The first partition that is not there yet."""
    under_way: int = 0
    fault: StorageFault | None = None


class HostedPartitions:
    """Partitions by topic and number."""

    def __init__(
        self,
        disk: Disk,
        directory: DataDirectory,
        catalog: Catalog,
        *,
        scheduler: Scheduler,
        syncs: SyncRunner,
        clock: Clock,
        new_id: Callable[[], UUID],
    ) -> None:
        configs = catalog.broker_configs()
        self.unsynced = UnsyncedBytes(
            bytes_max=configs.integer("ottla.unsynced.bytes.max"),
            bytes_max_per_partition=configs.integer("ottla.unsynced.bytes.per.partition"),
        )
        self._disk = disk
        self._directory = directory
        self._catalog = catalog
        self._scheduler = scheduler
        self._syncs = syncs
        self._clock = clock
        self._new_id = new_id
        self._is_closed = False
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._failed: dict[tuple[str, int], PartitionOffline] = {}
        self._tried: set[tuple[str, int]] = set()
        """What `open_next` has come to."""
        self._placing: dict[UUID, _Placing] = {}
        self._when_placed: dict[UUID, list[Callable[[OttlaError | None], None]]] = {}
        self._work: dict[str, deque[_Task]] = {}
        """What is to be done to a topic's directories, one thing after the other."""
        catalog.listen(self._follow)

    # --- finding -------------------------------------------------------------------------------------

    def by_name(self, topic: str, partition: int) -> Partition:
        """The partition, or a Refusal that says why it cannot be had."""
        found = self._by_name.get((topic, partition))
        return found if found is not None else self._open(self._catalog.image.topic(topic), partition)

    def by_id(self, topic_id: bytes, partition: int) -> Partition:
        """The same by the topic's id."""
        found = self._by_id.get((topic_id, partition))
        if found is not None:
            return found
        return self._open(self._catalog.image.topic_by_id(UUID(bytes=topic_id)), partition)

    def __iter__(self) -> Iterator[tuple[tuple[str, int], Partition]]:
        """Those that are open."""
        return iter(tuple(self._by_name.items()))

    def leader_epoch(self, topic: Topic, partition: int) -> int:
        """The leader's epoch, without opening anything."""
        found = self._by_name.get((topic.name, partition))
        return topic.partitions[partition].leader_epoch if found is None else found.leader_epoch

    def offline_reason(self, topic: str, partition: int) -> str | None:
        """Why a partition cannot be served, as far as is known."""
        if topic in self._catalog.offline:
            return str(self._catalog.offline[topic])
        found = self._by_name.get((topic, partition))
        reason: OttlaError | None = self._failed.get((topic, partition)) if found is None else found.offline
        known = self._catalog.image.topics.get(topic)
        placing = None if known is None else self._placing.get(known.topic_id)
        if placing is not None and partition >= placing.first:
            reason = placing.fault
        return None if reason is None else str(reason)

    def _open(self, topic: Topic, partition: int) -> Partition:
        key = (topic.name, partition)
        if self._is_closed:
            # The directory may have another owner by now.
            raise PartitionOffline(f"{topic.name}-{partition}: the broker is closed")
        if not 0 <= partition < len(topic.partitions):
            raise PartitionNotFound(*key)
        if topic.name in self._catalog.offline:
            raise PartitionOffline(f"topic {topic.name!r} is offline: {self._catalog.offline[topic.name]}")
        placing = self._placing.get(topic.topic_id)
        if placing is not None and partition >= placing.first:
            if placing.fault is not None:
                raise PartitionOffline(f"{topic.name}-{partition} could not be made: {placing.fault}")
            raise NotLeader(f"{topic.name}-{partition} is being made")
        if key in self._failed:
            raise self._failed[key]
        config = self._catalog.topic_config(topic.name)
        try:
            log = Log.open(self._disk, self._directory.partition_path(*key), config=config.log, clock=self._clock)
            epoch = self._epoch_of(topic, partition, log)
        except StorageError as error:
            offline = self._failed[key] = PartitionOffline(f"{topic.name}-{partition} is offline: {error}")
            _logger.error("%s", offline)
            raise offline from error
        opened = self._by_name[key] = self._by_id[topic.topic_id.bytes, partition] = Partition(
            log,
            leader_epoch=epoch,
            config=config,
            scheduler=self._scheduler,
            syncs=self._syncs,
            clock=self._clock,
            unsynced=self.unsynced,
            is_internal=is_internal(topic.name),
        )
        return opened

    def _epoch_of(self, topic: Topic, partition: int, log: Log) -> int:
        """After an unclean stop offsets may be given out anew, so the leader is a new one."""
        told = topic.partitions[partition].leader_epoch
        epoch = max(told, log.epochs.latest)
        if not log.recovery.clean:
            epoch += 1
            # Into the log too: it may be closed in order before the metadata have it, and would then look clean.
            log.begin_epoch(epoch)
            # Without space the next sync does it.
            with suppress(DiskFull):
                log.sync()
        if epoch != told:
            self._catalog.raise_epochs(topic.name, {partition: epoch}, _log_failure)
        return epoch

    # --- starting and ending ---------------------------------------------------------------------------

    def recover_all(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Open everything: after an unclean stop, before the first client may connect."""
        wanted = [
            (topic, index) for topic in self._catalog.image.topics.values() for index in range(len(topic.partitions))
        ]
        for done, (topic, index) in enumerate(wanted):
            try:
                self._open(topic, index)
            except Refusal as error:
                _logger.warning("%s", error)
            progress(done + 1, len(wanted))

    def open_next(self) -> bool:
        """Open one partition that nobody has used yet; false when there is none left to try.

        Retention and compaction look at open partitions, so after a clean start all are opened by and by.
        """
        for topic in self._catalog.image.topics.values():
            for index in range(len(topic.partitions)):
                key = (topic.name, index)
                if key in self._by_name or key in self._tried:
                    continue
                self._tried.add(key)
                with suppress(Refusal):
                    self._open(topic, index)
                return True
        return False

    def reopen_failed(self) -> None:
        """Try again what could not be opened, or went offline, since: a disk may be back."""
        self._failed.clear()
        for (topic, index), partition in tuple(self._by_name.items()):
            if partition.offline is not None and not partition.is_busy:
                self._forget(topic, index)
                try:
                    partition.log.close()
                except StorageError as error:
                    # It is opened anew all the same: that finds out what is left.
                    partition.log.fail(error)
        for topic_id, placing in self._placing.items():
            if placing.fault is not None and not placing.under_way:
                self._begin_placing(topic_id, placing)

    def finish_directories(self, judgement: Judgement) -> None:
        """At a start: do what a crash kept from being done, here and now."""
        for topic, index, _ in judgement.to_remove:
            self._directory.delete_partition(topic, index, deletion_id=self._new_id())
        for topic, index, topic_id in judgement.to_place:
            self._directory.create_partition(topic, index, PartitionMetadata(topic_id))
        for node_id, topic_id in self._catalog.image.unfinished:
            if node_id == self._catalog.node_id:
                self._catalog.placed(topic_id, _log_failure)

    def close(self) -> bool:
        """Close every log in order; whether all could be, so that a start need not look. No sync may be under way."""
        self._is_closed = is_clean = True
        for _, partition in self:
            is_clean = is_clean and partition.offline is None
            try:
                partition.close()
            except StorageError as error:
                is_clean = False
                _logger.error(
                    "%s could not be closed in order, the next start recovers it: %s", partition.log.directory, error
                )
        self._by_name.clear()
        self._by_id.clear()
        return is_clean

    # --- following the catalog -------------------------------------------------------------------------

    def when_placed(self, topic_id: UUID, settled: Callable[[OttlaError | None], None]) -> None:
        """Call back once the directories of a topic are there, or could not be made."""
        placing = self._placing.get(topic_id)
        if placing is not None and placing.under_way:
            self._when_placed.setdefault(topic_id, []).append(settled)
        else:
            settled(None if placing is None else placing.fault)

    def _follow(self, image: Image, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case PutUnfinished(unfinished=work) if work.node_id == self._catalog.node_id:
                    indexes = range(work.start, work.end)
                    if work.work is Work.PLACE:
                        self._place(work.topic, work.topic_id, indexes)
                    else:
                        self._remove(work.topic, work.topic_id, indexes)
                case PutTopicConfigs(name=name):
                    self._reconfigure(name)
                case PutBrokerConfigs():
                    self._reconfigure(None)
                case PutTopic(topic=topic):
                    self._raise_epochs(topic)

    def _place(self, topic: str, topic_id: UUID, indexes: range) -> None:
        job = PlaceJob(self._directory, topic, topic_id, indexes)
        placing = self._placing.setdefault(topic_id, _Placing(job, indexes.start))
        placing.job = job
        placing.first = min(placing.first, indexes.start)
        self._begin_placing(topic_id, placing)

    def _begin_placing(self, topic_id: UUID, placing: _Placing) -> None:
        placing.under_way += 1
        self._do(placing.job.topic, _Task(placing.job, partial(self._placed, topic_id)))

    def _placed(self, topic_id: UUID, fault: StorageFault | None) -> None:
        placing = self._placing[topic_id]
        placing.under_way -= 1
        # Each job does the work of those before it too, so the last one's word counts.
        placing.fault = fault
        if placing.under_way:
            return
        if fault is None:
            del self._placing[topic_id]
            self._catalog.placed(topic_id, _log_failure, end=placing.job.partitions.stop)
        else:
            _logger.error("a topic's directories could not be made: %s", fault)
            if topic_id not in self._catalog.image.topics_by_id:
                del self._placing[topic_id]
        for settled in self._when_placed.pop(topic_id, []):
            settled(fault)

    def _remove(self, topic: str, topic_id: UUID, indexes: range) -> None:
        retired = []
        for index in indexes:
            partition = self._by_name.get((topic, index))
            if partition is not None:
                self._forget(topic, index)
                partition.retire(TopicNotFound(topic))
                retired.append(partition)
            self._failed.pop((topic, index), None)
        if topic_id in self._placing and not self._placing[topic_id].under_way:
            del self._placing[topic_id]
        releases = [partition.log.forget() for partition in retired]
        job = RemoveJob(self._disk, self._directory, topic, indexes, self._new_id, releases)
        self._do(topic, _Task(job, partial(self._removed, topic_id), retired))

    def _removed(self, topic_id: UUID, fault: StorageFault | None) -> None:
        if fault is None:
            self._catalog.removed(topic_id, _log_failure)
        else:
            _logger.error("a deleted topic's directories could not be removed, the next start does it: %s", fault)

    def _do(self, topic: str, task: _Task) -> None:
        """One task after the other for each topic: a topic may be deleted and made again at once."""
        queue = self._work.setdefault(topic, deque())
        queue.append(task)
        if len(queue) == 1:
            self._begin(topic, task)

    def _begin(self, topic: str, task: _Task) -> None:
        busy = [partition for partition in task.after if partition.is_busy]

        def idle() -> None:
            while busy:
                partition = busy.pop()
                if partition.is_busy:
                    partition.when_idle(idle)
                    return
            self._syncs.submit(task.job, partial(self._did, topic))

        idle()

    def _did(self, topic: str, fault: StorageFault | None) -> None:
        queue = self._work[topic]
        task = queue.popleft()
        if queue:
            self._begin(topic, queue[0])
        else:
            del self._work[topic]
        task.done(fault)

    def _reconfigure(self, name: str | None) -> None:
        """Hand new settings to the open partitions of one topic, or of all."""
        for (topic, _), partition in self:
            if name is None or topic == name:
                partition.configure(self._catalog.topic_config(topic))

    def _raise_epochs(self, topic: Topic) -> None:
        for index, told in enumerate(topic.partitions):
            partition = self._by_name.get((topic.name, index))
            if partition is not None:
                partition.leader_epoch = max(partition.leader_epoch, told.leader_epoch)

    def _forget(self, topic: str, index: int) -> None:
        partition = self._by_name.pop((topic, index))
        self._by_id = {key: found for key, found in self._by_id.items() if found is not partition}


def _log_failure(outcome: object) -> None:
    if isinstance(outcome, OttlaError):
        _logger.error("a change of the metadata failed: %s", outcome)
