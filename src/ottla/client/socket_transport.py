"""Sockets for the async face: one pipelined connection per broker address on the running event loop.

Answers are matched to requests by `ClientConnection`; a request that is not answered in time costs its
connection, because the answers behind it could not be told apart any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

from ottla.client.errors import ClientClosed, NetworkException, RequestTimedOut, Unreachable
from ottla.client.security import Security, session_end_ms
from ottla.client.settings import Address, ClientSettings
from ottla.client.transport import Call, InProcessBroker, Reply
from ottla.errors import OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.schema import Message

THREADS_MAX = 4
"""Requests of one user that the broker of this process can be busy with at once."""

_Answer = asyncio.Future[Message]


class _Line(asyncio.Protocol):
    """One connection: what was asked, in order, and who waits for it."""

    def __init__(self, address: Address, client_id: str, security: Security) -> None:
        self.address = address
        self.session_end_ms: int | None = None
        """From when on the login is as good as over, by the loop's clock."""
        self._security = security
        self._has_heard = False
        self._has_answered = False
        """More than the question for versions, which is free to everybody."""
        self._connection = ClientConnection(client_id)
        self._waiting: deque[_Answer] = deque()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._broken: OttlaError | None = None

    @property
    def is_open(self) -> bool:
        return self._broken is None

    @property
    def is_spent(self) -> bool:
        return self.session_end_ms is not None and _loop_ms() >= self.session_end_ms

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            if not self._has_heard:
                self._has_heard = True
                self._security.check_first_bytes(self.address, data)
            for response in self._connection.receive(data):
                if not self._has_answered and response.api_key is not ApiKey.API_VERSIONS:
                    self._has_answered = True
                    self._security.admitted()
                answer = self._waiting.popleft()
                if not answer.done():
                    answer.set_result(response.message)
        except OttlaError as e:
            self.break_off(e)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting or not self._has_heard:
            heard, answered = self._has_heard, self._has_answered
            self.break_off(self._security.lost(self.address, exc, has_heard=heard, has_answered=answered))
        else:
            # As brokers do with connections that idle; whoever comes next opens another.
            self.break_off(NetworkException(f"{self.address}: the connection was closed"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def break_off(self, reason: OttlaError) -> None:
        """Nothing more can come over this connection."""
        if self._broken is None:
            self._broken = reason
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(self._broken)
                # Whoever waited may be gone; then nobody has to hear of it.
                answer.exception()

    async def retire(self, timeout_ms: int) -> None:
        """Let go of this connection once all that was asked over it is answered, or the time is over."""
        if self._waiting:
            await asyncio.wait(list(self._waiting), timeout=timeout_ms / 1000)
        reason = NetworkException(f"{self.address}: the login was over before the answer came")
        if self._waiting or self._transport is None:
            self.break_off(reason)
        elif self._broken is None:
            self._broken = reason
            # What was sent and gets no answer may still be on its way, and goes out first.
            self._transport.close()

    async def log_in(self, token: str, timeout_ms: int) -> None:
        """Say who we are; nothing else may be asked before."""
        steps = self._security.login(self.address, token)
        reply: Message | None = None
        try:
            while True:
                step = steps.send(cast(Message, reply))
                answer = self.send(Call(self.address, step.api_key, step.version, step.message, timeout_ms))
                assert answer is not None, "every step is answered"
                reply = await answer
        except StopIteration as done:
            self.session_end_ms = session_end_ms(now_ms=_loop_ms(), lifetime_ms=done.value)

    def send(self, call: Call) -> _Answer | None:
        """Write a request; what comes back is its answer to come, unless it gets none."""
        if self._broken is not None or self._transport is None:
            raise self._broken or NetworkException(f"{self.address}: not connected")
        _, buffers = self._connection.send(
            call.api_key, call.version, call.message, expects_response=call.expects_response
        )
        self._transport.writelines(buffers)
        if not call.expects_response:
            return None
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        return answer

    async def drained(self) -> None:
        await self._writable.wait()


def _loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


class SocketTransport:
    """Connections to brokers on one event loop."""

    window = 5
    """As many batches per producer and partition as a broker recognises when they are sent again."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._security = Security(settings)
        self._lines: dict[Address, _Line] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._closed = False

    async def request(self, call: Call) -> Reply:
        sent = await self._send(call)
        return await self._receive(call, sent)

    async def exchange(self, calls: Sequence[Call]) -> list[Reply | OttlaError]:
        started: list[tuple[_Line, _Answer | None] | OttlaError] = []
        for call in calls:
            try:
                started.append(await self._send(call))
            except OttlaError as e:
                started.append(e)
        replies: list[Reply | OttlaError] = []
        for call, sent in zip(calls, started, strict=True):
            if isinstance(sent, OttlaError):
                replies.append(sent)
                continue
            try:
                replies.append(await self._receive(call, sent))
            except OttlaError as e:
                replies.append(e)
        return replies

    async def _send(self, call: Call) -> tuple[_Line, _Answer | None]:
        line = await self._line(call.address, call.timeout_ms)
        answer = line.send(call)
        try:
            async with asyncio.timeout(call.timeout_ms / 1000):
                await line.drained()
        except TimeoutError as e:
            reason = RequestTimedOut(f"{call.address}: {call.api_key.name} could not be sent in time")
            line.break_off(reason)
            raise reason from e
        return line, answer

    async def _receive(self, call: Call, sent: tuple[_Line, _Answer | None]) -> Reply:
        line, answer = sent
        if answer is None:
            return None
        try:
            async with asyncio.timeout(call.timeout_ms / 1000):
                return await answer
        except TimeoutError as e:
            reason = RequestTimedOut(f"{call.address}: no answer to {call.api_key.name} in {call.timeout_ms} ms")
            line.break_off(reason)
            raise reason from e

    async def _line(self, address: Address, timeout_ms: int) -> _Line:
        line = self._lines.get(address)
        if line is not None and line.is_open and not line.is_spent:
            return line
        async with self._connecting.setdefault(address, asyncio.Lock()):
            line = self._lines.get(address)
            if line is not None and line.is_open and line.is_spent:
                # Whoever comes meanwhile waits behind us, so that no request overtakes another.
                await line.retire(timeout_ms)
            if line is None or not line.is_open:
                line = await self._connect(address, min(timeout_ms, self._settings.connect_timeout_ms))
            return line

    async def _connect(self, address: Address, timeout_ms: int) -> _Line:
        self._check_open()
        security = self._security
        make = partial(_Line, address, self._settings.client_id, security)
        context = security.context() if security.uses_tls else None
        made: _Line | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                loop = asyncio.get_running_loop()
                _, line = await loop.create_connection(make, address.host, address.port, ssl=context)
                made = line
                if security.uses_sasl:
                    wait = security.may_wait_for_token
                    token = await asyncio.to_thread(security.token) if wait else security.token()
                    await line.log_in(token, timeout_ms)
                made = None
        except TimeoutError as e:
            raise Unreachable(f"no connection to {address} in {timeout_ms} ms") from e
        except OSError as e:
            raise security.connecting_failed(address, e) from e
        finally:
            if made is not None:
                made.break_off(NetworkException(f"{address}: the login did not come to its end"))
        self._lines[address] = line
        # It may have been closed while the connection was being made.
        self._check_open()
        return line

    def _check_open(self) -> None:
        if self._closed:
            self.interrupt()
            raise ClientClosed("the client is closed")

    async def sleep(self, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)

    def interrupt(self) -> None:
        self._closed = True
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.break_off(ClientClosed("the client is closed"))

    async def close(self) -> None:
        self.interrupt()


class ThreadTransport:
    """Reaches the broker of this process without blocking the event loop: each request runs in a thread.

    The hop costs more than most requests; programs for which that matters use the blocking face. The threads are this
    user's own: a member that waits for its group's rebalance must not keep the others from joining.
    """

    window = 1

    def __init__(self, broker: InProcessBroker) -> None:
        self._request = broker.request
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    async def request(self, call: Call) -> Reply:
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, "ottla-in-process")
        work = partial(self._request, call.api_key, call.version, call.message, call.timeout_ms)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def exchange(self, calls: Sequence[Call]) -> list[Reply | OttlaError]:
        replies: list[Reply | OttlaError] = []
        for call in calls:
            try:
                replies.append(await self.request(call))
            except OttlaError as e:
                replies.append(e)
        return replies

    async def sleep(self, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)

    def interrupt(self) -> None:
        """What is under way cannot be broken off; nothing new begins."""
        self._closed = True

    async def close(self) -> None:
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False)
