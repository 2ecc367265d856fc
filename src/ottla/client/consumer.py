"""The consumer: which partitions are read, from where, and how records get out.

Coroutines that await the transport alone, so the same code serves both faces; see `transport`. Partitions are the ones
assigned, or those of the topics subscribed to: all of them without a group, with one those that `group_reading` gets.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from ottla.client.background import Background
from ottla.client.cluster import Cluster
from ottla.client.cursors import Cursor, FairTaker
from ottla.client.errors import ClientClosed, ConcurrentUse, InvalidSetting, NoGroup, TopicNotFound
from ottla.client.fetching import Fetcher
from ottla.client.group_member import Subscription
from ottla.client.group_reading import Callback, GroupReading, Listener
from ottla.client.holdings import Handout, Holdings
from ottla.client.offsets import topic_with
from ottla.client.progress import Positions, Progress, as_committed, checked_offset
from ottla.client.settings import ConsumerSettings
from ottla.client.values import Committed, OffsetSpec, Record, TopicPartition, partitions_named
from ottla.errors import InvalidRequest

QUIET_MS = 10
"""Partitions with nothing fetched are looked at this often while others still have records to give out."""
SLICE_MS = 1_000
"""Waits without an end of their own are taken in such slices, to notice that the consumer was closed."""


class AsyncConsumer:
    """Reads records. Belongs to one task or thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        *,
        background: Background,
        keeper_cluster: Callable[[], Cluster],
        new_id: Callable[[], str],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._background = background
        self._holdings = Holdings(settings)
        self._topics: tuple[str, ...] = ()
        """What is subscribed to without a group; empty when partitions were assigned."""
        self._pattern: re.Pattern[str] | None = None
        self._taker = FairTaker()
        self._use = threading.Lock()
        self._user: object = None
        """Who polled last."""
        self._closed = False
        self._fetcher = Fetcher(cluster, settings)
        self._group: GroupReading | None = None
        if settings.group is not None:
            self._group = GroupReading(cluster, keeper_cluster(), settings, self._holdings, background, new_id=new_id)

    # --- what is read --------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read these topics, or all whose whole names match the pattern; with a group, the member's share of them."""
        if isinstance(topics, str):
            topics = [topics]
        compiled = _compiled(topics, pattern)
        if self._group is None and (on_assigned or on_revoked or on_lost):
            raise InvalidRequest("without a group partitions are neither assigned nor revoked: leave out the callbacks")
        with self._exclusive():
            wanted: list[TopicPartition] = []
            for name in topics:
                wanted += (await self._cluster.topic(name)).keys
            if self._group is not None:
                if not self._group.is_member:
                    self._holdings.replace((), in_group=True)
                listener = Listener(on_assigned, on_revoked, on_lost)
                self._group.subscribe(Subscription(frozenset(topics), pattern), listener)
                return
            self._topics, self._pattern = tuple(topics), compiled
            if compiled is not None:
                self._topics = await self._matching(compiled)
                wanted = [key for name in self._topics for key in self._cluster.topology.topics[name].keys]
            self._holdings.replace(wanted, in_group=False)

    async def _matching(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        self._cluster.topology.topics.clear()
        await self._cluster.refresh(None)
        views = self._cluster.topology.topics.values()
        return tuple(sorted(view.name for view in views if not view.is_internal and pattern.fullmatch(view.name)))

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions. With a group its positions are used, but the group gets no member."""
        with self._exclusive():
            wanted = partitions_named(partitions)
            deadline_ms = self._cluster.ticks.now_ms() + self._cluster.settings.request_timeout_ms
            for key in wanted:
                await topic_with(self._cluster, key, deadline_ms)
            await self._leave()
            self._holdings.replace(wanted, in_group=self._group is not None)

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        with self._exclusive():
            await self._leave()
            self._holdings.replace((), in_group=False)

    async def _leave(self) -> None:
        self._topics, self._pattern = (), None
        if self._group is not None:
            await self._group.unsubscribe()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return list(self._holdings.cursors)

    def group(self) -> str | None:
        """The name of the group; None: there is none."""
        return self._settings.group

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give out nothing of these partitions (none named: of all) until `resume`."""
        for cursor in self._named(partitions):
            cursor.paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        for cursor in self._named(partitions):
            cursor.paused = False

    def _named(self, partitions: Sequence[tuple[str, int]]) -> list[Cursor]:
        if not partitions:
            return list(self._holdings.cursors.values())
        return [self._cursor(topic, partition) for topic, partition in partitions]

    def _cursor(self, topic: str, partition: int) -> Cursor:
        cursor = self._holdings.cursors.get(TopicPartition(topic, partition))
        if cursor is None:
            raise InvalidRequest(f"{topic}-{partition} is not read by this consumer: subscribe or assign it first")
        return cursor

    # --- where it is read ----------------------------------------------------------------------------

    async def seek(self, topic: str, partition: int, *, offset: int) -> None:
        """Go on with the record of this offset, which may be still to come."""
        with self._exclusive():
            self._move([self._cursor(topic, partition)], offset)

    async def seek_all(self, *, offset: int) -> None:
        """Go on with this offset in every partition."""
        with self._exclusive():
            self._move(self._named(()), offset)

    def _move(self, cursors: Iterable[Cursor], offset: int) -> None:
        for cursor in cursors:
            cursor.seek(checked_offset(offset), sought=True)
            self._holdings.sought(cursor.key)

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on with the oldest record (no partition named: of all)."""
        await self._seek_to(OffsetSpec.EARLIEST, partitions)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on behind the newest record there is now (no partition named: of all)."""
        await self._seek_to(OffsetSpec.LATEST, partitions)

    async def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go on with the first record that is not older than this; behind the newest one if all are."""
        await self._seek_to(checked_offset(timestamp_ms), partitions)

    async def _seek_to(self, wanted: int, partitions: Sequence[tuple[str, int]]) -> None:
        """Looked up at once: "the end" is where it is now, not where it is at the next poll."""
        with self._exclusive():
            cursors = self._named(partitions)
            for cursor in cursors:
                cursor.look_up(wanted)
                self._holdings.sought(cursor.key)
            await self._fetcher.find_positions(cursors)

    async def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that `poll` gives."""
        with self._exclusive():
            cursor = self._cursor(topic, partition)
            if self._group is not None:
                await self._group.find_place(cursor.key)
            if cursor.position is None:
                await self._fetcher.find_positions([cursor])
            return self._holdings.consumed()[cursor.key].offset

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The end of what can be read, as of the last fetch; None before the first."""
        return self._cursor(topic, partition).high_watermark

    # --- commits -------------------------------------------------------------------------------------

    async def commit(self, positions: Positions | None = None) -> None:
        """Store how far the group has read, or these positions, and wait until that is safe.

        Without a group there is nothing to do, unless this consumer was said to need one.
        """
        if self._may_commit():
            with self._exclusive():
                assert self._group is not None, "just looked at"
                await self._group.commit(None if positions is None else as_committed(positions))

    async def submit_commit(self, positions: Positions | None = None) -> Any:
        """The same without waiting; the future (of the kind that this face has) says what became of it."""
        if self._may_commit():
            with self._exclusive():
                assert self._group is not None, "just looked at"
                return self._group.submit(None if positions is None else as_committed(positions))
        nothing = self._background.promise()
        nothing.set_result(None)
        return nothing

    def progress(self) -> Progress:
        """How far the group has read here, for a producer that stores it in a transaction."""
        with self._exclusive():
            if self._group is None:
                raise NoGroup("this consumer has no group whose positions could be stored")
            return self._group.progress()

    def go_back(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Give records out again, from these offsets or from where the group has committed meanwhile."""
        with self._exclusive():
            if self._group is None:
                raise NoGroup("without a group, seek")
            self._group.go_back(offsets)

    def _may_commit(self) -> bool:
        if self._group is None and self._settings.require_group:
            raise NoGroup("commit() needs a group, and this consumer has none")
        return self._group is not None

    async def committed(self, topic: str, partition: int) -> int | None:
        """Where the group is in a partition; None: nothing was committed, as is always so without a group."""
        found = await self.committed_entry(topic, partition)
        return None if found is None else found.offset

    async def committed_entry(self, topic: str, partition: int) -> Committed | None:
        """The same with the note and the leader epoch that were stored with it."""
        if self._group is None:
            self._cursor(topic, partition)
            return None
        with self._exclusive():
            key = TopicPartition(topic, partition)
            return (await self._group.committed([key])).get(key)

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
            self._holdings.take_back()
            await self._follow()
            await self._look_at_quiet_ones()
            while True:
                given = self._taker.take(self._holdings.ready(), limit)
                if given:
                    return given
                await self._wait_for_records(max(0, deadline_ms - ticks.now_ms()))
                if self._closed:
                    raise ClientClosed("the consumer was closed")
                if self._group is not None:
                    await self._group.turn()
                if ticks.now_ms() >= deadline_ms:
                    return self._taker.take(self._holdings.ready(), limit)

    async def _follow(self) -> None:
        if self._group is None:
            await self._follow_subscription()
            return
        self._user = self._background.caller()
        await self._group.turn()

    async def _wait_for_records(self, wait_ms: int) -> None:
        group = self._group
        if group is not None and self._holdings.unplaced:
            problem = await group.place()
            if problem is not None and wait_ms > 0:
                pause_ms = min(wait_ms, self._cluster.settings.retry_backoff_ms)
                await self._cluster.transport.sleep(pause_ms)
                return
        cursors = self._holdings.ready()
        if group is not None and group.is_member and not cursors:
            await group.news.wait(min(wait_ms, SLICE_MS))
            return
        try:
            await self._fetcher.fetch(cursors, wait_ms=wait_ms)
        except TopicNotFound as e:
            if group is None or not group.is_member:
                raise
            group.topic_is_gone(e.topic)

    async def records(self, *, idle_ms: int | None = None) -> AsyncIterator[Record]:
        """Record after record; ends when the consumer is closed, or nothing came for `idle_ms`."""
        idle_since_ms = self._cluster.ticks.now_ms()
        with self._holdings.handing_out() as handout:
            while not self._closed:
                left_ms = SLICE_MS
                if idle_ms is not None:
                    left_ms = min(SLICE_MS, max(0, idle_since_ms + idle_ms - self._cluster.ticks.now_ms()))
                polled = await self._next_records(left_ms)
                handout.left.extend(polled)
                while handout.left:
                    yield handout.left.popleft()
                if polled:
                    idle_since_ms = self._cluster.ticks.now_ms()
                elif idle_ms is not None and self._cluster.ticks.now_ms() - idle_since_ms >= idle_ms:
                    return

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    async def _next_records(self, timeout_ms: int) -> list[Record]:
        try:
            return await self.poll(timeout_ms)
        except ClientClosed:
            return []

    @contextmanager
    def handing_out(self) -> Iterator[Handout]:
        """For a loop of the other face."""
        with self._holdings.handing_out() as handout:
            yield handout

    async def _follow_subscription(self) -> None:
        """Notice partitions that were added to a topic since, and topics that match a pattern."""
        aged = [name for name in self._topics if self._cluster.cached(name) is None]
        if self._pattern is not None and (aged or not self._topics):
            self._topics = await self._matching(self._pattern)
        elif aged:
            await self._fetcher.refresh(aged)
        cursors = self._holdings.cursors
        for name in self._topics:
            view = self._cluster.topology.topics.get(name)
            for key in view.keys if view is not None else ():
                if key not in cursors:
                    # What it holds was written after we began, so none of it may be missed.
                    cursors[key] = Cursor(key, wanted=OffsetSpec.EARLIEST)

    async def _look_at_quiet_ones(self) -> None:
        """A partition that was fetched in bulk must not keep those without records from being looked at."""
        cursors = self._holdings.ready()
        if all(cursor.is_empty for cursor in cursors):
            return
        now_ms = self._cluster.ticks.now_ms()
        if any(cursor.is_empty and now_ms - cursor.last_fetch_ms >= QUIET_MS for cursor in cursors):
            await self._fetcher.fetch(cursors, wait_ms=0)

    # --- the end -------------------------------------------------------------------------------------

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        calling_back = None if self._group is None else self._group.calling_back
        if calling_back is not None and calling_back == self._background.caller():
            # A callback runs inside a call that is exclusive already, which may be the last one.
            yield
            return
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
        """Stop reading and leave the group; whoever iterates gets to the end. May be called from anywhere."""
        await self.end(orderly=True)

    async def end(self, *, orderly: bool) -> None:
        """Close; unless it is `orderly`, nothing is committed and nobody is called back."""
        if self._closed:
            return
        self._closed = True
        self._cluster.end_by(self._cluster.deadline_ms())
        is_mine = self._use.acquire(blocking=False)
        try:
            if self._group is not None:
                # Only whoever polled knows that what was given out has been dealt with.
                orderly = orderly and self._user in (None, self._background.caller())
                if not is_mine:
                    self._cluster.transport.interrupt()
                await self._group.close(orderly=orderly, undisturbed=is_mine)
        finally:
            self._cluster.transport.interrupt()
            if is_mine:
                # Nobody reads; otherwise whoever does lets go of the connections on the way out.
                try:
                    await self._cluster.transport.close()
                finally:
                    self._use.release()

    async def __aenter__(self) -> Self:
        await self._background.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.end(orderly=kind is None)
        finally:
            await self._background.close(error)


def _compiled(topics: Sequence[str], pattern: str | None) -> re.Pattern[str] | None:
    if (not topics) == (pattern is None):
        raise InvalidRequest("subscribe to topics by name, or to a pattern")
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as e:
        raise InvalidSetting(f"pattern={pattern!r}: {e}") from e
