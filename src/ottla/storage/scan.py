"""Walk the batches of a segment file, and build its indexes from what stands there.

Plain functions from a file to values: recovery, compaction and a child process use the same ones.
They do not know what an offset should be next; whoever walks judges that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.errors import TruncatedBatch
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader, check, peek
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.disk import File
from ottla.storage.ends import IndexEnd
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.time_index import TimeIndex

CHUNK_BYTES = 1 << 20
"""How much of a file is read at once; a larger batch is read whole."""


class FoundBatch(NamedTuple):
    """A batch at its place in a segment file. `data` is the whole batch."""

    position: int
    header: BatchHeader
    data: memoryview


def batches(file: File, *, position: int = 0, end: int | None = None, verify: bool) -> Iterator[FoundBatch]:
    """Every batch from `position` on; raises a BatchError at the first one that is not whole and right.

    Without `verify` the checksums are not computed: for a file that is known to be good.
    """
    end = file.size if end is None else end
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_SIZE:
            chunk, chunk_at, at = file.read(position=position, size=min(CHUNK_BYTES, end - position)), position, 0
        header = peek(chunk, at)
        size = header.length + LOG_OVERHEAD
        if size > end - position:
            raise TruncatedBatch(
                f"the batch at offset {header.base_offset} needs {size} bytes, {end - position} are there"
            )
        if len(chunk) - at < size:
            chunk = file.read(position=position, size=max(size, min(CHUNK_BYTES, end - position)))
            chunk_at, at = position, 0
        if verify:
            check(chunk, at)
        yield FoundBatch(position, header, memoryview(chunk)[at : at + size])
        position += size


class SegmentIndexes(IndexEnd):
    """The indexes of one segment while batches are added to it."""

    __slots__ = ("_offsets", "_times", "aborted")

    def __init__(self, base_offset: int, *, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self.aborted: list[AbortedTransaction] = []
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = -1
        self.timed_ms = self._times.newest_ms
        self.indexed_at = 0
        self.count = 0

    @classmethod
    def of(cls, base_offset: int, offsets: OffsetIndex, times: TimeIndex, *, interval_bytes: int) -> SegmentIndexes:
        """Those that were read from their files."""
        indexes = cls(base_offset, interval_bytes=interval_bytes)
        indexes._offsets, indexes._times = offsets, times
        indexes.indexed_at, indexes.count, indexes.timed_ms = offsets.last_position, offsets.count, times.newest_ms
        return indexes

    @property
    def offsets(self) -> OffsetIndex:
        if self.waiting:
            self.enter_waiting()
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        if self.waiting:
            self.enter_waiting()
        return self._times

    def enter_waiting(self) -> None:
        """The entries of runs come into the indexes when somebody looks there, many at once."""
        offsets, positions, times = self.take_waiting()
        self._offsets.extend(offsets, positions)
        for timestamp_ms, relative_offset in times:
            self._times.add(timestamp_ms=timestamp_ms, relative_offset=relative_offset)

    def note(self, *, position: int, last_offset: int, max_timestamp_ms: int) -> None:
        """A batch was written at `position`."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if position - self.indexed_at > self.interval_bytes:
            self.enter(position=position, last_offset=last_offset)

    def enter(self, *, position: int, last_offset: int) -> None:
        """Index the batch at `position`, whose timestamp is known."""
        self.indexed_at = position
        self.offsets.add(relative_offset=last_offset - self.base_offset, position=position)
        self.count += 1
        if self.max_timestamp_ms > self.timed_ms:
            self._note_time()

    def finish(self) -> None:
        """No batch follows: let the time index cover the last ones too."""
        self._note_time()

    def _note_time(self) -> None:
        relative = self.max_timestamp_offset - self.base_offset
        self.times.add(timestamp_ms=self.max_timestamp_ms, relative_offset=relative)
        self.timed_ms = self.times.newest_ms


def newest_ms(header: BatchHeader) -> int:
    """The greatest timestamp of a batch's records; a batch that compaction has emptied answers to none."""
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


def build_indexes(file: File, *, base_offset: int, interval_bytes: int, end: int | None = None) -> SegmentIndexes:
    """The offset and time index of a good segment file, read anew. Aborted transactions need more than one file."""
    indexes = SegmentIndexes(base_offset, interval_bytes=interval_bytes)
    for found in batches(file, end=end, verify=False):
        header = found.header
        indexes.note(position=found.position, last_offset=header.last_offset, max_timestamp_ms=newest_ms(header))
    indexes.finish()
    return indexes
