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

Place = tuple[int, int, int, int]
"""A batch in a log: its first and last offset, the greatest timestamp of its records, and its size."""


class Limits(Value, frozen=True, gc=False):
    """What batches must keep to."""

    oldest_ms: int
    newest_ms: int
    batch_bytes_max: int


class Run(Value, frozen=True, gc=False):
    """Batches that follow each other."""

    parts: list[Buffer]
    """What to write."""
    places: list[Place]
    size: int
    """Bytes in all."""
    newest_ms: int
    has_producer: bool
    """Whether any of them has a producer's id."""


def room_for_records(header: BatchHeader, size: int) -> int:
    """How many bytes the records of a batch of this size have at most, as far as its header tells."""
    return DECOMPRESSED_BYTES_MAX if header.attributes & CODEC_MASK else size - HEADER_SIZE


def plan_run(batches: list[Buffer], limits: Limits, *, first_offset: int, leader_epoch: int) -> Run | None:
    """The run of these batches from `first_offset` on; None if one is not plain, is damaged, or is beyond a limit."""
    if kernel.compiled is None:
        return plan_run_plain(batches, limits, first_offset=first_offset, leader_epoch=leader_epoch)
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
    )
    return None if planned is None else Run(*planned)


def plan_run_plain(batches: list[Buffer], limits: Limits, *, first_offset: int, leader_epoch: int) -> Run | None:
    """What `plan_run` does without the kernel."""
    parts: list[Buffer] = []
    places: list[Place] = []
    total, latest_ms, has_producer = 0, NO_TIMESTAMP, False
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
        has_producer |= header.has_producer
        places.append((first_offset, first_offset + count - 1, newest_ms, size))
        parts += (prefix(first_offset, header.length, leader_epoch), batch[PREFIX_SIZE:])
        first_offset += count
        total += size
        latest_ms = max(latest_ms, newest_ms)
    is_joined = total <= JOINED_BYTES_MAX * len(batches)
    return Run([b"".join(parts)] if is_joined else parts, places, total, latest_ms, has_producer)
