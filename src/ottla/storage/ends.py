"""Where a segment ends: what its file, its indexes and itself know of that, and what appending a run changes.

`OsFile`, `SegmentIndexes` and `Segment` are made of these. With the compiled kernel they are its own, so that a run of
plain batches is placed, written and noted without a step of the interpreter; here is what they do without it.
"""

from __future__ import annotations

from typing import Any

from ottla.records import kernel
from ottla.records.batch import OFFSET_DELTA_MAX
from ottla.records.plain import Run

LOOK_FIRST = -(2**63)
"""No timestamp is smaller: every batch needs a closer look before it is appended."""
LOOK_FROM_MS_MAX = 2**63 - 1

IndexEntries = tuple[bytes, bytes, list[tuple[int, int]]]
"""Relative offsets, and the positions to them, four bytes each; timestamps, and the relative offsets to those."""


class PlainFileEnd:
    """A descriptor that is appended to, and how many bytes there are."""

    __slots__ = ("_descriptor", "_size")

    _descriptor: int
    _size: int


class PlainIndexEnd:
    """How far the indexes of a segment go."""

    __slots__ = (
        "base_offset",
        "count",
        "indexed_at",
        "interval_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "timed_ms",
    )

    base_offset: int
    interval_bytes: int
    indexed_at: int
    """Where the last indexed batch begins: the next is due an interval later."""
    max_timestamp_ms: int
    max_timestamp_offset: int
    timed_ms: int
    """The last timestamp of the time index."""
    count: int
    """How many entries the offset index has, with those that wait."""
    waiting = 0
    """How many entries have still to be entered; here they never wait."""

    # What a whole index is, its owner knows.
    offsets: Any
    times: Any

    def enter_run(self, run: Run) -> None:
        """Index the batches of a run that was placed behind these."""
        self.max_timestamp_ms, self.max_timestamp_offset = run.max_timestamp_ms, run.max_timestamp_offset
        if run.indexed_at != self.indexed_at:
            self.indexed_at = run.indexed_at
            self.offsets.extend(*run.entries())
            self.count = self.offsets.count
            for self.timed_ms, relative_offset in run.times:
                self.times.add(timestamp_ms=self.timed_ms, relative_offset=relative_offset)

    def take_waiting(self) -> IndexEntries:
        """The entries that wait, which are entered now."""
        raise AssertionError("no entry waits")


class PlainSegmentEnd:
    """How far a segment goes, and what may follow."""

    __slots__ = (
        "_file",
        "_indexes",
        "base_offset",
        "end_offset",
        "index_entries_max",
        "last_batch_offset",
        "last_batch_position",
        "look_from_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "size",
    )

    _file: Any
    _indexes: Any
    base_offset: int
    end_offset: int
    size: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    last_batch_offset: int
    """The first offset of the last batch, if that is known, else -1; and where it begins."""
    last_batch_position: int
    look_from_ms: int
    """A batch with this timestamp or a later one may need a new segment: see `rolling`."""
    index_entries_max: int
    """When the index has this many entries, a closer look is due too."""

    def place(
        self, run: Run, *, leader_epoch: int, oldest_ms: int, newest_ms: int, batch_bytes_max: int, bytes_max: int
    ) -> bool:
        """Give the batches of a run their places at the end; false where every one of them needs a closer look."""
        indexes = self._indexes
        if indexes is None or self.look_from_ms == LOOK_FIRST:
            return False
        return (
            run.place(
                first_offset=self.end_offset,
                leader_epoch=leader_epoch,
                oldest_ms=oldest_ms,
                newest_ms=newest_ms,
                batch_bytes_max=batch_bytes_max,
                base_offset=self.base_offset,
                position=self.size,
                indexed_at=indexes.indexed_at,
                interval_bytes=indexes.interval_bytes,
                max_timestamp_ms=indexes.max_timestamp_ms,
                max_timestamp_offset=indexes.max_timestamp_offset,
                timed_ms=indexes.timed_ms,
            )
            and self.size + run.size <= bytes_max
            and run.newest_ms < self.look_from_ms
            and run.end_offset - self.base_offset <= OFFSET_DELTA_MAX
            # The index could be full before the last of them, which then belongs into another segment.
            and indexes.count + len(run) <= self.index_entries_max
        )

    def write(self, run: Run) -> None:
        """Write batches that were given their places."""
        file, indexes = self._file or self.file, self._indexes
        assert indexes is not None, "only a segment that was opened for writing grows"
        file.append(run.parts())
        indexes.enter_run(run)
        self.max_timestamp_ms, self.max_timestamp_offset = indexes.max_timestamp_ms, indexes.max_timestamp_offset
        if indexes.count >= self.index_entries_max:
            self.look_from_ms = LOOK_FIRST
        self.last_batch_offset, self.last_batch_position = run.tail
        self.size += run.size
        self.end_offset = run.end_offset

    @property
    def file(self) -> Any:
        """The open file."""
        raise AssertionError("the segment knows its file")


FileEnd = PlainFileEnd
IndexEnd = PlainIndexEnd
SegmentEnd = PlainSegmentEnd
if kernel.compiled is not None:
    FileEnd = kernel.compiled.FileEnd  # type: ignore[misc]
    IndexEnd = kernel.compiled.IndexEnd  # type: ignore[misc]
    SegmentEnd = kernel.compiled.SegmentEnd  # type: ignore[misc]
