"""Batches that have been written, and several small ones that are written at once, if they may follow each other.

Decides only; a batch that needs more than a place behind the one before it is left to `Log.append`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct as Value

from ottla.protocol.wire import Buffer
from ottla.records.batch import LOG_OVERHEAD, OFFSET_DELTA_MAX, PREFIX_SIZE, BatchHeader, prefix
from ottla.storage.producer_state import SEQUENCE_MAX, ProducerStates
from ottla.storage.segment import Place, Segment


class Appended(Value, frozen=True, gc=False):
    """Where a batch stands in the log; both offsets are inclusive."""

    first_offset: int
    last_offset: int
    repeated: bool = False
    """The batch was there already: a retry, answered with the original's offsets."""


JOINED_BYTES_MAX = 4 << 10
"""Batches up to this size, on average, are copied together; larger ones are written from where they are."""


CheckedBatch = tuple[Buffer, BatchHeader]
"""A data batch, and what `check` returned for it."""


class Run(Value, frozen=True, gc=False):
    """The bytes to write, and where each batch stands."""

    parts: Sequence[Buffer]
    places: list[Place]


def plan_run(
    batches: Sequence[CheckedBatch],
    active: Segment,
    producers: ProducerStates,
    *,
    leader_epoch: int,
    segment_bytes: int,
) -> Run | None:
    """The run of these batches at the end of a segment; None where they have to be looked at one by one.

    Raises the Refusal of the first one's producer.
    """
    start, position = active.end_offset, active.size
    places: list[Place] = []
    parts: list[Buffer] = []
    before: BatchHeader | None = None
    for batch, header in batches:
        length, delta, newest_ms = header.length, header.last_offset_delta, header.max_timestamp
        size = length + LOG_OVERHEAD
        if size != len(batch) or header.record_count != delta + 1 or newest_ms > active.roll_after_ms:
            return None
        has_producer = header.producer_id >= 0 or (before is not None and before.producer_id >= 0)
        if has_producer and not _follows(header, before, producers):
            return None
        places.append((start, start + delta, newest_ms, size))
        parts += (prefix(start, length, leader_epoch), batch[PREFIX_SIZE:])
        start += delta + 1
        position += size
        before = header
    if position > segment_bytes or start - active.base_offset > OFFSET_DELTA_MAX:
        return None
    if active.indexes.offsets.count + len(places) > active.index_entries_max:
        # The index could be full before the last of them, which then belongs into another segment.
        return None
    is_joined = position - active.size <= JOINED_BYTES_MAX * len(places)
    return Run((b"".join(parts),) if is_joined else parts, places)


def _follows(header: BatchHeader, before: BatchHeader | None, producers: ProducerStates) -> bool:
    """Whether a batch is a new one of the run's producer: one that it may send now, or the next after that."""
    if before is None:
        return producers.check_batch(header) is None
    return (
        header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and header.base_sequence == (before.last_sequence + 1) & SEQUENCE_MAX
    )
