"""Room for requests that have come in part, lent to connections for as long as that lasts."""

from __future__ import annotations

from mmap import mmap

from ottla.protocol.frames import Rooms

ROOM_BYTES = (1 << 20) + (64 << 10)
"""A request as large as clients make them by default; no more, so that it stays in the processor's cache."""
LENT_MAX = 32
"""Whoever comes later keeps what is unfinished as best it can."""
SPARE_MAX = 4
"""Those that are kept while nobody uses them."""


class LentRooms(Rooms):
    """The rooms of all connections of a server."""

    room_bytes = ROOM_BYTES

    def __init__(self) -> None:
        self._spare: list[memoryview] = []
        self._lent = 0

    def take(self) -> memoryview | None:
        if self._lent == LENT_MAX:
            return None
        self._lent += 1
        # Not a bytearray: a page that is never written to takes no memory.
        return self._spare.pop() if self._spare else memoryview(mmap(-1, ROOM_BYTES))

    def give_back(self, room: memoryview) -> None:
        self._lent -= 1
        if len(self._spare) < SPARE_MAX:
            self._spare.append(room)
