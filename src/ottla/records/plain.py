"""Plain batches, which need nothing but a place in the log: what busy producers send most.

Several of them become one run of bytes to write, by the compiled kernel or here.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ottla.errors import Refusal
from ottla.records import kernel
from ottla.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    BatchHeader,
    Buffer,
    check,
    prefix,
)
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.reader import RECORD_BYTES_MIN

PLAIN_ATTRIBUTES = 0x03
"""The bits of the codecs that every version knows (0 to 3)."""
JOINED_BYTES_MAX = 4 << 10
"""Batches up to this size, on average, are copied together; larger ones are written from where they are."""


def room_for_records(header: BatchHeader, size: int) -> int:
    """How many bytes the records of a batch of this size have at most, as far as its header tells."""
    return DECOMPRESSED_BYTES_MAX if header.attributes & CODEC_MASK else size - HEADER_SIZE


class PlainRun:
    """Batches for one partition that came together, and what a segment is once they are written behind each other."""

    __slots__ = (
        "_data",
        "_entries",
        "_last_at",
        "_leader_epoch",
        "_spans",
        "end_offset",
        "has_producer",
        "indexed_at",
        "log_start_offset",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "newest_ms",
        "offsets",
        "size",
        "times",
    )

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        """What was received, with the batches in it."""
        self._spans: list[tuple[int, int]] = []
        self.log_start_offset = 0
        """Where their log starts, once they are in it."""

    def add(self, at: int, *, size: int) -> None:
        """One more, which has so many bytes from there on."""
        self._spans.append((at, at + size))

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def batches(self) -> list[Buffer]:
        return [self._data[start:end] for start, end in self._spans]

    def place(
        self,
        *,
        first_offset: int,
        leader_epoch: int,
        oldest_ms: int,
        newest_ms: int,
        batch_bytes_max: int,
        base_offset: int,
        position: int,
        indexed_at: int,
        interval_bytes: int,
        max_timestamp_ms: int,
        max_timestamp_offset: int,
        timed_ms: int,
    ) -> bool:
        """Give each its place, from `first_offset` on; false if one is not plain, is damaged, or is beyond a limit.

        They will stand at `position` of a segment that begins with `base_offset`, whose last indexed batch begins at
        `indexed_at` and whose time index ends with `timed_ms`.
        """
        self._leader_epoch = leader_epoch
        self.offsets: list[int] = []
        self._entries: list[tuple[int, int]] = []
        self.times: Sequence[tuple[int, int]] = ()
        """New entries of the time index: a timestamp, and a relative offset."""
        self.newest_ms, self.has_producer = NO_TIMESTAMP, False
        offset, start = first_offset, position
        for batch in self.batches:
            size = len(batch)
            try:
                header = check(batch)
            except Refusal:
                return False
            count, latest_ms = header.record_count, header.max_timestamp
            if size != header.size or size > batch_bytes_max or header.attributes & ~PLAIN_ATTRIBUTES:
                return False
            if count != header.last_offset_delta + 1 or count * RECORD_BYTES_MIN > room_for_records(header, size):
                return False
            if not oldest_ms <= latest_ms <= newest_ms:
                return False
            self.offsets.append(offset)
            self._last_at, last_offset = position, offset + count - 1
            self.has_producer |= header.has_producer
            self.newest_ms = max(self.newest_ms, latest_ms)
            if latest_ms > max_timestamp_ms:
                max_timestamp_ms, max_timestamp_offset = latest_ms, last_offset
            if position - indexed_at > interval_bytes:
                indexed_at = position
                self._entries.append((last_offset - base_offset, position))
                if max_timestamp_ms > timed_ms:
                    timed_ms = max_timestamp_ms
                    self.times = (*self.times, (timed_ms, max_timestamp_offset - base_offset))
            offset += count
            position += size
        self.size, self.end_offset, self.indexed_at = position - start, offset, indexed_at
        self.max_timestamp_ms, self.max_timestamp_offset = max_timestamp_ms, max_timestamp_offset
        return True

    @property
    def tail(self) -> tuple[int, int]:
        """The last batch's first offset, and where it begins."""
        return self.offsets[-1], self._last_at

    def entries(self) -> tuple[bytes, bytes]:
        """New entries of the offset index: relative offsets, and the positions to them, four bytes each."""
        offsets, positions = zip(*self._entries, strict=True) if self._entries else ((), ())
        return array("I", offsets).tobytes(), array("I", positions).tobytes()

    def parts(self) -> list[Buffer]:
        """What to write. What stands before a checksum is the broker's, and is written in place where it can be."""
        parts: list[Buffer] = []
        for batch, offset in zip(self.batches, self.offsets, strict=True):
            parts += (prefix(offset, len(batch) - LOG_OVERHEAD, self._leader_epoch), batch[PREFIX_SIZE:])
        return [b"".join(parts)] if self.size <= JOINED_BYTES_MAX * len(self._spans) else parts


Run = PlainRun
if kernel.compiled is not None:
    Run = kernel.compiled.Run  # type: ignore[misc]
