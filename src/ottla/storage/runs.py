"""Batches that have been written, and several plain ones that are written at once, if they may follow each other.

Decides only; a batch that needs more than a place behind the one before it is left to `Log.append`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct as Value

from ottla.records.batch import OFFSET_DELTA_MAX, BatchHeader, Buffer, peek
from ottla.records.plain import Run
from ottla.storage.producer_state import SEQUENCE_MAX, ProducerStates
from ottla.storage.segment import Segment


class Appended(Value, frozen=True, gc=False):
    """Where a batch stands in the log; both offsets are inclusive."""

    first_offset: int
    last_offset: int
    repeated: bool = False
    """The batch was there already: a retry, answered with the original's offsets."""


def has_room(active: Segment, run: Run, *, segment_bytes: int) -> bool:
    """Whether a run can be written to the segment without a closer look at it."""
    return (
        active.size + run.size <= segment_bytes
        and run.newest_ms <= active.roll_after_ms
        and run.places[-1][1] - active.base_offset < OFFSET_DELTA_MAX
        # The index could be full before the last of them, which then belongs into another segment.
        and active.indexes.offsets.count + len(run.places) <= active.index_entries_max
    )


def headers_of(batches: Sequence[Buffer], run: Run, producers: ProducerStates) -> list[tuple[BatchHeader, int]] | None:
    """Those of a producer's batches, with their offsets: none where no batch has a producer.

    None itself if they are not new ones of one producer, which it may send now. Raises the first one's Refusal.
    """
    if not run.has_producer:
        return []
    headers = [peek(batch) for batch in batches]
    before = headers[0]
    if not before.has_producer or producers.check_batch(before) is not None:
        return None
    for header in headers[1:]:
        if (
            header.producer_id != before.producer_id
            or header.producer_epoch != before.producer_epoch
            or header.base_sequence != (before.last_sequence + 1) & SEQUENCE_MAX
        ):
            return None
        before = header
    return [(header, place[0]) for header, place in zip(headers, run.places, strict=True)]
