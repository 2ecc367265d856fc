"""Records that wait to be sent: batches in a queue per partition, and the numbers that make retries harmless.

Decides when a batch is ready, what may be sent again and under which sequence numbers, and how many bytes
may wait. Sends nothing, and is told the time. Safe for several threads: every public method takes the one
lock, briefly, and nothing waits while holding it.

Sequence numbers belong to a queue, each under an identity (producer id and epoch) of its own. A queue that
cannot tell any more what the broker has seen starts over at 0 under a fresh identity, and the others need
not care.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from ottla.client.values import NO_OFFSET, RecordPosition, TopicPartition
from ottla.records.batch import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.records.packing import Packed, RecordTuple

RECORD_OVERHEAD_BYTES = 21
"""What a record's own framing takes at most, beside its header fields: lengths, deltas, attributes."""
HEADER_OVERHEAD_BYTES = 10
"""What the lengths of a header's name and value take at most; a character of the name takes up to four bytes."""
BATCH_RECORDS_MAX = 100_000
"""Keeps a batch of very small records to a size that is still pleasant to decode at once."""
NEVER_MS = 2**62


class Waiter(Protocol):
    """Somebody who is told what became of a record: a future, whichever kind."""

    def done(self) -> bool: ...

    def set_result(self, result: RecordPosition, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


class Identity(NamedTuple):
    """Who a producer is to the brokers."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NOBODY = Identity()


class PackedRows:
    """Records that are laid end to end already, behind room for a batch's header."""

    __slots__ = ("packed",)

    def __init__(self, packed: Packed) -> None:
        self.packed = packed

    def __len__(self) -> int:
        return self.packed[1]


Rows = list[RecordTuple] | PackedRows


class Batch:
    """Records for one partition that are sent, and answered for, together."""

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "bytes",
        "created_ms",
        "data",
        "deadline_ms",
        "done",
        "error",
        "identity",
        "is_open",
        "last_error",
        "may_split",
        "partition",
        "records",
        "topic",
        "uncertain",
        "waiters",
    )

    def __init__(
        self, topic: str, partition: int, records: Rows, *, bytes_: int, now_ms: int, deadline_ms: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.bytes = bytes_
        """About what it takes; what counts against the buffer's limit."""
        self.created_ms = now_ms
        self.deadline_ms = deadline_ms
        self.is_open = False
        """Whether more records may join."""
        self.may_split = False
        """Whether its records may go in several batches, if it is too large for the broker."""
        self.attempts = 0
        self.uncertain = False
        """Whether the broker may have written it although nobody said so."""
        self.identity = NOBODY
        self.base_sequence = NO_SEQUENCE
        self.data: bytearray | None = None
        self.done = False
        self.base_offset = NO_OFFSET
        self.error: Exception | None = None
        self.last_error: Exception | None = None
        """Why the latest attempt failed."""
        self.waiters: list[tuple[int, Waiter]] | None = None
        """Who is to be told, each with the number of their record in this batch."""

    def position(self, index: int) -> RecordPosition:
        """Where a record of this batch was put, once it is done; raises what it failed with."""
        if self.error is not None:
            raise self.error
        offset = self.base_offset
        return RecordPosition(self.topic, self.partition, offset if offset < 0 else offset + index)

    def renumber(self) -> None:
        """Forget the sequence number: it will be given another one."""
        self.identity = NOBODY
        self.base_sequence = NO_SEQUENCE
        self.data = None
        self.uncertain = False


class Queue:
    """One partition's batches, oldest first."""

    __slots__ = ("acked", "batches", "blocked_until_ms", "identity", "key", "next_sequence", "spent", "urgent")

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.batches: deque[Batch] = deque()
        self.blocked_until_ms = 0
        self.urgent = False
        """Whether somebody waits, so that nothing lingers."""
        self.identity = NOBODY
        self.next_sequence = 0
        self.spent = NOBODY
        """The identity under which this partition lost track; numbers under it must never be used again."""
        self.acked = False
        """Whether the broker has taken a batch under this identity; the first one goes alone."""

    def start_over(self) -> None:
        """What the broker has seen is not known any more: number from 0 under an identity of its own."""
        if self.identity != NOBODY:
            self.spent = self.identity
        self.identity = NOBODY
        self.next_sequence = 0
        self.acked = False
        for batch in self.batches:
            batch.renumber()

    def rewind(self, sequence: int) -> None:
        """A numbered batch will never be sent again and was not written: the next one takes its number."""
        self.next_sequence = sequence
        for batch in self.batches:
            batch.renumber()


class Accumulator:
    """All batches of a producer."""

    def __init__(self, *, batch_bytes: int, buffer_bytes: int, linger_ms: int, delivery_timeout_ms: int) -> None:
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._linger_ms = linger_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._queues: dict[TopicPartition, Queue] = {}
        self._waiting: dict[TopicPartition, Queue] = {}
        """Those that are not empty."""
        self._lock = threading.Lock()
        self.bytes_waiting = 0
        self.splits = 0
        """How often a batch was cut in parts."""
        self.gate: Callable[[], Exception | None] | None = None
        """Asked, with the lock held, before anything comes in; says why it may not."""

    # --- coming in -----------------------------------------------------------------------------------

    def append(
        self,
        key: TopicPartition,
        record: RecordTuple,
        *,
        record_bytes: int,
        urgent: bool,
        now_ms: int,
        waiter: Waiter | None = None,
    ) -> tuple[Batch, int] | None:
        """Put a record into the newest batch of its partition; None when the buffer is full."""
        with self._lock:
            self._pass_gate()
            if not self._has_room(record_bytes):
                return None
            queue = self._queue(key)
            batch = queue.batches[-1] if queue.batches else None
            if batch is None or not self._fits(batch, record_bytes):
                batch = self.batch(key, [], records_bytes=0, now_ms=now_ms)
                batch.is_open = True
                queue.batches.append(batch)
                self.bytes_waiting += batch.bytes
            rows = batch.records
            assert isinstance(rows, list), "only lists are open"
            index = len(rows)
            rows.append(record)
            batch.bytes += record_bytes
            self.bytes_waiting += record_bytes
            if urgent:
                queue.urgent = True
            if waiter is not None:
                if batch.waiters is None:
                    batch.waiters = []
                batch.waiters.append((index, waiter))
            return batch, index

    def _pass_gate(self) -> None:
        refusal = None if self.gate is None else self.gate()
        if refusal is not None:
            raise refusal

    def _fits(self, batch: Batch, record_bytes: int) -> bool:
        if not batch.is_open or len(batch.records) >= BATCH_RECORDS_MAX:
            return False
        return batch.bytes + record_bytes <= self._batch_bytes

    def _queue(self, key: TopicPartition) -> Queue:
        """The queue of a partition that is about to get a batch."""
        queue = self._waiting.get(key)
        if queue is None:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = Queue(key)
            self._waiting[key] = queue
        return queue

    def add(self, batches: Sequence[Batch]) -> bool:
        """Put finished batches behind what waits for their partitions, all or none; False when the buffer is full."""
        with self._lock:
            self._pass_gate()
            total = sum(batch.bytes for batch in batches)
            if not self._has_room(total):
                return False
            for batch in batches:
                queue = self._queue(TopicPartition(batch.topic, batch.partition))
                queue.batches.append(batch)
                queue.urgent = True
            self.bytes_waiting += total
            return True

    def batch(self, key: TopicPartition, records: Rows, *, records_bytes: int, now_ms: int) -> Batch:
        """A finished batch for `add`."""
        return Batch(
            key.topic,
            key.partition,
            records,
            bytes_=records_bytes + HEADER_SIZE,
            now_ms=now_ms,
            deadline_ms=now_ms + self._delivery_timeout_ms,
        )

    def _has_room(self, bytes_: int) -> bool:
        # Something larger than the whole buffer still goes when nothing else waits.
        return self.bytes_waiting == 0 or self.bytes_waiting + bytes_ <= self._buffer_bytes

    # --- going out -----------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.bytes_waiting == 0

    def flush_all(self) -> list[Batch]:
        """Nothing that is here now lingers any longer; returns all of it."""
        with self._lock:
            for queue in self._waiting.values():
                queue.urgent = True
            return [batch for queue in self._waiting.values() for batch in queue.batches]

    def due(self, now_ms: int) -> tuple[list[Queue], bool]:
        """The partitions that have something to send now, and whether anything has waited too long."""
        ready: list[Queue] = []
        is_late = False
        with self._lock:
            for queue in self._waiting.values():
                if queue.batches[0].deadline_ms <= now_ms:
                    is_late = True
                elif self._ready_at_ms(queue) <= now_ms:
                    ready.append(queue)
        return ready, is_late

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until something can be sent or has to be given up; None when nothing waits."""
        with self._lock:
            soonest = NEVER_MS
            for queue in self._waiting.values():
                soonest = min(soonest, self._ready_at_ms(queue), queue.batches[0].deadline_ms)
            return None if soonest == NEVER_MS else max(0, soonest - now_ms)

    def _ready_at_ms(self, queue: Queue) -> int:
        head = queue.batches[0]
        if queue.urgent or head.attempts or not head.is_open or len(queue.batches) > 1:
            return queue.blocked_until_ms
        if head.bytes >= self._batch_bytes:
            return queue.blocked_until_ms
        return max(queue.blocked_until_ms, head.created_ms + self._linger_ms)

    def take(self, queue: Queue, *, window: int) -> list[Batch]:
        """The oldest batches of a queue, to be sent one behind the other. They stay in the queue until settled."""
        with self._lock:
            head = queue.batches[0]
            if not queue.acked or head.attempts:
                # After trouble, and before the broker knows us, order needs one at a time.
                window = 1
            taken = [batch for batch, _ in zip(queue.batches, range(window), strict=False)]
            for batch in taken:
                batch.is_open = False
            if len(taken) == len(queue.batches):
                queue.urgent = False
            return taken

    def enter(self, queue: Queue, identity: Identity) -> None:
        """What this partition gets next is numbered under this identity: from 0, unless it has been used here before.

        For transactions, which end before the identity changes, so that nothing of the old one is left here.
        """
        if queue.identity != identity:
            queue.identity = identity
            queue.next_sequence = 0
            queue.acked = False

    def number(self, queue: Queue, batch: Batch, identity: Identity) -> None:
        """Give a batch the next sequence number, unless it has one already."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        if queue.identity == NOBODY:
            queue.identity = identity
        batch.identity = queue.identity
        batch.base_sequence = queue.next_sequence
        queue.next_sequence = (queue.next_sequence + len(batch.records)) & 0x7FFFFFFF

    # --- what became of it ---------------------------------------------------------------------------

    def settle(self, queue: Queue, batch: Batch, *, base_offset: int = NO_OFFSET, error: Exception | None) -> None:
        """A batch is done with. The caller tells whoever waits, with `notify`, after this."""
        with self._lock:
            queue.batches.remove(batch)
            self.bytes_waiting -= batch.bytes
            batch.base_offset = base_offset
            batch.error = error
            batch.data = None
            if error is None and batch.identity == queue.identity:
                queue.acked = queue.identity != NOBODY
            if not queue.batches:
                queue.urgent = False
                del self._waiting[queue.key]
            batch.done = True

    def block(self, queue: Queue, until_ms: int) -> None:
        """Leave a partition alone for a while."""
        with self._lock:
            queue.blocked_until_ms = until_ms

    def refuse(self, queue: Queue, batch: Batch, error: Exception) -> list[Batch]:
        """A batch that was not written will not be sent again; its successors move up."""
        sequence = batch.base_sequence
        self.settle(queue, batch, error=error)
        if sequence != NO_SEQUENCE:
            with self._lock:
                queue.rewind(sequence)
        return [batch]

    def split(self, queue: Queue, batch: Batch, parts: Sequence[Rows]) -> None:
        """Smaller batches take the place of one that was not written. Nobody may wait for a record of it by number.

        They are sent one at a time until they are through: how many fit is not known yet.
        """
        pieces = []
        for rows, bytes_ in zip(parts, _shared_bytes(batch.bytes, parts), strict=True):
            piece = Batch(
                batch.topic,
                batch.partition,
                rows,
                bytes_=bytes_,
                now_ms=batch.created_ms,
                deadline_ms=batch.deadline_ms,
            )
            piece.attempts = batch.attempts + 1
            piece.may_split = True
            piece.waiters = batch.waiters
            pieces.append(piece)
        with self._lock:
            at = queue.batches.index(batch)
            queue.batches.remove(batch)
            for piece in reversed(pieces):
                queue.batches.insert(at, piece)
            queue.urgent = True
            if batch.base_sequence != NO_SEQUENCE:
                queue.rewind(batch.base_sequence)
            self.splits += 1
            batch.data = None
            batch.done = True

    def give_up(self, queue: Queue, batch: Batch, error: Exception) -> list[Batch]:
        """A batch of which nobody knows whether it was written will not be sent again.

        Whatever was sent behind it shares its fate: under other numbers it might be written twice.
        """
        doomed = [batch] + [each for each in queue.batches if each is not batch and each.uncertain]
        for each in doomed:
            self.settle(queue, each, error=error)
        with self._lock:
            queue.start_over()
        return doomed

    def expire(self, now_ms: int, make_error: Callable[[Batch], Exception]) -> list[Batch]:
        """Give up what has waited too long; returns it."""
        with self._lock:
            late = [queue for queue in self._waiting.values() if queue.batches[0].deadline_ms <= now_ms]
        gone: list[Batch] = []
        for queue in late:
            while queue.batches and queue.batches[0].deadline_ms <= now_ms:
                head = queue.batches[0]
                if head.base_sequence != NO_SEQUENCE or head.uncertain:
                    gone += self.give_up(queue, head, make_error(head))
                else:
                    gone += self.refuse(queue, head, make_error(head))
        return gone

    def fail_all(self, error: Exception) -> list[Batch]:
        """The producer stops, or its transaction does: nothing that is still here will be sent."""
        gone: list[Batch] = []
        # With the lock: whoever has passed the gate has put its record in by now, and it is among these.
        with self._lock:
            waiting = list(self._waiting.values())
        for queue in waiting:
            while queue.batches:
                gone += self.refuse(queue, queue.batches[0], error)
        return gone


def _shared_bytes(total: int, parts: Sequence[Rows]) -> list[int]:
    """What each part counts against the buffer's limit: as much as before, together."""
    records = sum(map(len, parts))
    shares = [total * len(part) // records for part in parts]
    shares[0] += total - sum(shares)
    return shares


def notify(batches: Iterable[Batch]) -> None:
    """Tell whoever waits for these batches; never while holding the lock."""
    for batch in batches:
        for index, waiter in batch.waiters or ():
            if waiter.done():
                continue
            if batch.error is not None:
                waiter.set_exception(batch.error)
            else:
                waiter.set_result(batch.position(index))


def size_of(record: RecordTuple) -> int:
    """About what a record takes in a batch: never less than it does."""
    key, value, _, headers = record
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + (0 if content is None else len(content))
    return size
