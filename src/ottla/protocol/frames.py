"""Frames: four bytes of size, then that many bytes.

Cuts a stream of bytes, however it arrives, into frames, and keeps what is unfinished. Knows nothing of
what is inside a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from ottla.errors import ProtocolError
from ottla.protocol.wire import COPIED_BYTES_MAX, Buffer

FRAME_BYTES_MAX = 100 * 1024 * 1024
"""The largest frame taken unless another limit is given; the same as Kafka's default for requests."""

_SIZE = Struct(">i")
_SIZE_BYTES = _SIZE.size
_NOTHING = b""
_read_size = _SIZE.unpack_from


class Rooms:
    """Lends room for frames that have come in part; this one has none to lend."""

    room_bytes = 0

    def take(self) -> memoryview | None:
        """As many bytes, or None: there is no room now."""
        return None

    def give_back(self, room: memoryview) -> None:
        """It is not used any more."""


NO_ROOMS = Rooms()


class FrameReader:
    """Cuts received bytes into frames.

    `feed` it, take frames with `next_frame` until there is none, then `release`: whoever received the bytes
    may then use the buffer again. A frame that arrived in one piece is a view of that buffer, or a copy where
    that is cheaper; one that did not is a view of a copy. Memory grows with the bytes that have come, never with
    a size that was announced.

    With `rooms`, the beginning of a frame is kept in one of them, and what follows can be received right behind it
    (`room`, `received`): only the beginning has been copied then.
    """

    __slots__ = ("_frame_bytes_max", "_room", "_rooms", "_tail", "_view", "bytes_kept", "position")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX, rooms: Rooms = NO_ROOMS) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._rooms = rooms
        self._room: memoryview | None = None
        self._tail = bytearray()
        self._view: bytes | memoryview = _NOTHING
        self.position = 0
        """Where the next frame begins in what was fed."""
        self.bytes_kept = 0
        """Bytes of an unfinished frame that wait for the rest: those in the room, or else all of the tail."""

    def room(self) -> memoryview | None:
        """Where to receive what follows the bytes that are kept; None: anywhere, to `feed` it."""
        room, filled = self._room, self.bytes_kept
        return None if room is None or filled == len(room) else room[filled:]

    def received(self, count: int) -> None:
        """So many bytes came into `room`; feed nothing to go on with them."""
        self.bytes_kept += count

    def feed(self, data: Buffer) -> None:
        """Take in received bytes."""
        self.position = 0
        if not self.bytes_kept:
            self._view = _readable(data)
            return
        room = self._room
        if room is not None and not data:
            self._view = _readable(room[: self.bytes_kept])
            return
        if room is not None:
            self._tail += room[: self.bytes_kept]
            self._leave_room()
        self._tail += data
        self.bytes_kept = len(self._tail)
        self._view = memoryview(self._tail)

    def next_frame(self) -> bytes | memoryview | None:
        """What is inside the next frame, or None if it is not complete. Raises ProtocolError for a bad size."""
        view, position = self._view, self.position
        start, length = position + _SIZE_BYTES, len(view)
        if start > length:
            return None
        (size,) = _read_size(view, position)
        if not 0 <= size <= self._frame_bytes_max:
            raise ProtocolError(f"a frame of {size} bytes; 0 to {self._frame_bytes_max} are taken")
        end = start + size
        if end > length:
            return None
        self.position = end
        return view[start:end]

    def release(self) -> None:
        """Let go of the buffer that was fed, keeping a copy of what has not been taken as a frame."""
        view, self._view = self._view, _NOTHING
        position, self.position = self.position, 0
        if position == len(view):
            if self.bytes_kept:
                self.forget()
        elif not position and self.bytes_kept and (self._room is None or self._fits(view)):
            # Nothing was cut off, so what is kept simply goes on growing; it can only while nobody looks at it.
            if type(view) is memoryview:
                view.release()
        else:
            self._keep(view[position:])

    def forget(self) -> None:
        """Keep nothing."""
        self.bytes_kept = 0
        if self._tail:
            self._tail = bytearray()
        self._leave_room()

    def _keep(self, rest: bytes | memoryview) -> None:
        """Copy the beginning of a frame, which may be part of what is kept already."""
        room = (self._room or self._rooms.take()) if self._fits(rest) else None
        self.bytes_kept = len(rest)
        if room is None:
            self._tail = bytearray(rest)
            self._leave_room()
        else:
            self._room = room
            room[: len(rest)] = rest
            if self._tail:
                self._tail = bytearray()

    def _fits(self, start: bytes | memoryview) -> bool:
        """Whether a room is large enough for a frame that begins so."""
        size = _SIZE_BYTES + _read_size(start, 0)[0] if len(start) >= _SIZE_BYTES else 0
        return max(size, len(start)) <= self._rooms.room_bytes

    def _leave_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            self._rooms.give_back(room)


def _readable(data: Buffer) -> bytes | memoryview:
    """A copy where that is cheaper to read, or else a view."""
    if len(data) <= COPIED_BYTES_MAX:
        return bytes(data)
    return data if type(data) is memoryview else memoryview(data)


def frame(header: bytes, body: Sequence[Buffer]) -> list[Buffer]:
    """Buffers that, written one after the other, are a frame around a header and a message."""
    size = len(header) + sum(map(len, body))
    if size > 2**31 - 1:
        raise ProtocolError(f"a frame of {size} bytes")
    # Header and start of the message are small: one buffer is cheaper to send than three.
    return [b"".join((_SIZE.pack(size), header, body[0])), *body[1:]]
