"""Fetches: who is asked for which partitions, and what is done about the answers.

Fills the cursors that have nothing left; gives nothing out itself. Leaders that change, connections that
break and positions that the log does not have are dealt with here.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable, Sequence

from ottla.client.cluster import STALE_LEADER, UNANSWERED, Cluster
from ottla.client.cursors import Cursor
from ottla.client.errors import TopicNotFound
from ottla.client.errors_by_code import code_of, error_for
from ottla.client.fetch_calls import Wanted, fetch_call
from ottla.client.offsets import OffsetFound, ask_once, list_offsets
from ottla.client.settings import Address, ConsumerSettings, check_isolation
from ottla.client.topology import TopicView
from ottla.client.transport import Call
from ottla.client.values import OffsetSpec, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from ottla.protocol.messages.fetch import FetchResponse, PartitionData

SHORT_WAIT_MS = 50
"""How long a leader may hold its answer when several are asked, so that a quiet one does not hold up the rest."""
PAUSE_MS = 1_000
"""With nothing to ask for, this long at most before looking again."""
MISSING_MS = 1_000
"""A topic that has vanished for longer than this is an error; one that is created anew comes back sooner."""

_logger = logging.getLogger(__name__)


class Fetcher:
    """Asks leaders for records on behalf of one consumer."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._committed_only = settings.isolation == "read_committed"
        self._isolation = check_isolation(settings.isolation)
        self._missing_since_ms: dict[str, int] = {}
        self._turn = 0

    async def find_positions(self, cursors: Iterable[Cursor]) -> None:
        """Ask where the cursors without a position are to begin, until it is known or a request's time is over."""
        deadline_ms = self._request_deadline_ms()
        for attempt in itertools.count(1):
            nowhere = [cursor for cursor in cursors if cursor.position is None]
            problem = await self._place(nowhere, deadline_ms) if nowhere else None
            if problem is None:
                return
            delay_ms = self._cluster.settings.backoff_ms(attempt)
            if self._cluster.ticks.now_ms() + delay_ms >= deadline_ms:
                raise problem
            await self._cluster.transport.sleep(delay_ms)

    async def refresh(self, names: Sequence[str]) -> None:
        """Ask for metadata once; a topic that stays away is an error."""
        try:
            wrong = await self._cluster.refresh(names)
        except OttlaError as e:
            if not self._cluster.may_pass(e):
                raise
            _logger.warning("metadata could not be had: %s", e)
            return
        now_ms = self._cluster.ticks.now_ms()
        for name in names:
            code = wrong.get(name, ErrorCode.NONE)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._cluster.mark_stale(name)
                since_ms = self._missing_since_ms.setdefault(name, now_ms)
                if now_ms - since_ms >= MISSING_MS:
                    del self._missing_since_ms[name]
                    raise TopicNotFound(name)
            else:
                self._missing_since_ms.pop(name, None)
                if code is not ErrorCode.NONE and not code.retriable:
                    raise error_for(code, about=f"topic {name!r}")

    async def fetch(self, cursors: Collection[Cursor], *, wait_ms: int) -> None:
        """One question to every leader that has something to be asked; waits at most so long."""
        ticks = self._cluster.ticks
        now_ms = ticks.now_ms()
        wanted = [
            cursor for cursor in cursors if cursor.is_empty and not cursor.paused and cursor.blocked_until_ms <= now_ms
        ]
        wanted = await self._placed(wanted, now_ms + wait_ms)
        by_leader = await self._by_leader(wanted)
        if not by_leader and any(cursor.position is None for cursor in wanted):
            # Just found to be in a topic created anew; the next attempt asks where that begins.
            return
        if not by_leader:
            soonest_ms = min((c.blocked_until_ms for c in cursors if not c.paused), default=now_ms)
            pause_ms = soonest_ms - ticks.now_ms() if soonest_ms > ticks.now_ms() else PAUSE_MS
            if wait_ms > 0:
                await self._cluster.transport.sleep(min(wait_ms, pause_ms))
            return
        wait_ms = min(max(0, now_ms + wait_ms - ticks.now_ms()), self._settings.fetch_wait_ms)
        if len(by_leader) > 1:
            wait_ms = min(wait_ms, SHORT_WAIT_MS)
        calls = [self._call(address, asked, wait_ms) for address, asked in by_leader.items()]
        replies = await self._cluster.transport.exchange(calls)
        for (address, asked), reply in zip(by_leader.items(), replies, strict=True):
            if isinstance(reply, FetchResponse):
                await self._absorb(asked, reply)
            else:
                assert isinstance(reply, OttlaError), "a fetch is answered or fails"
                self._lost(address, asked, reply)

    async def _placed(self, cursors: list[Cursor], deadline_ms: int) -> list[Cursor]:
        """Those whose position is known, after asking once for the others'."""
        nowhere = [cursor for cursor in cursors if cursor.position is None]
        if not nowhere:
            return cursors
        try:
            await self._place(nowhere, deadline_ms)
        except OttlaError as e:
            if not self._cluster.may_pass(e) or isinstance(e, TopicNotFound):
                raise
            _logger.warning("positions could not be had: %s", e)
        for cursor in nowhere:
            if cursor.position is None:
                self._block(cursor)
        return [cursor for cursor in cursors if cursor.position is not None]

    async def _place(self, cursors: Sequence[Cursor], deadline_ms: int) -> OttlaError | None:
        """Ask once where cursors are to go on; returns why some do not know it yet."""
        found: dict[TopicPartition, OffsetFound | None] = {}
        wanted = {cursor.key: cursor.wanted for cursor in cursors}
        problem = await ask_once(self._cluster, wanted, found, isolation=self._isolation, deadline_ms=deadline_ms)
        # No record is that young: the next one to come is meant.
        ends = {key: int(OffsetSpec.LATEST) for key, place in found.items() if place is None}
        if ends:
            trouble = await ask_once(self._cluster, ends, found, isolation=self._isolation, deadline_ms=deadline_ms)
            problem = problem or trouble
        for cursor in cursors:
            place = found.get(cursor.key)
            if place is not None:
                cursor.seek(place.offset, sought=False)
        return problem

    async def _by_leader(self, cursors: Sequence[Cursor]) -> dict[Address, list[Cursor]]:
        """Who is asked for what. Partitions whose leader cannot be asked now wait a while."""
        stale = list(dict.fromkeys(c.key.topic for c in cursors if self._cluster.cached(c.key.topic) is None))
        if stale:
            await self.refresh(stale)
        found: dict[Address, list[Cursor]] = {}
        # Another one is first each time: a full response may leave nothing for the last.
        self._turn += 1
        turn = self._turn % len(cursors) if cursors else 0
        for cursor in [*cursors[turn:], *cursors[:turn]]:
            view = self._cluster.cached(cursor.key.topic)
            address = self._leader(view, cursor) if view is not None else None
            if address is None:
                self._cluster.mark_stale(cursor.key.topic)
                self._block(cursor)
                continue
            try:
                await self._cluster.meet(address)
            except OttlaError as e:
                if not self._cluster.may_pass(e):
                    raise
                self._lost(address, [cursor], e)
                continue
            if cursor.position is not None:
                found.setdefault(address, []).append(cursor)
        return found

    def _leader(self, view: TopicView, cursor: Cursor) -> Address | None:
        if cursor.key.partition >= len(view.partitions):
            return None
        if view.topic_id != cursor.topic_id:
            if any(cursor.topic_id):
                # Another topic of the same name: the old position means nothing in it.
                _logger.warning("topic %s was created anew; its partitions are read from the start", cursor.key.topic)
                cursor.look_up(OffsetSpec.EARLIEST)
            cursor.topic_id = view.topic_id
        return self._cluster.topology.leader_address(view, cursor.key.partition)

    def _call(self, address: Address, cursors: Sequence[Cursor], wait_ms: int) -> Call:
        settings = self._settings
        return fetch_call(
            self._cluster,
            address,
            [Wanted(cursor.key, cursor.fetch_offset, settings.partition_bytes_max) for cursor in cursors],
            isolation=self._isolation,
            wait_ms=wait_ms,
            bytes_min=settings.fetch_bytes_min,
            bytes_max=settings.fetch_bytes_max,
            timeout_ms=wait_ms + self._cluster.settings.request_timeout_ms,
        )

    async def _absorb(self, cursors: Sequence[Cursor], response: FetchResponse) -> None:
        if response.error_code:
            error = error_for(response.error_code, about="Fetch")
            if not self._cluster.may_pass(error):
                raise error
            for each in cursors:
                self._block(each)
            return
        now_ms = self._cluster.ticks.now_ms()
        names = {c.topic_id: c.key.topic for c in cursors}
        by_key = {c.key: c for c in cursors}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                cursor = by_key.get(TopicPartition(name, data.partition_index))
                if cursor is None:
                    continue
                cursor.last_fetch_ms = now_ms
                if data.error_code == ErrorCode.NONE:
                    cursor.absorb(data, committed_only=self._committed_only, check_crcs=self._settings.check_crcs)
                else:
                    await self._refused(cursor, data)

    async def _refused(self, cursor: Cursor, data: PartitionData) -> None:
        code = code_of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(cursor)
        elif code.retriable:
            if code in STALE_LEADER:
                self._cluster.mark_stale(cursor.key.topic)
            self._block(cursor)
        else:
            raise error_for(data.error_code, about=f"{cursor.key.topic}-{cursor.key.partition}")

    async def _out_of_range(self, cursor: Cursor) -> None:
        """The log has no such offset: not yet, or not any more."""
        offset = cursor.fetch_offset
        if cursor.sought:
            wanted = {cursor.key: int(OffsetSpec.LATEST)}
            try:
                found = await list_offsets(
                    self._cluster, wanted, isolation=self._isolation, deadline_ms=self._request_deadline_ms()
                )
            except OttlaError as e:
                if not self._cluster.may_pass(e):
                    raise
                self._block(cursor)
                return
            end = found[cursor.key]
            if end is not None and offset >= end.offset:
                self._block(cursor)
                return
        if self._settings.when_lost == "error":
            about = f"{cursor.key.topic}-{cursor.key.partition} at offset {offset}"
            raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, about=about)
        to_start = self._settings.when_lost == "earliest"
        cursor.look_up(OffsetSpec.EARLIEST if to_start else OffsetSpec.LATEST)

    def _lost(self, address: Address, cursors: Iterable[Cursor], error: OttlaError) -> None:
        if isinstance(error, UNANSWERED):
            self._cluster.lost(address)
        elif not self._cluster.may_pass(error):
            raise error
        for cursor in cursors:
            self._cluster.mark_stale(cursor.key.topic)
            self._block(cursor)

    def _request_deadline_ms(self) -> int:
        return self._cluster.ticks.now_ms() + self._cluster.settings.request_timeout_ms

    def _block(self, cursor: Cursor) -> None:
        cursor.attempts += 1
        cursor.blocked_until_ms = self._cluster.ticks.now_ms() + self._cluster.settings.backoff_ms(cursor.attempts)
