"""The blocking reader of a snapshot: the async one, run to its end on the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from ottla.client.cluster import Cluster
from ottla.client.settings import ConsumerSettings
from ottla.client.snapshot_reading import IDLE_MS, SLICE_MS, AsyncSnapshotReader, Idleness, LostRange, Missing
from ottla.client.snapshots import Snapshot
from ottla.client.transport import run_now
from ottla.client.values import Record


class SnapshotReader:
    """Reads one snapshot once. Belongs to one thread at a time; only `close` may be called from another."""

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
        self._logic = AsyncSnapshotReader(cluster, settings, snapshot, starts=starts, missing=missing, idle_ms=idle_ms)
        self._ticks = cluster.ticks
        self._idle_ms = idle_ms

    def open(self) -> None:
        """Look whether the snapshot is there, and go to its beginning. Every other call does this first."""
        run_now(self._logic.open())

    @property
    def snapshot(self) -> Snapshot:
        """With what is known of its topics, once the reader is open."""
        return self._logic.snapshot

    @property
    def lost(self) -> list[LostRange]:
        """What the snapshot had and is deleted."""
        return self._logic.lost

    @property
    def is_finished(self) -> bool:
        """Whether every record of the snapshot was given out."""
        return self._logic.is_finished

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that `poll` gives; of a partition that is finished, the snapshot's end."""
        return self._logic.position(topic, partition)

    def poll(self, timeout_ms: int = 0, *, records_max: int | None = None) -> list[Record]:
        """The next records, waiting so long for the first; empty when none came, and at the end."""
        return run_now(self._logic.poll(timeout_ms, records_max=records_max))

    def records(self) -> Iterator[Record]:
        """Record after record, by topic, partition and offset, to the end; RequestTimedOut when they do not come."""
        idle = Idleness(self._ticks.now_ms(), self._idle_ms)
        try:
            while not self.is_finished:
                polled = self.poll(SLICE_MS)
                yield from polled
                idle.check(self._logic, self._ticks.now_ms(), is_idle=not polled)
        finally:
            self.close()

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    @property
    def is_closed(self) -> bool:
        return self._logic.is_closed

    def close(self) -> None:
        """Let go of the connections; a reader that came to its end has done so."""
        run_now(self._logic.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
