"""Batches that have been written, and several plain ones that are written at once, if they may follow each other.

Decides only; a batch that needs more than a place behind the one before it is left to `Log.append`.
"""

from __future__ import annotations

from msgspec import Struct as Value

from ottla.records.batch import BatchHeader, peek
from ottla.records.plain import Run
from ottla.storage.producer_state import SEQUENCE_MAX, ProducerStates


class Appended(Value, frozen=True, gc=False):
    """Where a batch stands in the log; both offsets are inclusive."""

    first_offset: int
    last_offset: int
    repeated: bool = False
    """The batch was there already: a retry, answered with the original's offsets."""


def headers_of(run: Run, producers: ProducerStates) -> list[tuple[BatchHeader, int]] | None:
    """Those of a producer's batches, with their offsets.

    None if they are not new ones of one producer, which it may send now. Raises the first one's Refusal.
    """
    headers = [peek(batch) for batch in run.batches]
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
    return list(zip(headers, run.offsets, strict=True))
