"""The scripted cluster behind a real socket on loopback, for tests of the transports.

Runs on an event loop in a thread of its own, so that the blocking face can be tested too. Misbehaviour on the level
of bytes is chosen per connection or per request by the test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self, cast

from ottla.client.settings import Address
from ottla.client.transport import Call
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import Request, ServerConnection
from tests.client.scripted_broker import ScriptedCluster

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60

Mischief = Callable[["_Session", Request], bool]
"""Called for each request; True: it has been dealt with, so the broker does not answer."""


class _Session(asyncio.Protocol):
    def __init__(self, broker: SocketBroker) -> None:
        self._broker = broker
        self._connection = ServerConnection()
        self.transport: asyncio.Transport | None = None
        self.on_lost: Callable[[], object] = lambda: None

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_lost()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._broker.sessions.append(self)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        for request in self._connection.receive(data):
            assert isinstance(request, Request), "without a shortcut there are requests only"
            self._broker.requests.append(request)
            if self._broker.mischief(self, request):
                continue
            header = request.header
            acks_0 = header.api_key is ApiKey.PRODUCE and getattr(request.message, "acks", 1) == 0
            call = Call(self._broker.address, header.api_key, header.api_version, request.message, 0, not acks_0)
            reply = self._broker.cluster.answer(call)
            if reply is None:
                buffers = self._connection.respond_nothing(request)
            else:
                buffers = self._connection.respond(request, reply)
            for buffer in buffers:
                # Byte by byte where the test wants it: a frame may arrive in any pieces.
                for start in range(0, len(buffer), self._broker.piece_bytes):
                    self.transport.write(bytes(buffer[start : start + self._broker.piece_bytes]))


class SocketBroker:
    """Node 1 of a scripted cluster on a free port."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.sessions: list[_Session] = []
        self.requests: list[Request] = []
        self.mischief: Mischief = lambda session, request: False
        self.piece_bytes = 1 << 30
        self.address = Address("127.0.0.1", 0)
        self._ready = threading.Event()
        self.call_soon: Callable[[Callable[[], object]], object] = lambda work: None
        """Runs something on the broker's own loop."""
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def bootstrap(self) -> str:
        return str(self.address)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self.call_soon = loop.call_soon_threadsafe
        self._stop = partial(self.call_soon, stopped.set)
        server = await loop.create_server(lambda: _Session(self), "127.0.0.1", 0)
        self.address = Address(*server.sockets[0].getsockname()[:2])
        self.cluster.nodes[1] = self.address
        self._ready.set()
        await stopped.wait()
        # What has been accepted becomes a session a moment later, and fails at that if the server is closed by then:
        # nobody would close its socket. So accepting ends first.
        for listener in server.sockets:
            loop.remove_reader(listener)
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
        server.close()
        for session in self.sessions:
            if session.transport is not None:
                session.transport.abort()
        await server.wait_closed()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_SECONDS_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join(STOP_SECONDS_MAX)
        assert not self._thread.is_alive(), "the broker's loop does not end"
