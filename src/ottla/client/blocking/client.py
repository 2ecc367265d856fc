"""The blocking client: makes producers, consumers and admins that reach the same cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ottla.client.assembly import Assembly, checked_settings
from ottla.client.blocking.admin import Admin
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.processing import Processor
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.snapshots import SnapshotReader
from ottla.client.blocking_transport import BlockingTransport
from ottla.client.settings import ClientSettings, Isolation, parse_addresses
from ottla.client.snapshot_reading import IDLE_MS, Missing, snapshot_settings
from ottla.client.snapshot_taking import take
from ottla.client.snapshots import AsOf, Snapshot, moment_of
from ottla.client.transport import IN_PROCESS, InProcessBroker, InProcessTransport, run_now
from ottla.client.turns import reader_settings, writer_settings


class Client:
    """One cluster, reached from plain threads."""

    def __init__(self, assembly: Assembly, *, on_close: Callable[[], None] | None = None) -> None:
        self._assembly = assembly
        self._on_close = on_close
        self._made: list[Producer | Consumer | Admin | SnapshotReader] = []
        """Kept until they are closed: connections that nobody refers to would be closed by the collector, if at all."""

    def producer(self, **settings: Any) -> Producer:
        """A producer with these `ProducerSettings`."""
        chosen = self._assembly.producer_settings(settings)
        made = Producer(self._assembly.cluster(), chosen, clock=self._assembly.clock, chance=self._assembly.chance)
        self._keep(made)
        return made

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer with these `ConsumerSettings`."""
        chosen = self._assembly.consumer_settings(settings)
        made = Consumer(
            self._assembly.cluster(), chosen, keeper_cluster=self._assembly.cluster, new_id=self._assembly.new_id
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
    ) -> Processor:
        """A loop that reads topics and writes what becomes of them, exactly once; use it with `with`.

        `consumer` and `producer` are settings of its two sides.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        reading = reader_settings(group, consumer or {})
        writing = writer_settings(group, transactional_id, producer or {}, self._assembly.new_id)
        return Processor(
            self.consumer(**reading),
            self.producer(**writing),
            names,
            pattern,
            ticks=self._assembly.ticks,
            idle_ms=idle_ms,
        )

    def snapshot(
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
            return run_now(take(cluster, names, moment, isolation=chosen, now_ms=self._assembly.clock.now_ms()))
        finally:
            run_now(cluster.transport.close())

    def read_snapshot(
        self,
        snapshot: Snapshot,
        *,
        starts: Mapping[tuple[str, int], int] | None = None,
        missing: Missing = "warn",
        idle_ms: int = IDLE_MS,
        **settings: Any,
    ) -> SnapshotReader:
        """Every record of a snapshot, from its beginning or from `starts`, to be iterated once.

        `missing` says what to do about records of it that are gone: "warn", "error" or "ignore".
        """
        chosen = self._assembly.consumer_settings(snapshot_settings(snapshot, settings))
        made = SnapshotReader(
            self._assembly.cluster(), chosen, snapshot, starts=starts, missing=missing, idle_ms=idle_ms
        )
        try:
            made.open()
        except BaseException:
            made.close()
            raise
        self._keep(made)
        return made

    def records_as_of(
        self, topics: str | Sequence[str], as_of: AsOf = None, *, isolation: Isolation | None = None, **settings: Any
    ) -> SnapshotReader:
        """The records of topics as of now, of a time, or of offsets: `snapshot` and `read_snapshot` in one."""
        return self.read_snapshot(self.snapshot(topics, as_of, isolation=isolation), **settings)

    def admin(self) -> Admin:
        """The admin; the same one each time, until it is closed."""
        for each in self._made:
            if isinstance(each, Admin) and not each.is_closed:
                return each
        made = Admin(self._assembly.cluster())
        self._keep(made)
        return made

    def _keep(self, made: Producer | Consumer | Admin | SnapshotReader) -> None:
        self._made = [*(each for each in self._made if not each.is_closed), made]

    def close(self) -> None:
        """Close all that this client has made."""
        for each in list(self._made):
            each.close()
        self._made.clear()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def connect(bootstrap: str | Sequence[str], **settings: Any) -> Client:
    """A client of the cluster that answers at these addresses; nothing is sent before it is needed."""
    chosen = checked_settings(ClientSettings, settings)
    addresses = parse_addresses(bootstrap)
    return Client(Assembly(lambda: BlockingTransport(chosen), addresses, chosen, in_process=False))


def in_process(broker: InProcessBroker, *, on_close: Callable[[], None] | None = None, **settings: Any) -> Client:
    """A client of a broker in this process; `on_close` is called when the client closes."""
    chosen = checked_settings(ClientSettings, settings)
    assembly = Assembly(lambda: InProcessTransport(broker), [IN_PROCESS], chosen, in_process=True)
    return Client(assembly, on_close=on_close)
