"""Sockets for the blocking face: plain blocking calls on the caller's thread, no event loop.

One connection per broker address, opened at first use and again after it broke. A request that is not
answered in time costs its connection, because the answers behind it could not be told apart any more.
Belongs to one thread at a time; only `close` may be called from another.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, cast

from ottla.client.errors import ClientClosed, NetworkException, RequestTimedOut, Unreachable
from ottla.client.security import Security, session_end_ms
from ottla.client.settings import Address, ClientSettings
from ottla.client.transport import Call, MonotonicClock, Reply
from ottla.errors import OttlaError, ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.frames import FRAME_BYTES_MAX
from ottla.protocol.schema import Message
from ottla.protocol.wire import Buffer

RECEIVE_BYTES = 256 * 1024
IOV_MAX = 512
"""Buffers handed to the kernel at once; it takes at least twice as many."""
_SIZE = Struct(">i")


class _Line:
    """One connection."""

    __slots__ = (
        "_answers",
        "_connection",
        "_has_answered",
        "_has_heard",
        "_head",
        "_partial",
        "_received",
        "_security",
        "_session_end_ms",
        "_socket",
        "_ticks",
        "address",
    )

    def __init__(
        self, address: Address, client_id: str, security: Security, ticks: MonotonicClock, *, connect_timeout_ms: int
    ) -> None:
        self.address = address
        self._security = security
        self._ticks = ticks
        self._session_end_ms: int | None = None
        """From when on the login is as good as over."""
        self._has_heard = False
        self._has_answered = False
        """More than the question for versions, which is free to everybody."""
        self._connection = ClientConnection(client_id)
        self._answers: dict[int, Message] = {}
        self._head = b""
        """The beginning of an answer, too short to tell its size."""
        self._partial: bytearray | None = None
        """Room for the whole of an answer that has come in part."""
        self._received = 0
        """How much of it is there."""
        deadline_ms = ticks.now_ms() + connect_timeout_ms
        self._socket = _connected(address, security, deadline_ms=deadline_ms, ticks=ticks)
        if security.uses_sasl:
            try:
                self._log_in(deadline_ms, connect_timeout_ms)
            except BaseException:
                self._socket.close()
                raise

    def _log_in(self, deadline_ms: int, timeout_ms: int) -> None:
        """Say who we are; nothing else may be asked before."""
        steps = self._security.login(self.address, self._security.token())
        reply: Message | None = None
        try:
            while True:
                step = steps.send(cast(Message, reply))
                call = Call(self.address, step.api_key, step.version, step.message, timeout_ms)
                correlation_id = self.send(call, deadline_ms - self._ticks.now_ms())
                reply = self.receive(correlation_id, call, deadline_ms=deadline_ms, ticks=self._ticks)
        except StopIteration as done:
            self._session_end_ms = session_end_ms(now_ms=self._ticks.now_ms(), lifetime_ms=done.value)

    def send(self, call: Call, timeout_ms: int) -> int:
        correlation_id, buffers = self._connection.send(
            call.api_key, call.version, call.message, expects_response=call.expects_response
        )
        self._socket.settimeout(max(timeout_ms, 1) / 1000)
        try:
            if self._security.uses_tls:
                # It takes one piece at a time, and copies what it encrypts anyway.
                self._socket.sendall(b"".join(buffers))
            else:
                _send_all(self._socket, buffers)
        except TimeoutError as e:
            raise RequestTimedOut(f"{self.address}: {call.api_key.name} could not be sent in time") from e
        except OSError as e:
            raise self._lost(e) from e
        return correlation_id

    def receive(self, correlation_id: int, call: Call, *, deadline_ms: int, ticks: MonotonicClock) -> Message:
        """The answer to the request of this number; answers that come before it are kept."""
        while correlation_id not in self._answers:
            left_ms = deadline_ms - ticks.now_ms()
            if left_ms <= 0:
                raise RequestTimedOut(f"{self.address}: no answer to {call.api_key.name} in {call.timeout_ms} ms")
            self._socket.settimeout(left_ms / 1000)
            try:
                self._receive_some()
            except TimeoutError:
                continue
            except OSError as e:
                raise self._lost(e) from e
        return self._answers.pop(correlation_id)

    def _receive_some(self) -> None:
        """Read once. The rest of a long answer goes straight to its place, so that it is not copied again."""
        if self._partial is None:
            # Fresh bytes each time: the messages keep views of them.
            data = self._socket.recv(RECEIVE_BYTES)
            self._require_some(len(data))
            if not self._has_heard:
                self._has_heard = True
                self._security.check_first_bytes(self.address, data)
            self._cut(self._head + data if self._head else data)
            return
        with memoryview(self._partial) as room, room[self._received :] as left:
            count = self._socket.recv_into(left)
        self._require_some(count)
        self._received += count
        if self._received == len(self._partial):
            whole, self._partial = self._partial, None
            self._hand_over(whole)

    def _require_some(self, count: int) -> None:
        if not count:
            raise self._lost(None)

    def _lost(self, error: OSError | None) -> OttlaError:
        return self._security.lost(self.address, error, has_heard=self._has_heard, has_answered=self._has_answered)

    def _cut(self, data: bytes) -> None:
        """Hand over the answers that are whole, and make room for the one that is not."""
        start, end = 0, len(data)
        while end - start >= _SIZE.size:
            size = _SIZE.unpack_from(data, start)[0]
            if not 0 <= size <= FRAME_BYTES_MAX:
                # The connection refuses it, and says why.
                start = end
                break
            following = start + _SIZE.size + size
            if following > end:
                self._partial = bytearray(_SIZE.size + size)
                self._partial[: end - start] = data[start:]
                self._received = end - start
                break
            start = following
        self._head = data[start:] if self._partial is None else b""
        if start:
            self._hand_over(data[:start])

    def _hand_over(self, data: Buffer) -> None:
        for response in self._connection.receive(data):
            if not self._has_answered and response.api_key is not ApiKey.API_VERSIONS:
                self._has_answered = True
                self._security.admitted()
            self._answers[response.correlation_id] = response.message

    def is_dead(self) -> bool:
        """Whether the broker has hung up while nothing was asked, as it does with connections that idle; or soon will.

        Anything that came unasked is as bad. Looked at before a request, since a request that dies with its
        connection may or may not have been carried out.
        """
        if self._connection.in_flight or self._answers:
            return False
        if self._session_end_ms is not None and self._ticks.now_ms() >= self._session_end_ms:
            return True
        # With a timeout Python waits for bytes, whatever the flags say.
        self._socket.settimeout(0)
        try:
            # TLS has no peeking, and what it has to say to itself is not an answer.
            self._socket.recv(1, 0 if self._security.uses_tls else socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError as e:
            return not self._security.is_waiting(e)
        return True

    def close(self) -> None:
        self._socket.close()

    def interrupt(self) -> None:
        """Wake a thread that reads; it finds the connection closed."""
        try:
            # Of the socket itself: TLS would first forget that it is there, and bytes could leave in the clear.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            # It was not connected any more, so nobody waits on it.
            return


class Ticket(NamedTuple):
    """A request that was sent and whose answer has not been taken yet."""

    call: Call
    line: _Line
    correlation_id: int


class BlockingTransport:
    """Connections to brokers for one thread."""

    window = 5
    """As many batches per producer and partition as a broker recognises when they are sent again."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._security = Security(settings)
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

    def begin(self, call: Call) -> Ticket:
        """Send and do not wait, so that the broker works while the caller does; raises what kept it from being sent."""
        assert call.expects_response, "there would be nothing to finish"
        sent = self._send(call)
        if isinstance(sent, OttlaError):
            raise sent
        return Ticket(call, *sent)

    def finish(self, ticket: Ticket) -> Message:
        """Wait for the answer. Its time runs from this call on: the caller may have been away for long."""
        reply = self._receive(ticket.call, (ticket.line, ticket.correlation_id), self._ticks.now_ms())
        if isinstance(reply, OttlaError):
            raise reply
        assert reply is not None, "a response was expected"
        return reply

    def abandon(self, ticket: Ticket) -> None:
        """Nobody wants the answer any more. Its connection goes with it, since the answer would have to be read."""
        self._drop(ticket.line)

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
            line = _Line(
                address, self._settings.client_id, self._security, self._ticks, connect_timeout_ms=connect_timeout_ms
            )
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


def _connected(address: Address, security: Security, *, deadline_ms: int, ticks: MonotonicClock) -> socket.socket:
    """A socket that is connected, and safe where it is to be."""
    opened: socket.socket | None = None
    try:
        # Before the connection is made: what is wrong with a file has nothing to do with the broker.
        context = security.context() if security.uses_tls else None
        opened = socket.create_connection(address, timeout=max(deadline_ms - ticks.now_ms(), 1) / 1000)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            opened.settimeout(max(deadline_ms - ticks.now_ms(), 1) / 1000)
            opened = context.wrap_socket(opened, server_hostname=address.host)
    except TimeoutError as e:
        _close(opened)
        raise Unreachable(f"no connection to {address}: {e}") from e
    except OSError as e:
        _close(opened)
        raise security.connecting_failed(address, e) from e
    return opened


def _close(opened: socket.socket | None) -> None:
    if opened is not None:
        opened.close()


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
