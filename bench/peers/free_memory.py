"""Takes up memory that nobody uses, as it is on a machine that has run for a while.

A virtual machine may give memory that is free back to its host (free page reporting). Whoever writes into such memory
next has to get it again first, and pays for it: a write into the page cache then took five times as long as one into
memory that the machine still had. Who pays depends on what was wiped a few seconds before, not on who is measured.

So the page cache is filled with pages of a hole in a file, which cost no disk. What is written afterwards takes over
the oldest of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

from bench.peers.store import STORE

HOLE_BYTES = 1 << 42
"""More than all fillings of a run together: a page that was read once would be taken from the cache."""
PIECE_BYTES = 4 << 20
PIECES = 8
TAKEN_BACK_PAGES = 1 << 14
"""So many pages of others has the kernel taken for new ones when nothing is free any more."""
TAKEN_BACK_FIELDS = ("pgsteal_kswapd", "pgsteal_direct")

MEMORY_RULE = (
    "Since 18 November 2026 free memory is filled with pages of the file cache before each turn, as on a machine that",
    "has run for a while: memory that had gone back to the machine's host made a write five times as dear.",
)
"""The same in words, for pages."""


def taken_back(path: Path = Path("/proc/vmstat")) -> int | None:
    """How many pages the kernel has taken from somebody since its start; None where nobody tells."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith(TAKEN_BACK_FIELDS)]
    return sum(found) if found else None


def settle(*, is_quick: bool) -> None:
    """Nothing is left to be written to the disk, and no memory is free; a quick run takes that as it is."""
    os.sync()
    if not is_quick:
        fill(_hole(STORE))


def drop_cached(directory: Path, *, is_quick: bool) -> None:
    """Let the kernel forget the files of a broker, as after a long time: written, and no longer in the page cache."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
    settle(is_quick=is_quick)


class Hole:
    """A file without a name that is all hole, read from its beginning to its end. Its pages go when it is closed.

    Nobody need close it: that comes with the end of the process.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        self._file.truncate(HOLE_BYTES)
        self._buffer = bytearray(PIECE_BYTES)

    def read(self) -> int:
        """How many bytes came into the cache."""
        if not (size := self._file.readinto(self._buffer)):
            self._file.seek(0)
        return size or 0

    def close(self) -> None:
        self._file.close()


def fill(hole: Hole, *, look: Callable[[], int | None] = taken_back, size_max: int | None = None) -> int:
    """Read until the kernel has to take pages back, at most as much as the machine has; how many bytes."""
    if size_max is None:
        size_max = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    before, size = look(), 0
    while before is not None and size < size_max and (look() or 0) - before < TAKEN_BACK_PAGES:
        for _ in range(PIECES):
            size += hole.read()
    return size


_hole = cache(Hole)
