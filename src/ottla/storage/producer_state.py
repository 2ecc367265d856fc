"""What one partition remembers of its idempotent and transactional producers.

It answers three questions: is this batch a repeat, a gap or from a fenced producer; which
transactions are open, so where does the stable part of the log end; and what did an end marker end.
Pure: offsets and headers in, decisions out. `check_*` decide, `replay*` change state, and recovery
replays what a leader had checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ottla.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from ottla.records.control import Marker, MarkerType
from ottla.storage.aborted_index import AbortedTransaction

BATCHES_KEPT = 5
"""How many batches per producer are remembered: as many as a client may have in flight."""
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
SEQUENCE_MAX = 2**31 - 1


class ProducerBatch(NamedTuple):
    """One batch of a producer, by its last sequence number and last offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """One producer id in one partition."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_first_offset: int = NO_OFFSET
    """Where its open transaction began, -1 when none is open."""
    last_timestamp_ms: int = -1
    batches: deque[ProducerBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    heard_ms: int = field(default=-1, compare=False)
    """When it was last found to have written, by the broker's clock; not kept over a restart."""
    has_written: bool = field(default=False, compare=False)
    """Since somebody looked for silent producers."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find(self, header: BatchHeader) -> ProducerBatch | None:
        """The remembered batch that this one repeats."""
        if header.producer_epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == header.last_sequence and batch.offset_delta == header.last_offset_delta:
                    return batch
        return None


class EndedTransaction(NamedTuple):
    """A transaction that a marker ended; offsets are inclusive."""

    first_offset: int
    last_offset: int
    """The marker's own offset."""


class ProducerStates:
    """Every producer that wrote to one partition lately."""

    __slots__ = ("_ended", "_entries", "_open")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        # Transactions begin at ascending offsets, so the first value of this dict is the smallest.
        self._open: dict[int, int] = {}
        # Ascending by both offsets: one that began earlier than those before it, and ends later, stands for them all.
        self._ended: deque[EndedTransaction] = deque()
        for entry in entries:
            self._entries[entry.producer_id] = entry
        open_entries = (entry for entry in self._entries.values() if entry.transaction_first_offset >= 0)
        for entry in sorted(open_entries, key=lambda entry: entry.transaction_first_offset):
            self._open[entry.producer_id] = entry.transaction_first_offset

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[ProducerEntry, ...]:
        return tuple(self._entries.values())

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    # --- decisions -------------------------------------------------------------------------------

    def check_batch(self, header: BatchHeader) -> ProducerBatch | None:
        """May this producer's data batch be appended? Returns the original if it is a repeat."""
        if header.base_sequence < 0:
            raise InvalidRecord(f"producer {header.producer_id}: a batch without a sequence number")
        if header.producer_epoch < 0:
            raise InvalidProducerEpoch(f"producer {header.producer_id}: epoch {header.producer_epoch} is none")
        entry = self._entries.get(header.producer_id)
        if entry is None:
            # Nothing is known of the producer (new, or expired): it may begin at any sequence.
            return None
        repeated = entry.find(header)
        if repeated is not None:
            return repeated
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id}: epoch {header.producer_epoch} is older than {entry.epoch}"
            )
        if header.producer_epoch > entry.epoch:
            expected = 0 if entry.epoch != NO_PRODUCER_EPOCH else header.base_sequence
        else:
            expected = (entry.last_sequence + 1) & SEQUENCE_MAX
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} epoch {header.producer_epoch}: "
                f"sequence {header.base_sequence} came, {expected} was due"
            )
        if entry.transaction_first_offset >= 0 and (
            not header.is_transactional or header.producer_epoch != entry.epoch
        ):
            # Another epoch is another transaction. Whoever lets it begin before the end of this one has reached the
            # partition would let one marker decide about both.
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open since offset "
                f"{entry.transaction_first_offset} in epoch {entry.epoch}: a batch outside it is refused"
            )
        return None

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """May this end marker be appended?"""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id}: a marker of epoch {header.producer_epoch}, "
                f"the partition has seen {entry.epoch}"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"producer {header.producer_id}: a marker of coordinator epoch {marker.coordinator_epoch}, "
                f"the partition has seen {entry.coordinator_epoch}"
            )

    # --- changes ---------------------------------------------------------------------------------

    def replay_batch(self, header: BatchHeader, *, base_offset: int) -> None:
        """Take note of a data batch that stands in the log at `base_offset`."""
        entry = self._entry_of_epoch(header)
        entry.last_timestamp_ms = header.max_timestamp
        entry.has_written = True
        if header.base_sequence >= 0:
            delta = header.last_offset_delta
            entry.batches.append(ProducerBatch(header.last_sequence, base_offset + delta, delta, header.max_timestamp))
        if header.is_transactional and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = base_offset
            self._open[header.producer_id] = base_offset

    def replay_marker(self, header: BatchHeader, marker: Marker, *, offset: int) -> AbortedTransaction | None:
        """Take note of an end marker that stands in the log at `offset`; returns what it aborted."""
        entry = self._entry_of_epoch(header)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = header.max_timestamp
        entry.has_written = True
        first_offset = self._open.pop(header.producer_id, None)
        entry.transaction_first_offset = NO_OFFSET
        if first_offset is None:
            return None
        while self._ended and self._ended[-1].first_offset > first_offset:
            self._ended.pop()
        self._ended.append(EndedTransaction(first_offset, offset))
        if marker.marker_type is not MarkerType.ABORT:
            return None
        still_open = self.first_open_offset
        stable = offset + 1 if still_open is None else still_open
        return AbortedTransaction(header.producer_id, first_offset, offset, stable)

    def _entry_of_epoch(self, header: BatchHeader) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
        if header.producer_epoch != entry.epoch:
            # Sequences begin again with a new epoch, so the old ones can repeat nothing.
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        return entry

    # --- the stable part of the log ----------------------------------------------------------------

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction began that is open, or whose end is not below the high watermark.

        An end that is not yet replicated may still be lost, so it does not make its records stable.
        """
        while self._ended and self._ended[0].last_offset < high_watermark:
            self._ended.popleft()
        first_open = self.first_open_offset
        if not self._ended:
            return first_open
        first_ended = self._ended[0].first_offset
        return first_ended if first_open is None else min(first_open, first_ended)

    # --- ageing ------------------------------------------------------------------------------------

    def expire(self, *, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for long and have no transaction open; returns how many.

        Records may be of a time long past when they are written. By their timestamps alone a producer that is at
        work would count as silent, and its next retry would be stored twice.
        """
        silent = []
        for entry in self._entries.values():
            if entry.has_written:
                entry.has_written = False
                entry.heard_ms = now_ms
                continue
            silent_ms = now_ms - max(entry.last_timestamp_ms, entry.heard_ms)
            if entry.transaction_first_offset < 0 and silent_ms >= expiration_ms:
                silent.append(entry.producer_id)
        for producer_id in silent:
            del self._entries[producer_id]
        return len(silent)
