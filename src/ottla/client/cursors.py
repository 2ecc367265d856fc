"""Where a consumer is in each partition, and the records it has fetched but not given out.

Pure: responses in, records out, in offset order, without what a reader must not see. Batches are decoded
only when their records are wanted. Asks nobody and knows no brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import starmap

from ottla.client.values import NO_EPOCH, Record, TopicPartition
from ottla.errors import ProtocolError
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.schema import NO_UUID
from ottla.records.batch import BatchHeader, check, walk
from ottla.records.isolation import AbortedTransactions
from ottla.records.reader import Record as StoredRecord
from ottla.records.reader import read_batch


class Cursor:
    """One partition that is read."""

    __slots__ = (
        "_chunks",
        "_decoded",
        "_decoded_end",
        "_index",
        "_next_fetch",
        "_prefix",
        "attempts",
        "blocked_until_ms",
        "high_watermark",
        "key",
        "last_epoch",
        "last_fetch_ms",
        "paused",
        "position",
        "sought",
        "topic_id",
        "wanted",
    )

    def __init__(self, key: TopicPartition, *, wanted: int) -> None:
        self.key = key
        self.position: int | None = None
        """The offset of the next record to give out; None: to be looked up as `wanted` says."""
        self.wanted = wanted
        """A special timestamp, or a time, that says where to go on."""
        self.sought = False
        """Whether the position was chosen by the user, who may have chosen one that is still to come."""
        self.paused = False
        self.high_watermark: int | None = None
        self.topic_id = NO_UUID
        self.attempts = 0
        self.blocked_until_ms = 0
        self.last_fetch_ms = 0
        self.last_epoch = NO_EPOCH
        """The leader epoch of the batch that was decoded last; it goes with a commit."""
        self._prefix: tuple[str, int] = (key.topic, key.partition)
        self._next_fetch = 0
        self._clear()

    def _clear(self) -> None:
        self._chunks: deque[tuple[BatchHeader, memoryview | None]] = deque()
        self._decoded: Sequence[StoredRecord] = ()
        self._decoded_end = 0
        self._index = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing that was fetched is left to give out."""
        return not self._chunks and self._index >= len(self._decoded)

    @property
    def fetch_offset(self) -> int:
        return self._next_fetch

    def seek(self, offset: int, *, sought: bool) -> None:
        """Go on at this offset, and forget what was fetched."""
        self._clear()
        self.position = self._next_fetch = offset
        self.sought = sought
        self.last_epoch = NO_EPOCH
        self.attempts = 0
        self.blocked_until_ms = 0

    def look_up(self, wanted: int) -> None:
        """Go on at a place that has to be asked for."""
        self._clear()
        self.position = None
        self.wanted = wanted
        self.sought = False

    def absorb(self, data: PartitionData, *, committed_only: bool, check_crcs: bool) -> None:
        """Take in what a fetch at `fetch_offset` gave; for damaged bytes raises a BatchError and keeps nothing."""
        self.attempts = 0
        self.high_watermark = data.last_stable_offset if committed_only else data.high_watermark
        buffer = data.records
        if buffer is None or len(buffer) == 0:
            return
        view = memoryview(buffer)
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        hidden = AbortedTransactions(aborted if committed_only else ())
        found: list[tuple[BatchHeader, memoryview | None]] = []
        for start, header in walk(view):
            if check_crcs:
                check(view, start)
            batch = view[start : start + header.size]
            is_hidden = hidden.hides(header, batch)
            if header.next_offset > self._next_fetch:
                found.append((header, None if is_hidden else batch))
        if found:
            self._next_fetch = found[-1][0].next_offset
            self._chunks.extend(found)
        elif not any(True for _ in walk(view)):
            raise ProtocolError(f"{self.key}: {len(view)} bytes came, which do not hold one whole batch")

    def take(self, records_max: int) -> list[Record]:
        """The next records, at most so many; the position moves behind them."""
        given: list[Record] = []
        while len(given) < records_max:
            if self._index < len(self._decoded):
                wanted = records_max - len(given)
                part = self._decoded[self._index : self._index + wanted]
                self._index += len(part)
                prefix = self._prefix
                given += starmap(Record, [prefix + record for record in part])
                self.position = part[-1].offset + 1
                if self._index >= len(self._decoded):
                    self.position = self._decoded_end
                    self._decoded, self._index = (), 0
            elif self._chunks:
                self._decode_next()
            else:
                break
        if given:
            self.sought = False
        return given

    def _decode_next(self) -> None:
        # Removed only when it could be decoded: a damaged batch is met again, until the user seeks past it.
        header, batch = self._chunks[0]
        records: Sequence[StoredRecord] = () if batch is None else read_batch(batch, checked=True)
        self._chunks.popleft()
        self.last_epoch = header.leader_epoch
        start = self.position or 0
        if records and records[0].offset < start:
            records = [record for record in records if record.offset >= start]
        self._decoded, self._index, self._decoded_end = records, 0, header.next_offset
        if not records:
            self.position = header.next_offset


class FairTaker:
    """Gives out the records of several partitions in turns."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = 0

    def take(self, cursors: Iterable[Cursor], records_max: int) -> list[Record]:
        """At most so many records; every partition that has some gets an equal share, then whoever has more."""
        full = [cursor for cursor in cursors if not (cursor.paused or cursor.is_empty)]
        if not full:
            return []
        if len(full) == 1:
            return full[0].take(records_max)
        # Another one is first each time, or a small `records_max` would always serve the same ones.
        self._turn = (self._turn + 1) % len(full)
        full = full[self._turn :] + full[: self._turn]
        given: list[Record] = []
        while full and len(given) < records_max:
            share = max(1, (records_max - len(given)) // len(full))
            for cursor in full:
                if len(given) >= records_max:
                    break
                given += cursor.take(min(share, records_max - len(given)))
            full = [cursor for cursor in full if not cursor.is_empty]
        return given
