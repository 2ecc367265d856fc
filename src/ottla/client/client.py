"""The async client: makes producers, consumers and admins that reach the same cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ottla.client.admin import AsyncAdmin
from ottla.client.assembly import Assembly, checked_settings
from ottla.client.consumer import AsyncConsumer
from ottla.client.loop_background import LoopBackground
from ottla.client.processing import AsyncProcessor
from ottla.client.producer import AsyncProducer
from ottla.client.settings import ClientSettings, Isolation, parse_addresses
from ottla.client.snapshot_reading import IDLE_MS, AsyncSnapshotReader, Missing, snapshot_settings
from ottla.client.snapshot_taking import take
from ottla.client.snapshots import AsOf, Snapshot, moment_of
from ottla.client.socket_transport import SocketTransport, ThreadTransport
from ottla.client.transport import IN_PROCESS, InProcessBroker
from ottla.client.turns import reader_settings, writer_settings


class AsyncClient:
    """One cluster, reached from an event loop."""

    def __init__(self, assembly: Assembly, *, on_close: Callable[[], None] | None = None) -> None:
        self._assembly = assembly
        self._on_close = on_close
        self._made: list[AsyncProducer | AsyncConsumer | AsyncAdmin | AsyncSnapshotReader] = []
        """Kept until they are closed: connections that nobody refers to would be closed by the collector, if at all."""

    def producer(self, **settings: Any) -> AsyncProducer:
        """A producer with these `ProducerSettings`; use it with `async with`."""
        chosen = self._assembly.producer_settings(settings)
        made = AsyncProducer(self._assembly.cluster(), chosen, clock=self._assembly.clock, chance=self._assembly.chance)
        self._keep(made)
        return made

    def consumer(self, **settings: Any) -> AsyncConsumer:
        """A consumer with these `ConsumerSettings`; one that joins a group is used with `async with`."""
        chosen = self._assembly.consumer_settings(settings)
        made = AsyncConsumer(
            self._assembly.cluster(),
            chosen,
            background=LoopBackground(f"ottla-group-{chosen.group}"),
            keeper_cluster=self._assembly.cluster,
            new_id=self._assembly.new_id,
        )
        self._keep(made)
        return made

    def process(
        self,
        topics: str | Sequence[str] = (),
        *,
        group: str,
        pattern: str | None = None,
        transactional_id: str | None = None,
        idle_ms: int | None = None,
        consumer: Mapping[str, Any] | None = None,
        producer: Mapping[str, Any] | None = None,
    ) -> AsyncProcessor:
        """A loop that reads topics and writes what becomes of them, exactly once; use it with `async with`.

        `consumer` and `producer` are settings of its two sides.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        reading = reader_settings(group, consumer or {})
        writing = writer_settings(group, transactional_id, producer or {}, self._assembly.new_id)
        return AsyncProcessor(
            self.consumer(**reading),
            self.producer(**writing),
            names,
            pattern,
            ticks=self._assembly.ticks,
            idle_ms=idle_ms,
        )

    async def snapshot(
        self, topics: str | Sequence[str] = (), as_of: AsOf = None, *, isolation: Isolation | None = None
    ) -> Snapshot:
        """How far topics are read as of now, of a time, or of offsets; found out once, and the same from then on.

        Without `topics`, those that the offsets name.
        """
        moment = moment_of(as_of, isolation=isolation)
        chosen = isolation or (moment.isolation if isinstance(moment, Snapshot) else "read_uncommitted")
        names = [topics] if isinstance(topics, str) else list(topics)
        cluster = self._assembly.cluster()
        try:
            return await take(cluster, names, moment, isolation=chosen, now_ms=self._assembly.clock.now_ms())
        finally:
            await cluster.transport.close()

    def read_snapshot(
        self,
        snapshot: Snapshot,
        *,
        starts: Mapping[tuple[str, int], int] | None = None,
        missing: Missing = "warn",
        idle_ms: int = IDLE_MS,
        **settings: Any,
    ) -> AsyncSnapshotReader:
        """Every record of a snapshot, from its beginning or from `starts`, to be iterated once.

        `missing` says what to do about records of it that are gone: "warn", "error" or "ignore".
        """
        chosen = self._assembly.consumer_settings(snapshot_settings(snapshot, settings))
        made = AsyncSnapshotReader(
            self._assembly.cluster(), chosen, snapshot, starts=starts, missing=missing, idle_ms=idle_ms
        )
        self._keep(made)
        return made

    async def records_as_of(
        self, topics: str | Sequence[str], as_of: AsOf = None, *, isolation: Isolation | None = None, **settings: Any
    ) -> AsyncSnapshotReader:
        """The records of topics as of now, of a time, or of offsets: `snapshot` and `read_snapshot` in one."""
        return self.read_snapshot(await self.snapshot(topics, as_of, isolation=isolation), **settings)

    def admin(self) -> AsyncAdmin:
        """The admin; the same one each time, until it is closed."""
        for each in self._made:
            if isinstance(each, AsyncAdmin) and not each.is_closed:
                return each
        made = AsyncAdmin(self._assembly.cluster())
        self._keep(made)
        return made

    def _keep(self, made: AsyncProducer | AsyncConsumer | AsyncAdmin | AsyncSnapshotReader) -> None:
        self._made = [*(each for each in self._made if not each.is_closed), made]

    async def close(self) -> None:
        """Close all that this client has made."""
        for each in list(self._made):
            await each.close()
        self._made.clear()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def connect_async(bootstrap: str | Sequence[str], **settings: Any) -> AsyncClient:
    """A client of the cluster that answers at these addresses; nothing is sent before it is needed."""
    chosen: ClientSettings = checked_settings(ClientSettings, settings)
    addresses = parse_addresses(bootstrap)
    return AsyncClient(Assembly(lambda: SocketTransport(chosen), addresses, chosen, in_process=False))


def in_process_async(
    broker: InProcessBroker, *, on_close: Callable[[], None] | None = None, **settings: Any
) -> AsyncClient:
    """A client of a broker in this process; `on_close` is called when the client closes."""
    chosen: ClientSettings = checked_settings(ClientSettings, settings)
    assembly = Assembly(lambda: ThreadTransport(broker), [IN_PROCESS], chosen, in_process=True)
    return AsyncClient(assembly, on_close=on_close)
