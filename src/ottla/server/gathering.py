"""A busy producer's requests, gathered for a moment before they are received.

A producer with several requests under way is answered as quickly as it sends: for each of them the loop is woken, and
a little is received, written to each partition and answered, while the next one is coming already. So after such a pass
the system is asked to wake the loop only when as much as came this time is there again (`SO_RCVLOWAT`). Nobody waits
for long: when a moment brings no such pass, whatever has come is received, however little it is.
"""

from __future__ import annotations

import asyncio
import socket

MOMENT_S = 0.002
CHANGE_MIN = 4
"""A mark is moved when it is off by more than this part of it."""
NO_MARK = 1


class Gathering:
    """What one connection waits for."""

    __slots__ = ("_bytes", "_handle", "_is_over", "_loop", "_mark")

    def __init__(self, handle: socket.socket | None, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = handle
        self._loop = loop
        self._mark = NO_MARK
        self._bytes = 0
        """What a pass since the last look would have the next one wait for."""
        self._is_over = False

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
