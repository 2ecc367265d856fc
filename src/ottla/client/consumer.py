"""The consumer: which partitions are read, from where, and how records get out.

Coroutines that await the transport alone, so the same code serves both faces; see `transport`. Knows no
groups: partitions are those of the topics subscribed to, or the ones assigned.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ottla.client.cluster import Cluster
from ottla.client.cursors import Cursor, FairTaker
from ottla.client.errors import ClientClosed, ConcurrentUse, NoGroup
from ottla.client.fetching import Fetcher
from ottla.client.offsets import topic_with
from ottla.client.settings import ConsumerSettings
from ottla.client.values import OffsetSpec, Record, TopicPartition, partitions_named
from ottla.errors import InvalidRequest

QUIET_MS = 10
"""Partitions with nothing fetched are looked at this often while others still have records to give out."""
SLICE_MS = 1_000
"""Waits without an end of their own are taken in such slices, to notice that the consumer was closed."""


class AsyncConsumer:
    """Reads records. Belongs to one task or thread at a time."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._topics: tuple[str, ...] = ()
        """What is subscribed to; empty when partitions were assigned."""
        self._taker = FairTaker()
        self._use = threading.Lock()
        self._closed = False
        self._fetcher = Fetcher(cluster, settings)

    # --- what is read --------------------------------------------------------------------------------

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Read all partitions of these topics, and those that are added later."""
        if isinstance(topics, str):
            topics = [topics]
        with self._exclusive():
            wanted: list[TopicPartition] = []
            for name in topics:
                wanted += (await self._cluster.topic(name)).keys
            self._assign(wanted)
            self._topics = tuple(topics)

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions."""
        with self._exclusive():
            wanted = partitions_named(partitions)
            deadline_ms = self._cluster.ticks.now_ms() + self._cluster.settings.request_timeout_ms
            for key in wanted:
                await topic_with(self._cluster, key, deadline_ms)
            self._assign(wanted)
            self._topics = ()

    def _assign(self, wanted: Iterable[TopicPartition]) -> None:
        """Those that stay keep their place."""
        self._cursors = {key: self._cursors.get(key) or self._new_cursor(key) for key in wanted}

    def _new_cursor(self, key: TopicPartition) -> Cursor:
        cursor = Cursor(key, wanted=self._settings.start_spec)
        if self._settings.start_offset is not None:
            cursor.seek(self._settings.start_offset, sought=True)
        return cursor

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return list(self._cursors)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give out nothing of these partitions (none named: of all) until `resume`."""
        for cursor in self._named(partitions):
            cursor.paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        for cursor in self._named(partitions):
            cursor.paused = False

    def _named(self, partitions: Sequence[tuple[str, int]]) -> list[Cursor]:
        if not partitions:
            return list(self._cursors.values())
        return [self._cursor(topic, partition) for topic, partition in partitions]

    def _cursor(self, topic: str, partition: int) -> Cursor:
        cursor = self._cursors.get(TopicPartition(topic, partition))
        if cursor is None:
            raise InvalidRequest(f"{topic}-{partition} is not read by this consumer: subscribe or assign it first")
        return cursor

    # --- where it is read ----------------------------------------------------------------------------

    async def seek(self, topic: str, partition: int, *, offset: int) -> None:
        """Go on with the record of this offset, which may be still to come."""
        with self._exclusive():
            self._cursor(topic, partition).seek(_checked(offset), sought=True)

    async def seek_all(self, *, offset: int) -> None:
        """Go on with this offset in every partition."""
        with self._exclusive():
            for cursor in self._cursors.values():
                cursor.seek(_checked(offset), sought=True)

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on with the oldest record (no partition named: of all)."""
        await self._seek_to(OffsetSpec.EARLIEST, partitions)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on behind the newest record there is now (no partition named: of all)."""
        await self._seek_to(OffsetSpec.LATEST, partitions)

    async def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go on with the first record that is not older than this; behind the newest one if all are."""
        await self._seek_to(_checked(timestamp_ms), partitions)

    async def _seek_to(self, wanted: int, partitions: Sequence[tuple[str, int]]) -> None:
        """Looked up at once: "the end" is where it is now, not where it is at the next poll."""
        with self._exclusive():
            cursors = self._named(partitions)
            for cursor in cursors:
                cursor.look_up(wanted)
            await self._fetcher.find_positions(cursors)

    async def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that `poll` gives."""
        with self._exclusive():
            cursor = self._cursor(topic, partition)
            if cursor.position is None:
                await self._fetcher.find_positions([cursor])
            assert cursor.position is not None, "just looked up"
            return cursor.position

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The end of what can be read, as of the last fetch; None before the first."""
        return self._cursor(topic, partition).high_watermark

    # --- commits -------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Nothing to do without a group, unless this consumer was said to need one."""
        if self._settings.require_group:
            raise NoGroup("commit() needs a group, and this consumer has none")

    async def committed(self, topic: str, partition: int) -> int | None:
        """None: without a group nothing is ever committed."""
        self._cursor(topic, partition)
        return None

    # --- records -------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = 0, *, records_max: int | None = None) -> list[Record]:
        """The next records, waiting so long for the first; empty when none came.

        Failures that may pass are waited out within the timeout; others are raised.
        """
        limit = self._settings.records_max if records_max is None else records_max
        if limit < 1:
            raise InvalidRequest(f"records_max={records_max}: must be above 0")
        with self._exclusive():
            ticks = self._cluster.ticks
            deadline_ms = ticks.now_ms() + timeout_ms
            await self._follow_subscription()
            await self._look_at_quiet_ones()
            while True:
                given = self._taker.take(self._cursors.values(), limit)
                if given:
                    return given
                left_ms = max(0, deadline_ms - ticks.now_ms())
                await self._fetcher.fetch(self._cursors.values(), wait_ms=left_ms)
                if self._closed:
                    raise ClientClosed("the consumer was closed")
                if ticks.now_ms() >= deadline_ms:
                    return self._taker.take(self._cursors.values(), limit)

    async def records(self, *, idle_ms: int | None = None) -> AsyncIterator[Record]:
        """Record after record; ends when the consumer is closed, or nothing came for `idle_ms`."""
        given: list[Record] = []
        index = 0
        idle_since_ms = self._cluster.ticks.now_ms()
        try:
            while not self._closed:
                left_ms = SLICE_MS
                if idle_ms is not None:
                    left_ms = min(SLICE_MS, max(0, idle_since_ms + idle_ms - self._cluster.ticks.now_ms()))
                given, index = await self._next_records(left_ms), 0
                while index < len(given):
                    index += 1
                    yield given[index - 1]
                if given:
                    idle_since_ms = self._cluster.ticks.now_ms()
                elif idle_ms is not None and self._cluster.ticks.now_ms() - idle_since_ms >= idle_ms:
                    return
        finally:
            self.give_back(given[index:])

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    async def _next_records(self, timeout_ms: int) -> list[Record]:
        try:
            return await self.poll(timeout_ms)
        except ClientClosed:
            return []

    def give_back(self, records: Sequence[Record]) -> None:
        """Records that a loop fetched but did not reach: they come again."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for key, offset in first.items():
            cursor = self._cursors.get(key)
            if cursor is not None:
                cursor.seek(offset, sought=False)

    async def _follow_subscription(self) -> None:
        """Notice partitions that were added to a topic since."""
        aged = [name for name in self._topics if self._cluster.cached(name) is None]
        if aged:
            await self._fetcher.refresh(aged)
        for name in self._topics:
            view = self._cluster.topology.topics.get(name)
            for key in view.keys if view is not None else ():
                if key not in self._cursors:
                    # What it holds was written after we began, so none of it may be missed.
                    self._cursors[key] = Cursor(key, wanted=OffsetSpec.EARLIEST)

    async def _look_at_quiet_ones(self) -> None:
        """A partition that was fetched in bulk must not keep those without records from being looked at."""
        cursors = self._cursors.values()
        if all(cursor.is_empty for cursor in cursors):
            return
        now_ms = self._cluster.ticks.now_ms()
        if any(cursor.is_empty and now_ms - cursor.last_fetch_ms >= QUIET_MS for cursor in cursors):
            await self._fetcher.fetch(cursors, wait_ms=0)

    # --- the end -------------------------------------------------------------------------------------

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if self._closed:
            raise ClientClosed("the consumer is closed")
        if not self._use.acquire(blocking=False):
            raise ConcurrentUse("a consumer belongs to one thread or task at a time: make one for each")
        try:
            yield
        finally:
            self._use.release()

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """Stop reading; whoever iterates gets to the end. May be called from anywhere."""
        self._closed = True
        self._cluster.transport.interrupt()
        if self._use.acquire(blocking=False):
            # Nobody reads; otherwise whoever does lets go of the connections on the way out.
            try:
                await self._cluster.transport.close()
            finally:
                self._use.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _checked(value: int) -> int:
    if value < 0:
        raise InvalidRequest(f"{value} is neither an offset nor a time: both are 0 or more")
    return value
