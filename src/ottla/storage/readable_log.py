"""What can be read of a log: bytes, batches, offsets by time, aborted transactions.

The reading half of `Log`; the writing half says where the log begins and ends, and whether it is open.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from ottla.errors import OffsetOutOfRange
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scan import FoundBatch
from ottla.storage.segments import LogSlice, Segments, TimestampOffset


class ReadableLog(ABC):
    """A run of segments from a start to an end."""

    _segments: Segments
    log_start_offset: int
    """The first offset that may be read."""
    end_offset: int
    """The offset that the next record gets."""
    producers: ProducerStates

    @abstractmethod
    def _require_open(self) -> None:
        """Raise LogClosed unless the log can be read."""

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """See `ProducerStates.first_unstable_offset`.

        Records go when they are old, or are deleted, also those of a transaction that is still open. The rest of it is
        not stable; what lies below the start of the log is no place for a reader to wait at.
        """
        first = self.producers.first_unstable_offset(high_watermark)
        return first if first is None or first >= self.log_start_offset else self.log_start_offset

    def slice(self, *, offset: int, bytes_max: int, end_offset: int | None = None) -> LogSlice | None:
        """Where the bytes from `offset` on stand, at most up to `end_offset`; None when there are none yet.

        The first batch is whole, also when it is larger than `bytes_max`, and may begin before `offset`.
        """
        self._require_readable(offset)
        end = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        return self._segments.slice(offset, bytes_max=bytes_max, end_offset=end)

    def read(self, *, offset: int, bytes_max: int, end_offset: int | None = None) -> bytes:
        """The bytes that `slice` names."""
        found = self.slice(offset=offset, bytes_max=bytes_max, end_offset=end_offset)
        return b"" if found is None else found.read()

    def batches(self, *, offset: int, end_offset: int | None = None) -> Iterator[FoundBatch]:
        """Every batch from the one that holds `offset` on, one by one, over all segments."""
        self._require_readable(offset)
        return self._segments.batches(offset, end_offset=self.end_offset if end_offset is None else end_offset)

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int | None = None) -> TimestampOffset | None:
        """The first record at or after a time, None when there is none."""
        self._require_readable(self.log_start_offset)
        end = self.end_offset if end_offset is None else end_offset
        return self._segments.find_timestamp(timestamp_ms, start_offset=self.log_start_offset, end_offset=end)

    def newest(self, *, end_offset: int | None = None) -> TimestampOffset | None:
        """The first record with the greatest timestamp."""
        self._require_readable(self.log_start_offset)
        end = self.end_offset if end_offset is None else end_offset
        return self._segments.newest(start_offset=self.log_start_offset, end_offset=end)

    def aborted_transactions(self, *, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """What a read_committed reader of the range must skip, by first offset."""
        self._require_readable(offset)
        return self._segments.aborted(offset, end_offset=end_offset)

    def aborted_in(self, found: LogSlice, *, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The same for the bytes of a slice, and only for those: a range may hold any number of transactions.

        `offset` and `end_offset` are what the slice was asked for with.
        """
        return self._segments.aborted(offset, end_offset=min(end_offset, self._segments.bound_behind(offset, found)))

    def _require_readable(self, offset: int) -> None:
        self._require_open()
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"offset {offset}, the log holds {self.log_start_offset} to {self.end_offset}")
