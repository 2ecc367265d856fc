"""Produce requests that are like an earlier one of their connection, but for the records: most of a busy producer's.

All that stands before the records is the same bytes again, so it is compared and not read. Those that come together are
appended with one write, and what the partition says of each is put into a copy of the earlier answer, which waits for
the disk where it has to (`durable`). Only the plainest requests are remembered: one partition, batches that need no
second look; those for several partitions are `spread`'s. Anything else, and every refusal, takes the ordinary way
through codec and handler, and nothing has happened before it does: there is one set of rules, and this is a shorter way
to them. Whatever comes to depend on more than a request's bytes (permissions, quotas) has to make connections forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.broker.batches import refused
from ottla.broker.deadlines import Deadlines
from ottla.broker.plain_produce import is_plain
from ottla.clock import Clock
from ottla.errors import Refusal
from ottla.partitions.partition import Partition
from ottla.protocol.frames import FRAME_BYTES_MAX
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceRequest
from ottla.protocol.wire import Buffer, varint
from ottla.records.batch import HEADER_SIZE
from ottla.server.alike import (
    FLEXIBLE_VERSION_MIN,
    ID_AT,
    ID_END,
    LENGTH_BYTES,
    OFFSETS_BYTES,
    SIZE_BYTES,
    TAGS_BYTES,
    VERSION_AT,
    answer_alike,
    cut_alike,
    pack_offsets,
    pack_size,
    read_size,
)
from ottla.server.answered import MARK, AnsweredTopic
from ottla.server.durable import DurableAnswers, Refused
from ottla.server.spread import Spread

SHAPES_MAX = 128
"""How many different heads one connection is remembered by."""


class _Shape:
    """One head, and the answer around the offsets."""

    __slots__ = ("acks", "after", "before", "head", "index", "partition", "size", "start", "timeout_ms", "topic")

    def __init__(self, start: bytes, head: bytes, partition: Partition, request: ProduceRequest) -> None:
        self.start = start
        """The request's API and version."""
        self.head = head
        """What stands between its number and its records."""
        self.partition = partition
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.topic = AnsweredTopic(request.topic_data[0], version=start[VERSION_AT])
        self.index = request.topic_data[0].partition_data[0].index
        marked = PartitionProduceResponse(self.index, 0, MARK, MARK, MARK)
        parts = self.topic.encode([marked]).split(pack_offsets(MARK, MARK, MARK))
        # Old versions do not tell all three of them.
        self.before, self.after = parts if len(parts) == 2 else (b"", b"")
        self.size = pack_size(ID_END - ID_AT + len(self.before) + OFFSETS_BYTES + len(self.after))

    def refuse(self, numbers: list[bytes], refusals: Refused) -> bytes:
        """The answers to these requests when what was appended for them counts for nothing."""
        body = self.topic.encode([refused(self.index, refusals[self.index])])
        size = pack_size(ID_END - ID_AT + len(body))
        return b"".join([part for number in numbers for part in (size, number, body)])


class Repeats:
    """What one connection has sent before."""

    __slots__ = (
        "_clock",
        "_deadlines",
        "_end",
        "_frame_bytes_max",
        "_shapes",
        "is_through",
        "position",
        "spread",
        "taken",
    )

    def __init__(self, deadlines: Deadlines, clock: Clock, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._frame_bytes_max = frame_bytes_max
        self._end = 0
        """Where the heads end: they all have one length."""
        self._shapes: dict[bytes, _Shape] = {}
        self.spread = Spread(deadlines, clock)
        self.position = 0
        self.taken = 0
        self.is_through = False

    def answer(self, data: bytes | memoryview, start: int) -> bytes | DurableAnswers | None:
        """See `Shortcut`. Takes requests that are like an earlier one, and like each other."""
        head_at = start + SIZE_BYTES
        shape = self._shapes.get(bytes(data[head_at + ID_END : head_at + self._end]))
        if shape is None:
            return self._spread_answers(data, start)
        cut = cut_alike(data, start, shape.start, shape.head, size_max=self._frame_bytes_max)
        run, numbers, self.position, self.is_through = cut
        if not numbers:
            return b"" if self.is_through else self._spread_answers(data, start)
        self.taken = len(numbers)
        partition = shape.partition
        try:
            is_taken = partition.append_run(run, now_ms=self._clock.now_ms())
        except Refusal:
            # It is found again on the ordinary way, which knows how to say it.
            return None
        if not is_taken:
            return None
        answers = answer_alike(shape.size, numbers, shape.before, run, shape.after)
        if shape.acks not in partition.durable_acks:
            return answers
        make = partial(shape.refuse, numbers)
        waiting = {shape.index: partition}
        return DurableAnswers(answers, make, waiting, self._deadlines, timeout_ms=shape.timeout_ms)

    def _spread_answers(self, data: bytes | memoryview, start: int) -> bytes | DurableAnswers:
        """The answers to requests for several partitions."""
        spread = self.spread
        answers = spread.answers(data, start, frame_bytes_max=self._frame_bytes_max)
        start, self.taken = spread.position, spread.taken
        self.position = start
        left = len(data) - start - SIZE_BYTES
        # A size that is too large is to be read, and refused.
        self.is_through = left < 0 or left < read_size(data, start)[0] <= self._frame_bytes_max
        return answers

    def learn(self, body: Buffer, request: ProduceRequest, partitions: Sequence[Partition]) -> None:
        """Remember a request for these partitions that was served the ordinary way, if it is of the plain kind."""
        if len(partitions) > 1:
            self.spread.learn(body, request, partitions)
        else:
            self._learn(body, request, partitions[0])

    def _learn(self, body: Buffer, request: ProduceRequest, partition: Partition) -> None:
        records = request.topic_data[0].partition_data[0].records
        if not is_plain(request, partition):
            return
        assert records is not None, "a batch was appended"
        if body[VERSION_AT] < FLEXIBLE_VERSION_MIN:
            start = len(body) - len(records)
            end = start - LENGTH_BYTES
        else:
            start = len(body) - len(records) - TAGS_BYTES
            end = start - len(varint(len(records) + 1))
            if not body[start - 1]:
                # The length has more bytes than it needs, so the head ends before the place where it would be cut.
                return
        opening = bytes(body[: start + HEADER_SIZE])
        known = self._shapes.get(opening[ID_END:end])
        if known is not None and known.partition is partition and opening.startswith(known.start):
            # One of its kind had to be read, which says nothing of the next.
            return
        first = opening.find(bytes(records[:HEADER_SIZE]))
        if first != start or bytes(body[start : start + len(records)]) != bytes(records):
            # Something else follows them: tagged fields, or what does not belong there. That may look like them, so
            # it is the first place that counts; and a batch is told by its header.
            return
        head = opening[ID_END:end]
        shape = _Shape(opening[:ID_AT], head, partition, request)
        if not shape.before:
            return
        if end != self._end or len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
            self._end = end
        self._shapes[head] = shape
