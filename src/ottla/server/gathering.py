"""A busy producer's requests, gathered for a moment before they are received.

A producer with several requests under way is answered as quickly as it sends: for each of them the loop is woken, and
a little is received, written to each partition and answered, while the next one is coming already. So after a pass
that shows such a producer, by several requests that came together or by more that came before the answer, the system
is asked to wake the loop only when as much is there again (`SO_RCVLOWAT`), though not more than comes in a few
milliseconds; a producer at its leisure is not waited for. Nobody waits for long: when a moment brings no such pass,
whatever has come is received, however little it is.
"""

from __future__ import annotations

import asyncio
import socket
from fcntl import ioctl
from termios import FIONREAD

MOMENT_S = 0.005
"""How often it is looked whether such a pass came."""
PASS_S = 0.003
"""How long it may take, at the producer's pace, until all that is waited for has come."""
PACE_S, PACE_MIN = 0.02, 40_000_000
"""Over which time the pace is taken, and how many bytes a second are worth it."""
CHANGE_MIN = 4
"""A mark is moved when it is off by more than this part of it."""
NO_MARK = 1
COUNT_MAX = 5
"""How many requests may be waited for: what Kafka's client has under way."""
REQUEST_BYTES_MIN, REQUEST_BYTES_MAX = 16 << 10, 128 << 10
"""The size of those that are worth it: a batch of Kafka's client at least, and not so much that one is enough."""


class Gathering:
    """What one connection waits for."""

    __slots__ = ("_bytes", "_handle", "_is_over", "_loop", "_mark", "_pace", "_paced_at")

    def __init__(self, handle: socket.socket | None, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = handle
        self._loop = loop
        self._mark = NO_MARK
        self._bytes = 0
        """What a pass since the last look would have the next one wait for."""
        self._pace = 0.0
        """How many bytes a second came lately."""
        self._paced_at = 0.0, 0
        """When that was looked at, and how many had come in all."""
        self._is_over = False

    def note(self, request_bytes: int, *, count: int, received: int) -> None:
        """A pass has brought requests of that size; so many are known to be under way, none of them answered yet.

        `received` is what has come on the connection, all in all.
        """
        now_s = self._loop.time()
        since_s, before = self._paced_at
        if now_s - since_s >= PACE_S:
            self._pace = (received - before) / (now_s - since_s)
            self._paced_at = now_s, received
        if self._pace < PACE_MIN:
            return
        if not REQUEST_BYTES_MIN <= request_bytes <= REQUEST_BYTES_MAX:
            return
        if count == 1 and self._mark == NO_MARK and self._has_more():
            count = 2
        count = min(count, COUNT_MAX, int(self._pace * PASS_S) // request_bytes)
        if count > 1:
            self.wish(request_bytes * count)

    def _has_more(self) -> bool:
        """Whether something has come since the last pass."""
        if self._handle is None:
            return False
        try:
            return any(ioctl(self._handle.fileno(), FIONREAD, b"\0\0\0\0"))
        except (OSError, ValueError):
            # Not every system can tell; and a socket that is closed has no number.
            return False

    def wish(self, size_bytes: int) -> None:
        """Let the next pass wait until it brings so much."""
        self._bytes = size_bytes
        if self._mark == NO_MARK and not self._is_over:
            self._set(size_bytes)
            self._loop.call_later(MOMENT_S, self._look)

    def end(self) -> None:
        """The connection is going to be closed; its socket must not be touched any more."""
        self._is_over = True

    def _look(self) -> None:
        if self._is_over:
            return
        wanted, self._bytes = self._bytes, 0
        if not wanted:
            self._set(NO_MARK)
            return
        if abs(wanted - self._mark) * CHANGE_MIN > self._mark:
            self._set(wanted)
        self._loop.call_later(MOMENT_S, self._look)

    def _set(self, mark: int) -> None:
        self._mark = mark
        if self._handle is None:
            return
        try:
            self._handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
        except OSError:
            # Not every system has it, and nothing is lost without.
            self._handle = None
