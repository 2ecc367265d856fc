"""Connections that outlive the task which opened them.

Spark uses a Python worker for task after task, so what is kept in a global of its process saves each task the
handshakes. What is pickled and sent around never holds a connection: it holds the `Connection` settings, which are
the key here. Knows nothing of what is asked over the connections.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.client.blocking_transport import BlockingTransport
from ottla.client.cluster import Cluster
from ottla.client.transport import Call, MonotonicClock, run_now
from ottla.protocol.schema import Message
from ottla.spark.options import Connection

if TYPE_CHECKING:
    from ottla.client.blocking.client import Client

SETTINGS_MAX = 16
"""Different settings that a process keeps connections for; the ones that were used longest ago go first."""
IDLE_MAX = 4
"""Sets of connections that wait to be used again, for each settings."""


class PipelinedTransport(Protocol):
    """What a reader needs beside the cluster: requests that are sent now and answered later."""

    def begin(self, call: Call) -> Any:
        """Send, and give a ticket for the answer."""
        ...

    def finish(self, ticket: Any) -> Message:
        """The answer, waited for."""
        ...

    def abandon(self, ticket: Any) -> None:
        """The answer is not wanted any more."""
        ...

    async def sleep(self, delay_ms: int) -> None: ...

    async def close(self) -> None: ...


class Link(NamedTuple):
    """One set of connections, at most one to each broker, and what is known of the cluster behind them."""

    cluster: Cluster
    transport: PipelinedTransport

    def close(self) -> None:
        run_now(self.transport.close())


class _Kept:
    """What one process keeps for one settings."""

    __slots__ = ("client", "idle")

    def __init__(self) -> None:
        self.idle: list[Link] = []
        self.client: Client | None = None

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()
        client, self.client = self.client, None
        if client is not None:
            client.close()


class Pool:
    """The connections of one process; threads may share it."""

    def __init__(self, process_id: Callable[[], int] = os.getpid) -> None:
        self._process_id = process_id
        self._begin()

    def _begin(self) -> None:
        self._owner = self._process_id()
        self._lock = threading.Lock()
        self._kept: dict[Connection, _Kept] = {}

    def _of(self, connection: Connection) -> _Kept:
        if self._owner != self._process_id():
            # Forked. The sockets are the parent's, who goes on using them, and the lock may have been closed by one of
            # its threads at that moment. Letting go of our copies tells the broker nothing.
            self._begin()
        with self._lock:
            kept = self._kept.pop(connection, None) or _Kept()
            self._kept[connection] = kept
            forgotten = [self._kept.pop(each) for each in list(self._kept)[:-SETTINGS_MAX]]
        for each in forgotten:
            each.close()
        return kept

    @contextmanager
    def borrowed(self, connection: Connection) -> Iterator[Link]:
        """Connections for one user at a time. They are kept for the next one unless the block fails.

        Whoever leaves early must not leave an answer unread: see `BlockingTransport.abandon`.
        """
        try:
            link = self._of(connection).idle.pop()
        except IndexError:
            link = new_link(connection)
        try:
            yield link
        except GeneratorExit:
            # The reader of a generator has seen enough, which says nothing against the connections.
            self._give_back(connection, link)
            raise
        except BaseException:
            link.close()
            raise
        else:
            self._give_back(connection, link)

    def _give_back(self, connection: Connection, link: Link) -> None:
        idle = self._of(connection).idle
        if len(idle) < IDLE_MAX:
            idle.append(link)
        else:
            link.close()

    def client(self, connection: Connection) -> Client:
        """The one client of these settings in this process. What it makes is for one thread at a time."""
        kept = self._of(connection)
        with self._lock:
            if kept.client is None:
                kept.client = _new_client(connection)
            return kept.client

    def drop(self, connection: Connection) -> None:
        """Close what waits for use, and the client; something is wrong with it, or nobody needs it any more."""
        kept = self._of(connection)
        with self._lock:
            self._kept.pop(connection, None)
        kept.close()


def new_link(connection: Connection) -> Link:
    """Connections that are nobody else's; nothing is sent before it is needed."""
    transport = BlockingTransport(connection.client)
    cluster = Cluster(transport, connection.bootstrap, settings=connection.client, ticks=MonotonicClock())
    return Link(cluster, transport)


def _new_client(connection: Connection) -> Client:
    # Producers, consumers and groups come with it, and a process that only reads needs none of them.
    from ottla.client.assembly import Assembly
    from ottla.client.blocking.client import Client

    settings = connection.client
    return Client(Assembly(lambda: BlockingTransport(settings), connection.bootstrap, settings, in_process=False))


_POOL = Pool()
borrowed = _POOL.borrowed
client = _POOL.client
drop = _POOL.drop
