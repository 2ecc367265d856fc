"""The sparse time index of one segment: from which offset on to look for a timestamp.

An entry says: up to and including this offset, no timestamp is greater than this one. Kafka's
`.timeindex` format: eight bytes of timestamp, four of offset relative to the segment's first.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right

ENTRY_BYTES = 12
_SWAP = sys.byteorder == "little"


class TimeIndex:
    """Entries in strictly ascending order of timestamp."""

    __slots__ = ("_offsets", "_timestamps", "newest_ms")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("I")
        self.newest_ms = -1
        """The last entry's timestamp."""

    def __len__(self) -> int:
        return len(self._timestamps)

    def add(self, *, timestamp_ms: int, relative_offset: int) -> None:
        """Note the greatest timestamp so far; one that is not greater than the last entry's is left out."""
        if timestamp_ms <= self.newest_ms:
            return
        self.newest_ms = timestamp_ms
        self._timestamps.append(timestamp_ms)
        self._offsets.append(relative_offset)

    def floor(self, timestamp_ms: int) -> int:
        """A relative offset before which every timestamp is smaller; 0 when no entry says more."""
        at = bisect_right(self._timestamps, timestamp_ms)
        return self._offsets[at - 1] if at else 0

    def to_bytes(self) -> bytes:
        """The `.timeindex` file."""
        halves = array("I", _big_endian(self._timestamps).tobytes())
        words = array("I", bytes(ENTRY_BYTES * len(self)))
        words[0::3] = halves[0::2]
        words[1::3] = halves[1::2]
        words[2::3] = _big_endian(self._offsets)
        return words.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> TimeIndex:
        """Read a whole `.timeindex` file whose checksum the caller has checked."""
        words = array("I", data)
        halves = array("I", bytes(8 * (len(words) // 3)))
        halves[0::2] = words[0::3]
        halves[1::2] = words[1::3]
        index = cls()
        index._timestamps = _big_endian(array("q", halves.tobytes()))
        index._offsets = _big_endian(words[2::3])
        if index._timestamps:
            index.newest_ms = index._timestamps[-1]
        return index


def _big_endian(values: array[int]) -> array[int]:
    """The same words with their bytes in network order (or back)."""
    swapped = values[:]
    if _SWAP:
        swapped.byteswap()
    return swapped
