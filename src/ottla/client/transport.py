"""How requests reach brokers: the contract that the client's logic is written against.

The logic is coroutines that await nothing but a transport. A transport that blocks its thread never
suspends them, so `run_now` can finish one in a single step: that is the whole blocking face. Other
transports suspend, and are awaited on an event loop.

Here are the contract and the blocking transport to a broker in the same process; sockets are in
`socket_transport` and `blocking_transport`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.client.errors import ClientClosed
from ottla.client.settings import Address
from ottla.errors import OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message

T = TypeVar("T")

IN_PROCESS = Address("in-process", 0)
"""Stands for the broker of this process; no socket is ever opened to it."""


class Call(NamedTuple):
    """One request and where it goes."""

    address: Address
    api_key: ApiKey
    version: int
    message: Message
    timeout_ms: int
    """When to give up; the transport adds nothing to it."""
    expects_response: bool = True


Reply = Message | None
"""The response, or None where none was expected."""


class Transport(Protocol):
    """One user's connections. Not to be shared: a long poll would hold up whoever is behind it."""

    @property
    def window(self) -> int:
        """How many requests to one broker may usefully be under way at once."""
        ...

    async def request(self, call: Call) -> Reply:
        """Send and wait for the response. Raises NetworkException, RequestTimedOut or ProtocolError."""
        ...

    async def exchange(self, calls: Sequence[Call]) -> list[Reply | OttlaError]:
        """Send all in order, then wait for all; what went wrong with one call stands in its place."""
        ...

    async def sleep(self, delay_ms: int) -> None:
        """Let time pass. Returns early, or raises ClientClosed, when the transport is closed."""
        ...

    def interrupt(self) -> None:
        """Let whoever waits find out that it is over, where that can be done; for any thread."""
        ...

    async def close(self) -> None:
        """Drop all connections."""
        ...


class InProcessBroker(Protocol):
    """A broker in this process."""

    @property
    def request(self) -> Callable[[ApiKey, int, Message, int], Reply]:
        """Called with the API, the version, the request and how many milliseconds it may take.

        Runs on the caller's thread and returns the response, whose records are bytes; None for Produce with
        acks=0. Raises an OttlaError when the broker is closed or the time is over. Any thread may call it.
        """
        ...


class MonotonicClock:
    """Milliseconds that only ever go up, whatever is done to the time of day: for deadlines."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class InProcessTransport:
    """Calls the broker of this process on the caller's thread."""

    __slots__ = ("_closed", "_request")

    window = 1
    """The broker is done with one request before the next can be handed to it."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._request = broker.request
        self._closed = threading.Event()

    async def request(self, call: Call) -> Reply:
        _, api_key, version, message, timeout_ms, _ = call
        return self._request(api_key, version, message, timeout_ms)

    async def exchange(self, calls: Sequence[Call]) -> list[Reply | OttlaError]:
        replies: list[Reply | OttlaError] = []
        for _, api_key, version, message, timeout_ms, _ in calls:
            try:
                replies.append(self._request(api_key, version, message, timeout_ms))
            except OttlaError as e:
                replies.append(e)
        return replies

    async def sleep(self, delay_ms: int) -> None:
        if self._closed.wait(delay_ms / 1000):
            raise ClientClosed("the client was closed while it waited")

    def interrupt(self) -> None:
        self._closed.set()

    async def close(self) -> None:
        self._closed.set()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose transport blocks: it ends within this call, on this thread."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise AssertionError("a blocking transport does not suspend")
