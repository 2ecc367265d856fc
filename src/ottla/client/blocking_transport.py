"""Sockets for the blocking face: plain blocking calls on the caller's thread, no event loop.

One connection per broker address, opened at first use and again after it broke. A request that is not
answered in time costs its connection, because the answers behind it could not be told apart any more.
Belongs to one thread at a time; only `close` may be called from another.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from ottla.client.errors import ClientClosed, NetworkException, RequestTimedOut, Unreachable
from ottla.client.settings import Address, ClientSettings
from ottla.client.transport import Call, MonotonicClock, Reply
from ottla.errors import OttlaError, ProtocolError
from ottla.protocol.connection import ClientConnection
from ottla.protocol.schema import Message
from ottla.protocol.wire import Buffer

RECEIVE_BYTES = 256 * 1024
IOV_MAX = 512
"""Buffers handed to the kernel at once; it takes at least twice as many."""


class _Line:
    """One connection."""

    __slots__ = ("_answers", "_connection", "_socket", "address")

    def __init__(self, address: Address, client_id: str, *, connect_timeout_ms: int) -> None:
        self.address = address
        self._connection = ClientConnection(client_id)
        self._answers: dict[int, Message] = {}
        try:
            self._socket = socket.create_connection(address, timeout=connect_timeout_ms / 1000)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as e:
            raise Unreachable(f"no connection to {address}: {e}") from e

    def send(self, call: Call, timeout_ms: int) -> int:
        correlation_id, buffers = self._connection.send(
            call.api_key, call.version, call.message, expects_response=call.expects_response
        )
        self._socket.settimeout(max(timeout_ms, 1) / 1000)
        try:
            _send_all(self._socket, buffers)
        except TimeoutError as e:
            raise RequestTimedOut(f"{self.address}: {call.api_key.name} could not be sent in time") from e
        except OSError as e:
            raise NetworkException(f"{self.address}: the connection broke while sending: {e}") from e
        return correlation_id

    def receive(self, correlation_id: int, call: Call, *, deadline_ms: int, ticks: MonotonicClock) -> Message:
        """The answer to the request of this number; answers that come before it are kept."""
        while correlation_id not in self._answers:
            left_ms = deadline_ms - ticks.now_ms()
            if left_ms <= 0:
                raise RequestTimedOut(f"{self.address}: no answer to {call.api_key.name} in {call.timeout_ms} ms")
            self._socket.settimeout(left_ms / 1000)
            try:
                # Fresh bytes each time: the messages keep views of them.
                data = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                continue
            except OSError as e:
                raise NetworkException(f"{self.address}: the connection broke: {e}") from e
            if not data:
                raise NetworkException(f"{self.address}: the broker closed the connection")
            for response in self._connection.receive(data):
                self._answers[response.correlation_id] = response.message
        return self._answers.pop(correlation_id)

    def is_dead(self) -> bool:
        """Whether the broker has hung up while nothing was asked, as it does with connections that idle.

        Anything that came unasked is as bad. Looked at before a request, since a request that dies with its
        connection may or may not have been carried out.
        """
        if self._connection.in_flight:
            return False
        # With a timeout Python waits for bytes, whatever the flags say.
        self._socket.settimeout(0)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._socket.close()

    def interrupt(self) -> None:
        """Wake a thread that reads; it finds the connection closed."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It was not connected any more, so nobody waits on it.
            return


class BlockingTransport:
    """Connections to brokers for one thread."""

    window = 5
    """As many batches per producer and partition as a broker recognises when they are sent again."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._ticks = MonotonicClock()
        self._lines: dict[Address, _Line] = {}
        self._closed = threading.Event()

    async def request(self, call: Call) -> Reply:
        (reply,) = await self.exchange([call])
        if isinstance(reply, OttlaError):
            raise reply
        return reply

    async def exchange(self, calls: Sequence[Call]) -> list[Reply | OttlaError]:
        started_ms = self._ticks.now_ms()
        sent = [self._send(call) for call in calls]
        replies = [self._receive(call, line, started_ms) for call, line in zip(calls, sent, strict=True)]
        if self._closed.is_set():
            await self.close()
        return replies

    def _send(self, call: Call) -> tuple[_Line, int] | OttlaError:
        line: _Line | None = None
        try:
            line = self._line(call.address, call.timeout_ms)
            return line, line.send(call, call.timeout_ms)
        except OttlaError as e:
            # A frame may have been sent in part, so nothing more can be said on this connection.
            if not (line is None or isinstance(e, ProtocolError)):
                self._drop(line)
            return e

    def _receive(self, call: Call, sent: tuple[_Line, int] | OttlaError, started_ms: int) -> Reply | OttlaError:
        if isinstance(sent, OttlaError):
            return sent
        line, correlation_id = sent
        if not call.expects_response:
            return None
        if self._lines.get(line.address) is not line:
            return NetworkException(f"{line.address}: the connection broke before this answer came")
        try:
            return line.receive(correlation_id, call, deadline_ms=started_ms + call.timeout_ms, ticks=self._ticks)
        except OttlaError as e:
            self._drop(line)
            return e

    def _line(self, address: Address, timeout_ms: int) -> _Line:
        if self._closed.is_set():
            raise ClientClosed("the client is closed")
        line = self._lines.get(address)
        if line is not None and line.is_dead():
            self._drop(line)
            line = None
        if line is None:
            connect_timeout_ms = max(1, min(self._settings.connect_timeout_ms, timeout_ms))
            line = _Line(address, self._settings.client_id, connect_timeout_ms=connect_timeout_ms)
            self._lines[address] = line
            if self._closed.is_set():
                # Closed by another thread meanwhile, which did not see this connection.
                self._drop(line)
                raise ClientClosed("the client is closed")
        return line

    def _drop(self, line: _Line) -> None:
        line.close()
        if self._lines.get(line.address) is line:
            del self._lines[line.address]

    async def sleep(self, delay_ms: int) -> None:
        if self._closed.wait(delay_ms / 1000):
            raise ClientClosed("the client was closed while it waited")

    def interrupt(self) -> None:
        """Let whoever waits find out that it is over; for any thread."""
        self._closed.set()
        for line in list(self._lines.values()):
            line.interrupt()

    async def close(self) -> None:
        self._closed.set()
        for line in list(self._lines.values()):
            self._drop(line)

    def __del__(self) -> None:
        # Somebody used an admin once and let go of it: its sockets go with it.
        for line in list(self._lines.values()):
            line.close()


def _send_all(target: socket.socket, buffers: Sequence[Buffer]) -> None:
    """Write everything with as few calls as the kernel allows."""
    left = [memoryview(buffer) for buffer in buffers if len(buffer)]
    while left:
        sent = target.sendmsg(left[:IOV_MAX])
        while left and sent >= len(left[0]):
            sent -= len(left[0])
            del left[0]
        if sent:
            left[0] = left[0][sent:]
