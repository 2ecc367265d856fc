"""The sparse offset index of one segment: which byte to start at for an offset.

An entry holds the last offset of a batch, relative to the segment's first, and the batch's position
in the file: Kafka's `.index` format, eight bytes an entry. The index lives in two arrays, so that a
look-up is a bisection in C; it does not know the file it speaks of.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

ENTRY_BYTES = 8
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """Entries in ascending order of offset and position."""

    __slots__ = ("_offsets", "_positions", "count")

    def __init__(self) -> None:
        self._offsets = array("I")
        self._positions = array("I")
        self.count = 0
        """How many entries there are."""

    def add(self, *, relative_offset: int, position: int) -> None:
        """Note that the batch at `position` ends with `relative_offset`."""
        self._offsets.append(relative_offset)
        self._positions.append(position)
        self.count += 1

    def extend(self, relative_offsets: bytes, positions: bytes) -> None:
        """Note several, each number in four bytes as the machine has them."""
        self._offsets.frombytes(relative_offsets)
        self._positions.frombytes(positions)
        self.count = len(self._positions)

    def floor(self, relative_offset: int) -> int:
        """A position at or before the batch that holds the offset; 0 when no entry is that early."""
        at = bisect_right(self._offsets, relative_offset)
        return self._positions[at - 1] if at else 0

    def ceiling(self, position: int) -> int | None:
        """A relative offset that no batch before `position` reaches; None when no entry is that late."""
        at = bisect_left(self._positions, position)
        return self._offsets[at] if at < len(self._positions) else None

    @property
    def last_position(self) -> int:
        """Where the last indexed batch begins, 0 without entries."""
        return self._positions[-1] if self._positions else 0

    def to_bytes(self) -> bytes:
        """The `.index` file."""
        pairs = array("I", bytes(ENTRY_BYTES * self.count))
        pairs[0::2] = self._offsets
        pairs[1::2] = self._positions
        if _SWAP:
            pairs.byteswap()
        return pairs.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> OffsetIndex:
        """Read a whole `.index` file whose checksum the caller has checked."""
        pairs = array("I", data)
        if _SWAP:
            pairs.byteswap()
        index = cls()
        index._offsets = pairs[0::2]
        index._positions = pairs[1::2]
        index.count = len(index._offsets)
        return index
