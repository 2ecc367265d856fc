"""All connections of a server: where they come from, and what they share.

They share one receive buffer and the limits on what may be unanswered or unsynced at once. A connection that
would exceed one is not read until there is room; nothing that was taken is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from ottla.broker.broker import Broker
from ottla.broker.caller import Address
from ottla.metadata.configs import BrokerConfigs
from ottla.partitions.sync_pool import SyncRunner
from ottla.server.rooms import LentRooms
from ottla.server.session import Session

RECEIVE_BYTES = 1 << 20
BULK_BYTES_MIN = 16 << 10
"""Who sends this much at once is a bulk producer, and the first to wait for the disk."""
LOOK_AGAIN_MS = 2
"""How soon connections that wait for shared room are looked at again."""
IDLE_CHECK_MS = 10_000
"""How often idle connections are looked for, unless `connections.max.idle.ms` is shorter than that."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections may hold."""

    request_bytes_max: int
    in_flight_bytes_per_connection: int
    in_flight_bytes_max: int
    connections_max: int
    idle_ms_max: int

    @classmethod
    def of(cls, configs: BrokerConfigs) -> Limits:
        return cls(
            request_bytes_max=configs.integer("socket.request.max.bytes"),
            in_flight_bytes_per_connection=configs.integer("ottla.inflight.bytes.per.connection"),
            in_flight_bytes_max=configs.integer("ottla.inflight.bytes.max"),
            connections_max=configs.integer("max.connections"),
            idle_ms_max=configs.integer("connections.max.idle.ms"),
        )


class Listener:
    """Accepts connections for one broker."""

    def __init__(self, broker: Broker, reads: SyncRunner, *, advertised: Address | None, limits: Limits) -> None:
        self.broker = broker
        self.reads = reads
        self.advertised = advertised
        self.limits = limits
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.rooms = LentRooms()
        self._now_ms = broker.services.clock.now_ms
        self._unsynced = broker.services.partitions.unsynced
        self._sessions: set[Session] = set()
        self._waiting: set[Session] = set()
        self._kept: dict[Session, int] = {}
        self._kept_total = 0
        self._to_flush: set[Session] = set()
        self._servers: list[asyncio.Server] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_draining = False
        self.loop = asyncio.get_running_loop()

    async def listen(self, address: Address) -> Address:
        """Accept connections at an address; returns it with the port that was taken."""
        server = await self.loop.create_server(lambda: Session(self), address.host, address.port, backlog=1024)
        self._servers.append(server)
        if self._idle_timer is None:
            self._check_idle()
        bound = server.sockets[0].getsockname()
        return Address(bound[0], bound[1])

    @property
    def sessions(self) -> frozenset[Session]:
        return frozenset(self._sessions)

    # --- what sessions ask -----------------------------------------------------------------------------

    def admit(self, session: Session) -> str | None:
        """Take a connection in, or say why not."""
        if self._is_draining:
            return "the broker is stopping"
        if len(self._sessions) >= self.limits.connections_max:
            return f"max.connections ({self.limits.connections_max}) are open"
        self._sessions.add(session)
        return None

    def forget(self, session: Session) -> None:
        self._sessions.discard(session)
        self._waiting.discard(session)
        self._to_flush.discard(session)
        self._kept_total -= self._kept.pop(session, 0)

    def note_kept(self, session: Session, kept_bytes: int) -> None:
        """A connection holds so much of an unfinished request now."""
        self._kept_total += kept_bytes - self._kept.pop(session, 0)
        if kept_bytes:
            self._kept[session] = kept_bytes

    def must_wait(self, session: Session, kept_bytes: int, *, last_bytes: int) -> bool:
        """Whether a connection has to wait for room that all share.

        One that holds nothing unfinished is read on: only those with half a request hold memory. While too much is
        not on the disk those wait who send much at once; the others only when even that does not help.
        """
        unsynced, in_flight_bytes_max = self._unsynced, self.limits.in_flight_bytes_max
        if unsynced.total <= unsynced.bytes_max and self._kept_total <= in_flight_bytes_max:
            return False
        # The largest holder may always go on, or all would wait for each other; so may whoever holds nothing, or
        # a few requests that never end would stop everybody.
        too_much = self._kept_total > in_flight_bytes_max and 0 < kept_bytes < max(self._kept.values())
        if not too_much:
            if not unsynced.too_many:
                return False
            if max(last_bytes, kept_bytes) < BULK_BYTES_MIN and not unsynced.far_too_many:
                return False
        if not self._waiting:
            self.loop.call_later(LOOK_AGAIN_MS / 1000, self._look_again)
        self._waiting.add(session)
        return True

    def flush_soon(self, session: Session) -> None:
        """Send at the end of this pass what was answered in it, however many answers that are."""
        if not self._to_flush:
            self.loop.call_soon(self._flush_all)
        self._to_flush.add(session)

    def _flush_all(self) -> None:
        sessions, self._to_flush = self._to_flush, set()
        for session in sessions:
            session.flush()

    def _look_again(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for session in waiting:
            session.look_again()

    def _check_idle(self) -> None:
        if self.limits.idle_ms_max < 0:
            return
        check_ms = min(IDLE_CHECK_MS, self.limits.idle_ms_max // 2 + 1)
        self._idle_timer = self.loop.call_later(check_ms / 1000, self._check_idle)
        now_ms = self._now_ms()
        for session in tuple(self._sessions):
            if session.is_silent(since_ms=now_ms - self.limits.idle_ms_max, now_ms=now_ms):
                session.expire()

    # --- ending --------------------------------------------------------------------------------------

    async def drain(self, timeout_s: float) -> None:
        """Take no more connections and requests; wait until what came is answered, then close."""
        self._is_draining = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for server in self._servers:
            server.close()
        for session in self.sessions:
            session.stop_reading()
        deadline = self.loop.time() + timeout_s
        while self.loop.time() < deadline and not all(session.is_idle for session in self.sessions):
            await asyncio.sleep(0.01)
        for session in self.sessions:
            session.close()
        await asyncio.sleep(0)
