"""What a log may hold after a crash: the memory of a simulation that the disk cannot touch.

The model keeps every batch as it was appended, and bounds: how far the log must reach, how far it may,
where it may start, and up to where compaction may have taken records out. It computes nothing the way
the log does; it replays plain lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.records.batch import BatchHeader, peek
from ottla.records.control import parse_marker
from ottla.records.reader import Record, read_batch
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.producer_state import ProducerStates


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One batch with the offsets that the log gave it."""

    data: bytes
    header: BatchHeader
    records: tuple[Record, ...]

    @classmethod
    def of(cls, data: bytes) -> StoredBatch:
        return cls(data, peek(data), tuple(read_batch(data)))


@dataclass(slots=True)
class Replayed:
    """What follows from the batches alone."""

    producers: ProducerStates
    aborted: list[AbortedTransaction]
    aborted_offsets: set[int]
    """Records that no read_committed reader sees."""


@dataclass(slots=True)
class Model:
    """Everything a simulated log was told, and what it promised."""

    batches: list[StoredBatch] = field(default_factory=list)
    end_offset: int = 0
    """Nothing at or beyond this was ever written."""
    promised_end: int = 0
    """Everything below this was synced: it must be there after any crash."""
    written_end: int = 0
    """Everything below this was written by a call that returned: only a power loss may take it."""
    keeps_written: bool = True
    """No power was lost since the log was open."""
    start_lowest: int = 0
    start_highest: int = 0
    compacted_end: int = 0
    """Below this offset compaction may have taken records out."""

    def append(self, batch: StoredBatch) -> None:
        """A batch is about to be written: from here on it may be there."""
        assert batch.header.base_offset == self.end_offset
        self.batches.append(batch)
        self.end_offset = batch.header.next_offset

    def refuse(self) -> None:
        """The last batch was turned down whole."""
        self.end_offset = self.batches.pop().header.base_offset

    def appended(self) -> None:
        self.written_end = self.end_offset

    def truncating(self, offset: int, *, start: int) -> int:
        """The log is about to be cut; returns where that must be: at a batch, and not before the log starts."""
        boundary = next((b.header.base_offset for b in self.batches if b.header.last_offset >= offset), self.end_offset)
        boundary = max(boundary, start)
        self.promised_end = min(self.promised_end, boundary)
        self.written_end = min(self.written_end, boundary)
        return boundary

    def settle(self, *, start: int, end: int) -> None:
        """The log is open and says where it starts and ends: it may not go back behind either."""
        self.batches = [batch for batch in self.batches if batch.header.last_offset < end]
        self.end_offset = self.promised_end = self.written_end = end
        self.start_lowest = self.start_highest = start
        self.compacted_end = min(self.compacted_end, end)
        self.keeps_written = True

    @property
    def lowest_end(self) -> int:
        """The log must reach this far."""
        return self.written_end if self.keeps_written else self.promised_end

    def boundaries(self) -> set[int]:
        """Where the log may end."""
        ends = {batch.header.next_offset for batch in self.batches} | {
            batch.header.base_offset for batch in self.batches
        }
        return {end for end in ends | {self.end_offset} if self.lowest_end <= end <= self.end_offset}

    def batches_between(self, *, start: int, end: int) -> list[StoredBatch]:
        return [batch for batch in self.batches if batch.header.last_offset >= start and batch.header.last_offset < end]

    def replay(self, *, start: int, end: int) -> Replayed:
        """What a reader of these batches from the first to the last would know."""
        producers, aborted, aborted_offsets = ProducerStates(), [], set()
        for batch in self.batches_between(start=start, end=end):
            header = batch.header
            if header.is_control:
                marker = parse_marker(batch.data)
                assert marker is not None
                ended = producers.replay_marker(header, marker, offset=header.base_offset)
                if ended is not None:
                    aborted.append(ended)
                    aborted_offsets |= self._offsets_of(ended)
            elif header.has_producer:
                producers.replay_batch(header, base_offset=header.base_offset)
        return Replayed(producers, aborted, aborted_offsets)

    def _offsets_of(self, ended: AbortedTransaction) -> set[int]:
        return {
            record.offset
            for batch in self.batches
            if batch.header.producer_id == ended.producer_id and batch.header.is_transactional
            for record in batch.records
            if ended.first_offset <= record.offset < ended.last_offset
        }

    def epochs(self, *, start: int, end: int) -> LeaderEpochs:
        epochs = LeaderEpochs()
        for batch in self.batches_between(start=0, end=end):
            epochs.assign(batch.header.leader_epoch, start_offset=batch.header.base_offset)
        epochs.truncate_start(start)
        epochs.truncate_end(end)
        return epochs
