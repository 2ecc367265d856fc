"""Produce requests that are like an earlier one of their connection, but for the records: most of a busy producer's.

All that stands before the records is the same bytes again, so it is compared and not read. Those that come together are
appended with one write, and what the partition says of each is put into a copy of the earlier answer. Only the plainest
requests are remembered: one partition, no wait for the disk, batches that need no second look; those for several
partitions are `spread`'s. Anything else, and every refusal, takes the ordinary way through codec and handler, and
nothing has happened before it does: there is one set of rules, and this is a shorter way to them. Whatever comes to
depend on more than a request's bytes (permissions, quotas) has to make connections forget.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.plain_produce import append_plain, is_plain
from ottla.errors import Refusal
from ottla.partitions.partition import Partition
from ottla.protocol.frames import FRAME_BYTES_MAX
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
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
from ottla.server.spread import Spread

SHAPES_MAX = 128
"""How many different heads one connection is remembered by."""


class _Shape:
    """One head, and the answer around the offsets."""

    __slots__ = ("acks", "after", "before", "head", "partition", "start")

    def __init__(
        self, start: bytes, head: bytes, partition: Partition, *, acks: int, before: bytes, after: bytes
    ) -> None:
        self.start = start
        """The request's API and version."""
        self.head = head
        """What stands between its number and its records."""
        self.partition = partition
        self.acks = acks
        self.before = before
        self.after = after


class Repeats:
    """What one connection has sent before."""

    __slots__ = ("_end", "_frame_bytes_max", "_shapes", "_size", "is_through", "position", "spread", "taken")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._end = 0
        """Where the heads end: they all have one length."""
        self._size = b""
        """The size of the answers, as it stands before them: they all have one, too."""
        self._shapes: dict[bytes, _Shape] = {}
        self.spread = Spread()
        self.position = 0
        self.taken = 0
        self.is_through = False

    def answer(self, data: bytes | memoryview, start: int) -> bytes | None:
        """See `Shortcut`. Takes requests that are like an earlier one, and like each other."""
        head_at = start + SIZE_BYTES
        shape = self._shapes.get(bytes(data[head_at + ID_END : head_at + self._end]))
        if shape is None:
            return self._spread_answers(data, start)
        cut = cut_alike(data, start, shape.start, shape.head, size_max=self._frame_bytes_max)
        batches, numbers, self.position, self.is_through = cut
        if not batches:
            return b"" if self.is_through else self._spread_answers(data, start)
        self.taken = len(batches)
        partition = shape.partition
        try:
            offsets = append_plain(partition, batches, acks=shape.acks)
        except Refusal:
            # It is found again on the ordinary way, which knows how to say it.
            return None
        if offsets is None:
            return None
        log_start_offset = partition.log.log_start_offset
        return answer_alike(self._size, numbers, shape.before, offsets, shape.after, log_start_offset=log_start_offset)

    def _spread_answers(self, data: bytes | memoryview, start: int) -> bytes:
        """The answers to requests for several partitions."""
        spread = self.spread
        answers = spread.answers(data, start, frame_bytes_max=self._frame_bytes_max)
        start, self.taken = spread.position, spread.taken
        self.position = start
        left = len(data) - start - SIZE_BYTES
        # A size that is too large is to be read, and refused.
        self.is_through = left < 0 or left < read_size(data, start)[0] <= self._frame_bytes_max
        return answers

    def learn(
        self,
        body: Buffer,
        request: ProduceRequest,
        partitions: Sequence[Partition],
        response: ProduceResponse,
        answer: Sequence[Buffer],
    ) -> None:
        """Remember a request for these partitions that was served the ordinary way, if it is of the plain kind."""
        if len(partitions) > 1:
            self.spread.learn(body, request, partitions)
        else:
            self._learn(body, request, partitions[0], response, answer)

    def _learn(
        self,
        body: Buffer,
        request: ProduceRequest,
        partition: Partition,
        response: ProduceResponse,
        answer: Sequence[Buffer],
    ) -> None:
        records = request.topic_data[0].partition_data[0].records
        said = response.responses[0].partition_responses[0]
        if said.error_code or len(answer) != 1 or not is_plain(request, partition):
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
        offsets = pack_offsets(said.base_offset, said.log_append_time_ms, said.log_start_offset)
        parts = bytes(answer[0])[SIZE_BYTES + ID_END - ID_AT :].split(offsets)
        if len(parts) != 2:
            # Old versions do not tell all three of them.
            return
        before, after = parts
        size = pack_size(ID_END - ID_AT + len(before) + OFFSETS_BYTES + len(after))
        if end != self._end or size != self._size or len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
            self._end, self._size = end, size
        head = opening[ID_END:end]
        self._shapes[head] = _Shape(opening[:ID_AT], head, partition, acks=request.acks, before=before, after=after)
