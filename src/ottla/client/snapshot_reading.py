"""Reads a snapshot: every record of it that is still there, and then ends.

Coroutines that await the cluster alone, so the same code serves both faces; see `transport`. What is written meanwhile
is not given out, and what is gone since the snapshot was taken is noticed: `lost` tells of it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from ottla.client.cluster import Cluster
from ottla.client.cursors import Cursor
from ottla.client.errors import ClientClosed, InvalidSetting, RequestTimedOut
from ottla.client.fetching import Fetcher
from ottla.client.offsets import list_offsets
from ottla.client.progress import checked_offset
from ottla.client.settings import ConsumerSettings
from ottla.client.snapshot_taking import check_ids, verified
from ottla.client.snapshots import Snapshot, SnapshotUnreadable, listed
from ottla.client.values import OffsetSpec, Record, TopicPartition
from ottla.protocol.api_keys import ApiKey

IDLE_MS = 60_000
"""How long a reader waits for records that must be there before it fails."""
SLICE_MS = 1_000
"""Waits are taken in such slices, to notice that the reader was closed."""
SETTINGS = frozenset(
    {
        "isolation",
        "records_max",
        "fetch_bytes_min",
        "fetch_bytes_max",
        "partition_bytes_max",
        "fetch_wait_ms",
        "check_crcs",
    }
)
"""Of a consumer's settings, those that mean something here: a snapshot says itself where reading starts and ends."""
PARTITION_BYTES_MAX = 4 * 1024 * 1024
"""More at a time than other consumers ask for: one partition is read after the other."""
NOT_FETCHED_MS = -1
EMPTY_ANSWERS_MIN = 3
EMPTY_MS_MIN = 3_000
"""How often, and for how long, a broker says that nothing more comes before the end until that is believed."""
EARLIEST_LOCAL = -4
"""Asked for in ListOffsets: the first offset that the broker need not get from elsewhere."""
EARLIEST_LOCAL_SINCE = 8

Missing = Literal["warn", "error", "ignore"]
"""What to do about records of a snapshot that are gone."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets that the snapshot had and the partition has not any more."""

    topic: str
    partition: int
    start: int | None
    """None: not known, since the snapshot does not say where the partition began."""
    end: int

    def __str__(self) -> str:
        which = f"all up to {self.end - 1}" if self.start is None else f"{self.start} to {self.end - 1}"
        return f"{self.topic}-{self.partition}: records of the snapshot are deleted (offsets {which})"


