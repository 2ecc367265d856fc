"""Which offset holds the newest record of a key, for the length of one compaction.

Keys are told apart by their own bytes, long ones by their SHA-256, so that memory is bounded by the
number of keys and not by their length. How many may go in is the caller's to decide.
"""

from __future__ import annotations

from hashlib import sha256

KEY_BYTES_MAX = 32
"""A longer key is remembered by its digest, which is one byte longer than any key that is kept as it is."""
NEVER = -1


class KeyMap:
    """Keys and their newest offsets. A key takes about 125 bytes here, a digest 145."""

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, key: bytes, offset: int) -> None:
        """The record at `offset` has this key; offsets come in ascending order."""
        self._offsets[key if len(key) <= KEY_BYTES_MAX else b"\0" + sha256(key).digest()] = offset

    def newest(self, key: bytes) -> int:
        """The offset of the newest record with this key, NEVER when none was noted."""
        return self._offsets.get(key if len(key) <= KEY_BYTES_MAX else b"\0" + sha256(key).digest(), NEVER)
