"""The segments of one log in order, and how to find things in them: the reading side of a log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.errors import BatchError, StorageFault
from ottla.records.batch import LOG_APPEND_TIME_BIT
from ottla.records.reader import spans, unpack
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.disk import File
from ottla.storage.retention import SegmentFacts
from ottla.storage.scan import FoundBatch, batches
from ottla.storage.segment import LOG_SUFFIX, Segment


class LogSlice(NamedTuple):
    """A run of bytes in a segment's file that begins with a whole batch.

    It may end inside a batch, as a fetch response may. It stays readable when its segment is deleted.
    """

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        return self.file.read(position=self.position, size=self.size)


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class Segments:
    """Never empty once a log is open; the last segment is the active one."""

    __slots__ = ("_bases", "_items", "active")

    def __init__(self, items: list[Segment]) -> None:
        self._items = items
        self._bases = [segment.base_offset for segment in items]
        self.active = items[-1]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, at: int) -> Segment:
        return self._items[at]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._items)

    def add(self, segment: Segment) -> None:
        """A new active segment."""
        self._items.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def pop_first(self) -> Segment:
        del self._bases[0]
        return self._items.pop(0)

    def pop_last(self) -> Segment:
        """The segment before it becomes the active one, if there is one."""
        self._bases.pop()
        last = self._items.pop()
        if self._items:
            self.active = self._items[-1]
        return last

    def replace_range(self, segment: Segment) -> list[Segment]:
        """Put one sealed segment in the place of all that its range covers; returns those."""
        first, end = self.index_of(segment.base_offset), self.index_of(segment.end_offset - 1) + 1
        assert self._bases[first] == segment.base_offset, "the segments have changed since the swap began"
        replaced = self._items[first:end]
        self._items[first:end] = [segment]
        self._bases[first:end] = [segment.base_offset]
        return replaced

    def starting_at(self, base_offsets: Iterable[int]) -> list[Segment]:
        """The segments that begin at these offsets; those that are gone are left out."""
        wanted = set(base_offsets)
        return [segment for segment in self._items if segment.base_offset in wanted]

    def index_of(self, offset: int) -> int:
        """Which segment an offset belongs to."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def facts(self) -> list[SegmentFacts]:
        """The sealed segments, the active one aside, up to the first that is not sealed yet."""
        facts = []
        for segment in self._items[:-1]:
            if segment.seal is None:
                break
            newest_ms = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.seal.sealed_at_ms
            facts.append(
                SegmentFacts(segment.base_offset, segment.end_offset, segment.size, newest_ms, segment.seal.cleaned)
            )
        return facts

    # --- bytes ---------------------------------------------------------------------------------------

    def slice(self, offset: int, *, bytes_max: int, end_offset: int) -> LogSlice | None:
        """Bytes from the batch that holds `offset` on, up to `end_offset`; None when there are none.

        At least one whole batch comes, also when it is larger than `bytes_max`.
        """
        for at in range(self.index_of(offset), len(self._items)):
            segment = self._items[at]
            if segment.base_offset >= end_offset:
                return None
            position = segment.position_of(offset)
            end = segment.size if segment.end_offset <= end_offset else segment.position_of(end_offset)
            if position >= end:
                continue
            size = end - position
            if size > bytes_max:
                size = min(size, max(bytes_max, segment.header_at(position).size))
            return LogSlice(segment.file, position, size)
        return None

    def batches(self, offset: int, *, end_offset: int) -> Iterator[FoundBatch]:
        """Every batch that reaches beyond `offset` and begins before `end_offset`, over all segments."""
        # A copy: segments may be removed between two of the batches that are given out.
        for segment in self._items[self.index_of(offset) :]:
            try:
                for found in batches(
                    segment.file, position=segment.position_of(offset), end=segment.size, verify=False
                ):
                    if found.header.base_offset >= end_offset:
                        return
                    yield found
            except BatchError as error:
                raise StorageFault(segment.path(LOG_SUFFIX), f"damaged inside: {error}") from error

    # --- times ---------------------------------------------------------------------------------------

    def find_timestamp(self, timestamp_ms: int, *, start_offset: int, end_offset: int) -> TimestampOffset | None:
        """The first record in the range whose timestamp is at or beyond the given one."""
        for segment in self._items:
            if segment.end_offset <= start_offset or segment.max_timestamp_ms < timestamp_ms:
                continue
            first = segment.base_offset + segment.indexes.times.floor(timestamp_ms)
            for found in self.batches(max(first, start_offset), end_offset=end_offset):
                if found.header.base_offset >= segment.end_offset:
                    break
                if found.header.max_timestamp >= timestamp_ms:
                    record = _first_at(found, timestamp_ms, start_offset)
                    if record is not None:
                        return record if record.offset < end_offset else None
        return None

    def newest(self, *, start_offset: int, end_offset: int) -> TimestampOffset | None:
        """The first record that has the greatest timestamp of all in the range."""
        newest: TimestampOffset | None = None
        for segment in self._items:
            if segment.base_offset >= end_offset:
                break
            if newest is not None and segment.max_timestamp_ms <= newest.timestamp_ms:
                continue
            if segment.max_timestamp_ms < 0 or segment.end_offset <= start_offset:
                continue
            # Only where the range begins or ends inside a segment can its greatest timestamp lie outside.
            is_inside = segment.end_offset <= end_offset and segment.base_offset >= start_offset
            start = segment.max_timestamp_offset if is_inside else max(segment.base_offset, start_offset)
            for found in self.batches(start, end_offset=min(end_offset, segment.end_offset)):
                if newest is None or found.header.max_timestamp > newest.timestamp_ms:
                    newest = _first_at(found, found.header.max_timestamp, start_offset) or newest
        return newest

    # --- transactions --------------------------------------------------------------------------------

    def bound_behind(self, offset: int, found: LogSlice) -> int:
        """An offset that no batch of a slice reaches, not far behind its end; `offset` is what was asked for."""
        for at in range(self.index_of(offset), len(self._items)):
            if self._items[at].file is found.file:
                return self._items[at].bound_behind(found.position + found.size)
        raise AssertionError("the slice is of another log")

    def aborted(self, first_offset: int, *, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in the range, by first offset."""
        found: list[AbortedTransaction] = []
        for at in range(self.index_of(first_offset), len(self._items)):
            overlapping, complete = self._items[at].aborted_between(first_offset, end_offset=end_offset)
            found += overlapping
            if complete:
                break
        return sorted(found, key=lambda entry: entry.first_offset)


def _first_at(found: FoundBatch, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    """The first record of a batch at or beyond a time and an offset."""
    header = found.header
    if not header.record_count:
        return None
    if header.attributes & LOG_APPEND_TIME_BIT:
        offset = max(header.base_offset, start_offset)
        return TimestampOffset(header.max_timestamp, offset, header.leader_epoch)
    try:
        for span in spans(header, unpack(header, found.data)):
            timestamp = header.base_timestamp + span.timestamp_delta
            offset = header.base_offset + span.offset_delta
            if timestamp >= timestamp_ms and offset >= start_offset:
                return TimestampOffset(timestamp, offset, header.leader_epoch)
    except BatchError:
        # The log stores batches unopened, so a producer can leave one that nobody can read. Its header
        # is all there is to go by; one such batch must not hide the records behind it.
        return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), header.leader_epoch)
    return None
