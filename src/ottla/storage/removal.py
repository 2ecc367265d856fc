"""Remove a log's oldest segments: the log start first, durably, then the files.

Deleting a large file takes long, so this is a job that any thread may run. The log has forgotten the
segments by then; whoever still reads a slice of one keeps its descriptor.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ottla.errors import DiskFull
from ottla.storage.checkpoint import encode_number, write_atomically
from ottla.storage.disk import Disk
from ottla.storage.producer_replay import remove_snapshots
from ottla.storage.recovery import LOG_START_FILE
from ottla.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class RemovalJob:
    """Once `run` has returned, nothing below the log start comes back."""

    disk: Disk
    directory: str
    log_start_offset: int
    segments: Sequence[Segment]
    first_base_offset: int
    """Where the first segment that stays begins."""

    def run(self) -> None:
        """Raises StorageFault; what is left is removed by the next opening."""
        noted = False
        with suppress(DiskFull):
            write_log_start(self.disk, self.directory, self.log_start_offset)
            noted = True
        for segment in self.segments:
            segment.remove()
        if self.segments:
            remove_snapshots(self.disk, self.directory, below=self.first_base_offset)
        if not noted:
            # A full disk is the very time to delete; now that something is gone, there is room for the note.
            write_log_start(self.disk, self.directory, self.log_start_offset)


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """Lets go of segments whose files are gone: closing them is what frees their space, and takes long.

    Whoever still reads a slice of one keeps its descriptor until then.
    """

    segments: list[Segment]

    def run(self) -> None:
        for segment in self.segments:
            segment.let_go()


def write_log_start(disk: Disk, directory: str, offset: int) -> None:
    """Make it durable that the log begins at an offset."""
    write_atomically(disk, f"{directory}/{LOG_START_FILE}", encode_number(LOG_START_FILE, offset))
