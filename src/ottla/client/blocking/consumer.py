"""The blocking consumer: the async one, run to its end on the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from ottla.client.background import ThreadBackground
from ottla.client.cluster import Cluster
from ottla.client.consumer import SLICE_MS, AsyncConsumer
from ottla.client.errors import ClientClosed
from ottla.client.progress import Positions, Progress
from ottla.client.settings import ConsumerSettings
from ottla.client.transport import run_now
from ottla.client.values import Committed, Record, TopicPartition

Told = Callable[[list[TopicPartition]], None]
"""What is called when partitions come or go."""


class Consumer:
    """Reads records. Belongs to one thread at a time; only `close` may be called from another."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        *,
        keeper_cluster: Callable[[], Cluster],
        new_id: Callable[[], str],
    ) -> None:
        self._logic = AsyncConsumer(
            cluster,
            settings,
            background=ThreadBackground(f"ottla-group-{settings.group}"),
            keeper_cluster=keeper_cluster,
            new_id=new_id,
        )
        self._ticks = cluster.ticks
        self._closed = False

    def subscribe(
        self,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Told | None = None,
        on_revoked: Told | None = None,
        on_lost: Told | None = None,
    ) -> None:
        """Read these topics, or all whose whole names match the pattern; with a group, the member's share of them."""
        run_now(
            self._logic.subscribe(
                topics, pattern=pattern, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost
            )
        )

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        run_now(self._logic.unsubscribe())

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions. With a group its positions are used, but the group gets no member."""
        run_now(self._logic.assign(partitions))

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._logic.assignment()

    def group(self) -> str | None:
        """The name of the group; None: there is none."""
        return self._logic.group()

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give out nothing of these partitions (none named: of all) until `resume`."""
        self._logic.pause(*partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        self._logic.resume(*partitions)

    def seek(self, topic: str, partition: int, *, offset: int) -> None:
        """Go on with the record of this offset, which may be still to come."""
        run_now(self._logic.seek(topic, partition, offset=offset))

    def seek_all(self, *, offset: int) -> None:
        """Go on with this offset in every partition."""
        run_now(self._logic.seek_all(offset=offset))

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on with the oldest record (no partition named: of all)."""
        run_now(self._logic.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on behind the newest record there is now (no partition named: of all)."""
        run_now(self._logic.seek_to_end(*partitions))

    def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go on with the first record that is not older than this; behind the newest one if all are."""
        run_now(self._logic.seek_to_time(timestamp_ms, *partitions))

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that `poll` gives."""
        return run_now(self._logic.position(topic, partition))

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The end of what can be read, as of the last fetch; None before the first."""
        return self._logic.high_watermark(topic, partition)

    def commit(self, positions: Positions | None = None) -> None:
        """Store how far the group has read, or these positions, and wait until that is safe.

        Without a group there is nothing to do, unless this consumer was said to need one.
        """
        run_now(self._logic.commit(positions))

    def submit_commit(self, positions: Positions | None = None) -> Future[None]:
        """The same without waiting; the future says what became of it."""
        made: Future[None] = run_now(self._logic.submit_commit(positions))
        return made

    def committed(self, topic: str, partition: int) -> int | None:
        """Where the group is in a partition; None: nothing was committed, as is always so without a group."""
        return run_now(self._logic.committed(topic, partition))

    def committed_entry(self, topic: str, partition: int) -> Committed | None:
        """The same with the note and the leader epoch that were stored with it."""
        return run_now(self._logic.committed_entry(topic, partition))

    def progress(self) -> Progress:
        """How far the group has read here, for a producer that stores it in a transaction."""
        return self._logic.progress()

    def go_back(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Give records out again, from these offsets or from where the group has committed meanwhile."""
        self._logic.go_back(offsets)

    def poll(self, timeout_ms: int = 0, *, records_max: int | None = None) -> list[Record]:
        """The next records, waiting so long for the first; empty when none came."""
        return run_now(self._logic.poll(timeout_ms, records_max=records_max))

    def records(self, *, idle_ms: int | None = None) -> Iterator[Record]:
        """Record after record; ends when the consumer is closed, or nothing came for `idle_ms`."""
        idle_since_ms = self._ticks.now_ms()
        with self._logic.handing_out() as handout:
            while not self._closed:
                left_ms = SLICE_MS
                if idle_ms is not None:
                    left_ms = min(SLICE_MS, max(0, idle_since_ms + idle_ms - self._ticks.now_ms()))
                polled = self._next_records(left_ms)
                handout.left.extend(polled)
                while handout.left:
                    yield handout.left.popleft()
                if polled:
                    idle_since_ms = self._ticks.now_ms()
                elif idle_ms is not None and self._ticks.now_ms() - idle_since_ms >= idle_ms:
                    return

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def _next_records(self, timeout_ms: int) -> list[Record]:
        try:
            return self.poll(timeout_ms)
        except ClientClosed:
            return []

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Stop reading and leave the group; whoever iterates gets to the end. May be called from any thread."""
        self._closed = True
        run_now(self._logic.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        # What was given out before an error has perhaps not been dealt with: nothing of it is committed.
        run_now(self._logic.end(orderly=kind is None))
