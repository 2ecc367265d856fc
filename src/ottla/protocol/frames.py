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


class FrameReader:
    """Cuts received bytes into frames.

    `feed` it, take frames with `next_frame` until there is none, then `release`: whoever received the bytes
    may then use the buffer again. A frame that arrived in one piece is a view of that buffer, or a copy where
    that is cheaper; one that did not is a view of a copy. Memory grows with the bytes that have come, never with
    a size that was announced.
    """

    __slots__ = ("_frame_bytes_max", "_is_own", "_tail", "_view", "position")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._tail = bytearray()
        self._view: bytes | memoryview = _NOTHING
        self.position = 0
        """Where the next frame begins in what was fed."""
        self._is_own = False

    @property
    def bytes_kept(self) -> int:
        """Bytes of an unfinished frame that wait for the rest."""
        return len(self._tail)

    def move_kept(self, room: memoryview, *, bytes_come: int) -> int:
        """Put what is kept at the end of `room` and forget it, if that fits and as many new bytes complete the frame.

        Says how many bytes that is. Whoever has received behind that room can feed both as one piece, and nothing
        but the beginning of the first frame has been copied.
        """
        tail = self._tail
        kept = len(tail)
        if not kept or kept > len(room):
            return 0
        if kept >= _SIZE_BYTES and _SIZE_BYTES + _read_size(tail, 0)[0] > kept + bytes_come:
            return 0
        room[len(room) - kept :] = tail
        self._tail = bytearray()
        return kept

    def feed(self, data: Buffer) -> None:
        """Take in received bytes."""
        self.position = 0
        self._is_own = bool(self._tail)
        if self._is_own:
            self._tail += data
            self._view = memoryview(self._tail)
        else:
            self._view = bytes(data) if len(data) <= COPIED_BYTES_MAX else memoryview(data)

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

    def go_back(self, position: int) -> None:
        """Give the frames from there on once more."""
        self.position = position

    def release(self) -> None:
        """Let go of the buffer that was fed, keeping a copy of what has not been taken as a frame."""
        view, self._view = self._view, _NOTHING
        if self.position == len(view):
            if self._tail:
                self._tail = bytearray()
        elif self._is_own and self.position == 0:
            # Nothing was cut off, so the tail simply goes on growing; it can only while nobody looks at it.
            if type(view) is memoryview:
                view.release()
        else:
            self._tail = bytearray(view[self.position :])
        self.position = 0
        self._is_own = False


def frame(header: bytes, body: Sequence[Buffer]) -> list[Buffer]:
    """Buffers that, written one after the other, are a frame around a header and a message."""
    size = len(header) + sum(map(len, body))
    if size > 2**31 - 1:
        raise ProtocolError(f"a frame of {size} bytes")
    # Header and start of the message are small: one buffer is cheaper to send than three.
    return [b"".join((_SIZE.pack(size), header, body[0])), *body[1:]]