def snapshot_settings(snapshot: Snapshot, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the consumer that a reader is to the brokers."""
    if unknown := sorted(given.keys() - SETTINGS):
        raise InvalidSetting(
            f"a snapshot is not read with {', '.join(unknown)}; known are {', '.join(sorted(SETTINGS))}"
        )
    # A position that the log lost is looked up anew, which is noticed here.
    chosen = {"isolation": snapshot.isolation, "partition_bytes_max": PARTITION_BYTES_MAX, **given}
    return {**chosen, "out_of_range": "earliest"}


class AsyncSnapshotReader:
    """Reads one snapshot once. Belongs to one task or thread at a time; only `close` may come from elsewhere."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        snapshot: Snapshot,
        *,
        starts: Mapping[tuple[str, int], int] | None = None,
        missing: Missing = "warn",
        idle_ms: int = IDLE_MS,
    ) -> None:
        if missing not in ("warn", "error", "ignore"):
            raise InvalidSetting(f'missing={missing!r}: is "warn", "error" or "ignore"')
        self.snapshot = snapshot
        """With what is known of its topics, once the reader is open."""
        self.lost: list[LostRange] = []
        self._cluster = cluster
        self._settings = settings
        self._wanted_starts = {TopicPartition(*key): checked_offset(offset) for key, offset in (starts or {}).items()}
        self._missing = missing
        self._idle_ms = idle_ms
        self._fetcher = Fetcher(cluster, settings)
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._left: dict[TopicPartition, Cursor] = {}
        """Those that have not come to their end, in the order in which they are read."""
        self._empty_answers = 0
        self._empty_since_ms = 0
        self._is_open = False
        self._closed = False

    # --- the beginning -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Look whether the snapshot is there, and go to its beginning. Every other call does this first."""
        if self._closed:
            raise ClientClosed("the reader is closed")
        if self._is_open:
            return
        known = self.snapshot
        self.snapshot, begins = await verified(self._cluster, known, isolation=self._settings.isolation)
        for key, end in sorted(known.ends.items()):
            cursor = self._cursors[key] = Cursor(key, wanted=OffsetSpec.EARLIEST)
            cursor.topic_id = self.snapshot.topic_ids.get(key.topic, cursor.topic_id)
            cursor.seek(max(begins[key], self._wanted_starts.get(key, 0)), sought=False)
            start = known.starts.get(key)
            if start is not None:
                self._note_lost(key, max(start, self._wanted_starts.get(key, 0)), begins[key])
            elif begins[key] > end > 0:
                self._note_lost(key, self._wanted_starts.get(key), begins[key])
            if (cursor.position or 0) < end:
                self._left[key] = cursor
        self._is_open = True

    def _note_lost(self, key: TopicPartition, start: int | None, beginning: int) -> None:
        end = min(beginning, self.snapshot.ends[key])
        if start is not None and start >= end:
            return
        lost = LostRange(key.topic, key.partition, start, end)
        self.lost.append(lost)
        if self._missing == "error":
            raise SnapshotUnreadable(f'{lost}; missing="warn" reads what is left')
        if self._missing == "warn":
            _logger.warning("%s", lost)

    # --- records -------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether every record of the snapshot was given out."""
        return self._is_open and not self._left

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that `poll` gives; of a partition that is finished, the snapshot's end."""
        key = TopicPartition(topic, partition)
        cursor = self._cursors.get(key)
        if cursor is None:
            raise InvalidSetting(f"{listed([key])} is not part of the snapshot, or the reader is not open yet")
        return self.snapshot.ends[key] if key not in self._left or cursor.position is None else cursor.position

    async def poll(self, timeout_ms: int = 0, *, records_max: int | None = None) -> list[Record]:
        """The next records, waiting so long for the first; empty when none came, and at the end."""
        await self.open()
        ticks = self._cluster.ticks
        deadline_ms = ticks.now_ms() + timeout_ms
        has_asked = False
        while self._left:
            # One partition after the other, so that the order is the same each time too.
            cursor = next(iter(self._left.values()))
            records = self._taken(cursor, self._settings.records_max if records_max is None else records_max)
            left_ms = deadline_ms - ticks.now_ms()
            if records or (has_asked and left_ms <= 0):
                return records
            if cursor.key in self._left:
                await self._fetch(cursor, max(0, left_ms))
                has_asked = True
        return []

    def _taken(self, cursor: Cursor, records_max: int) -> list[Record]:
        records = cursor.take(records_max)
        end = self.snapshot.ends[cursor.key]
        if (cursor.position or 0) < end:
            return records
        del self._left[cursor.key]
        return [one for one in records if one.offset < end]

    async def _fetch(self, cursor: Cursor, wait_ms: int) -> None:
        before = cursor.position or 0
        cursor.last_fetch_ms = NOT_FETCHED_MS
        await self._fetcher.fetch([cursor], wait_ms=wait_ms)
        if self._closed:
            raise ClientClosed("the reader is closed")
        views = self._cluster.topology.topics
        check_ids(self.snapshot, {name: view.topic_id for name, view in views.items() if view.has_id})
        if cursor.position is None:
            await self._find_again(cursor, before)
            return
        is_answered = cursor.attempts == 0 and cursor.last_fetch_ms != NOT_FETCHED_MS
        if not cursor.is_empty:
            self._empty_answers = 0
        elif is_answered and (cursor.high_watermark or 0) >= self.snapshot.ends[cursor.key]:
            await self._nothing_came(cursor)

    async def _nothing_came(self, cursor: Cursor) -> None:
        """The log goes on behind the end and gave nothing: the last records are compacted away, or they are only late.

        Brokers that keep old records in other storage answer like this while they wait for it.
        """
        now_ms = self._cluster.ticks.now_ms()
        if self._empty_answers == 0:
            self._empty_since_ms = now_ms
        self._empty_answers += 1
        is_settled = self._empty_answers >= EMPTY_ANSWERS_MIN and now_ms - self._empty_since_ms >= EMPTY_MS_MIN
        if not is_settled:
            await self._cluster.transport.sleep(self._cluster.settings.backoff_ms(self._empty_answers))
        elif not await _may_be_late(self._cluster, cursor):
            self._empty_answers = 0
            del self._left[cursor.key]

    async def _find_again(self, cursor: Cursor, before: int) -> None:
        """Retention has overtaken the reader: go on where there is something left."""
        await self._fetcher.find_positions([cursor])
        position = cursor.position or 0
        if position <= before:
            raise SnapshotUnreadable(f"{listed([cursor.key])} was cut off before offset {before}")
        self._note_lost(cursor.key, before, position)
        if position >= self.snapshot.ends[cursor.key]:
            del self._left[cursor.key]

    async def records(self) -> AsyncIterator[Record]:
        """Record after record, by topic, partition and offset, to the end; RequestTimedOut when they do not come."""
        idle = Idleness(self._cluster.ticks.now_ms(), self._idle_ms)
        try:
            while not self.is_finished:
                polled = await self.poll(SLICE_MS)
                for record in polled:
                    yield record
                idle.check(self, self._cluster.ticks.now_ms(), is_idle=not polled)
        finally:
            await self.close()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    def left(self) -> str:
        """How far each partition is that has not come to its end, for messages."""
        ends = self.snapshot.ends
        return ", ".join(f"{listed([key])} at {cursor.position} of {ends[key]}" for key, cursor in self._left.items())

    # --- the end -------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """Let go of the connections; a reader that came to its end has done so."""
        if self._closed:
            return
        self._closed = True
        self._cluster.transport.interrupt()
        await self._cluster.transport.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def _may_be_late(cluster: Cluster, cursor: Cursor) -> bool:
    """Whether what is asked for lies in other storage than the broker's own, as far as the broker can tell."""
    view = cluster.cached(cursor.key.topic)
    address = None if view is None else cluster.topology.leader_address(view, cursor.key.partition)
    if address is None or not cluster.has_met(address):
        return True
    if cluster.version(address, ApiKey.LIST_OFFSETS) < EARLIEST_LOCAL_SINCE:
        return False
    found = await list_offsets(cluster, {cursor.key: EARLIEST_LOCAL}, isolation=0, deadline_ms=cluster.deadline_ms())
    place = found[cursor.key]
    return place is not None and (cursor.position or 0) < place.offset


class Idleness:
    """How long nothing came although there is more."""

    def __init__(self, now_ms: int, most_ms: int) -> None:
        self._since_ms = now_ms
        self._most_ms = most_ms

    def check(self, reader: AsyncSnapshotReader, now_ms: int, *, is_idle: bool) -> None:
        """After each poll; RequestTimedOut when it is too long."""
        if not is_idle:
            self._since_ms = now_ms
        elif not reader.is_finished and now_ms - self._since_ms >= self._most_ms:
            raise RequestTimedOut(f"no record of the snapshot came for {self._most_ms} ms: {reader.left()}")
