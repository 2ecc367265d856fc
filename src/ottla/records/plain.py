"""Plain batches, which need nothing but a place in the log: what busy producers send most.

Several of them become one run of bytes to write, by the compiled kernel or here.
"""

from __future__ import annotations

from msgspec import Struct as Value

from ottla.errors import Refusal
from ottla.records import kernel
from ottla.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    BatchHeader,
    Buffer,
    check,
    crc32c,
    prefix,
)
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.reader import RECORD_BYTES_MIN

PLAIN_ATTRIBUTES = 0x03
"""The bits of the codecs that every version knows (0 to 3)."""
JOINED_BYTES_MAX = 4 << 10
"""Batches up to this size, on average, are copied together; larger ones are written from where they are."""


class Limits(Value, frozen=True, gc=False):
    """What batches must keep to."""

    oldest_ms: int
    newest_ms: int
    batch_bytes_max: int


class Tail(Value, frozen=True, gc=False):
    """Where the batches will stand: behind what a segment holds, with the entries that its indexes have."""

    base_offset: int
    position: int
    indexed_at: int
    """Where the last indexed batch begins."""
    interval_bytes: int
    """How far behind it the next one to be indexed begins, at least."""
    max_timestamp_ms: int
    max_timestamp_offset: int
    timed_ms: int
    """The last timestamp in the time index."""


class Run(Value, frozen=True, gc=False):
    """Batches that follow each other, and what a segment is once they are written."""

    parts: list[Buffer]
    """What to write."""
    offsets: list[int]
    """The first one of each batch."""
    end_offset: int
    size: int
    """Bytes in all."""
    newest_ms: int
    has_producer: bool
    """Whether any of them has a producer's id."""
    first_ms: int
    """The greatest timestamp of the first batch."""
    last_at: int
    """Where the last batch begins."""
    max_timestamp_ms: int
    max_timestamp_offset: int
    indexed_at: int
    entry_offsets: list[int]
    """New entries of the offset index, relative to the segment's first offset, and of the positions beside them."""
    entry_positions: list[int]
    times: list[tuple[int, int]]
    """New entries of the time index: a timestamp, and a relative offset."""


def room_for_records(header: BatchHeader, size: int) -> int:
    """How many bytes the records of a batch of this size have at most, as far as its header tells."""
    return DECOMPRESSED_BYTES_MAX if header.attributes & CODEC_MASK else size - HEADER_SIZE


def plan_run(batches: list[Buffer], limits: Limits, tail: Tail, *, first_offset: int, leader_epoch: int) -> Run | None:
    """The run of these batches from `first_offset` on; None if one is not plain, is damaged, or is beyond a limit.

    What stands before the checksum of a batch, its offset and its leader's epoch, is written in place where it can be.
    """
    if kernel.compiled is None:
        return plan_run_plain(batches, limits, tail, first_offset=first_offset, leader_epoch=leader_epoch)
    planned = kernel.compiled.plan_run(
        batches,
        crc32c,
        first_offset,
        leader_epoch,
        limits.oldest_ms,
        limits.newest_ms,
        limits.batch_bytes_max,
        DECOMPRESSED_BYTES_MAX,
        JOINED_BYTES_MAX,
        tail.base_offset,
        tail.position,
        tail.indexed_at,
        tail.interval_bytes,
        tail.max_timestamp_ms,
        tail.max_timestamp_offset,
        tail.timed_ms,
    )
    return None if planned is None else Run(*planned)


def plan_run_plain(
    batches: list[Buffer], limits: Limits, tail: Tail, *, first_offset: int, leader_epoch: int
) -> Run | None:
    """What `plan_run` does without the kernel."""
    parts: list[Buffer] = []
    offsets: list[int] = []
    entry_offsets: list[int] = []
    entry_positions: list[int] = []
    times: list[tuple[int, int]] = []
    offset, position, latest_ms, has_producer = first_offset, tail.position, NO_TIMESTAMP, False
    first_ms, last_at, indexed_at, timed_ms = NO_TIMESTAMP, 0, tail.indexed_at, tail.timed_ms
    max_timestamp_ms, max_timestamp_offset = tail.max_timestamp_ms, tail.max_timestamp_offset
    for batch in batches:
        size = len(batch)
        try:
            header = check(batch)
        except Refusal:
            return None
        count, newest_ms = header.record_count, header.max_timestamp
        if size != header.size or size > limits.batch_bytes_max or header.attributes & ~PLAIN_ATTRIBUTES:
            return None
        if count != header.last_offset_delta + 1 or count * RECORD_BYTES_MIN > room_for_records(header, size):
            return None
        if not limits.oldest_ms <= newest_ms <= limits.newest_ms:
            return None
        if not offsets:
            first_ms = newest_ms
        offsets.append(offset)
        last_at, last_offset = position, offset + count - 1
        has_producer |= header.has_producer
        latest_ms = max(latest_ms, newest_ms)
        if newest_ms > max_timestamp_ms:
            max_timestamp_ms, max_timestamp_offset = newest_ms, last_offset
        if last_at - indexed_at > tail.interval_bytes:
            indexed_at = last_at
            entry_offsets.append(last_offset - tail.base_offset)
            entry_positions.append(last_at)
            if max_timestamp_ms > timed_ms:
                timed_ms = max_timestamp_ms
                times.append((timed_ms, max_timestamp_offset - tail.base_offset))
        parts += (prefix(offset, header.length, leader_epoch), batch[PREFIX_SIZE:])
        offset += count
        position += size
    total = position - tail.position
    is_joined = total <= JOINED_BYTES_MAX * len(batches)
    return Run(
        [b"".join(parts)] if is_joined else parts,
        offsets,
        offset,
        total,
        latest_ms,
        has_producer,
        first_ms,
        last_at,
        max_timestamp_ms,
        max_timestamp_offset,
        indexed_at,
        entry_offsets,
        entry_positions,
        times,
    )
