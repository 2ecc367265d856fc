"""Bytes of a file that go into a response without passing through this program's memory, if they can.

The codec takes it for a buffer that it need not look into; whoever writes the response reads or sends it.
"""

from __future__ import annotations

from ottla.storage.disk import File
from ottla.storage.segments import LogSlice

INLINE_BYTES_MAX = 4096
"""Records up to here are read at once: the codec copies small ones, and a range of its own costs more."""


class FileRange:
    """A run of bytes in a file."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, *, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes themselves."""
        return self.file.read(position=self.position, size=self.size)


def records_of(found: LogSlice | None, *, as_range: bool) -> bytes | FileRange:
    """What stands for records in a response: empty, read, or a range where that is wanted and worth it."""
    if found is None:
        return b""
    if not as_range or found.size <= INLINE_BYTES_MAX:
        return found.read()
    return FileRange(found.file, position=found.position, size=found.size)
