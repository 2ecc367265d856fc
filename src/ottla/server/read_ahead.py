"""What a client that reads from a cold disk will need next, asked of the disk before the client comes for it.

Nothing is done for a client whose records are in memory. Once something is not, the disk is asked for all that the
answer holds and for as much again of each file; from then on every answer has the disk asked for what follows it, up
to the end of the file, so that the disk works while the client does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.file_range import FileRange
from ottla.storage.disk import File

AHEAD_BYTES_MAX = 4 << 20
"""How much of a file is asked for at once."""
STEP_BYTES = 512 << 10
"""How much of that in one call: what a device cannot take at once the system may forget."""
FILES_MAX = 4096
"""How many files are remembered; then all are forgotten, and found to be cold again."""


class Wanted(NamedTuple):
    """A run of bytes that a client will come for."""

    file: File
    start: int
    end: int


class ReadAhead:
    """Up to where one client's cold files have been asked for."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}

    def missed(self, parts: Iterable[object]) -> list[Wanted]:
        """The first of these is not in memory: what to ask for."""
        return self._wanted([part for part in parts if type(part) is FileRange])

    def coming(self, parts: Iterable[object]) -> list[Wanted]:
        """What to ask for when these are about to be sent."""
        asked = self._asked
        if not asked:
            return []
        return self._wanted([part for part in parts if type(part) is FileRange and part.file.path in asked])

    def _wanted(self, parts: list[FileRange]) -> list[Wanted]:
        asked = self._asked
        if len(asked) > FILES_MAX:
            asked.clear()
        found = []
        for part in parts:
            path = part.file.path
            end = min(part.position + min(2 * part.size, AHEAD_BYTES_MAX), part.file.size)
            start = asked.get(path, part.position)
            if not part.position <= start <= end:
                start = part.position  # The client has gone elsewhere in this file.
            if start < end:
                found.append(Wanted(part.file, start, end))
            if end < part.file.size:
                asked[path] = end
            else:
                asked.pop(path, None)
        return found


def ask(wanted: Wanted) -> None:
    """Have the system read this into memory; nobody waits for it, and it is no more than a wish."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    try:
        for start in range(wanted.start, wanted.end, STEP_BYTES):
            advise(wanted.file.fileno(), start, min(STEP_BYTES, wanted.end - start), os.POSIX_FADV_WILLNEED)
    except OSError:
        # A file system that takes no advice.
        return
