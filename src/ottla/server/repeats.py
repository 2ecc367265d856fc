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
from struct import Struct

from ottla.broker.plain_produce import append_plain, is_plain
from ottla.errors import Refusal
from ottla.partitions.partition import Partition
from ottla.protocol.frames import FRAME_BYTES_MAX
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.wire import Buffer, varint
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP
from ottla.server.spread import (
    FLEXIBLE_VERSION_MIN,
    ID_AT,
    ID_END,
    SIZE_BYTES,
    VERSION_AT,
    Spread,
    pack_size,
    read_size,
)

SHAPES_MAX = 128
"""How many different heads one connection is remembered by."""

_TAGS_BYTES = 3
"""No tagged fields for the partition, the topic and the request: three zeros."""
_TAGS_MASK = 0xFFFFFF
_WORD_BYTES = 4
_LENGTH_BYTES = 4
_OFFSETS = Struct(">qqq")
_OFFSETS_BYTES = _OFFSETS.size
_pack_offsets = _OFFSETS.pack
_read_word = Struct(">I").unpack_from


class _Shape:
    """One head, and the answer around the offsets."""

    __slots__ = ("acks", "after", "before", "head", "is_flexible", "partition", "start")

    def __init__(
        self, start: bytes, head: bytes, partition: Partition, *, acks: int, before: bytes, after: bytes
    ) -> None:
        self.start = start
        """The request's API and version."""
        self.head = head
        """What stands between its number and its records."""
        self.is_flexible = start[VERSION_AT] >= FLEXIBLE_VERSION_MIN
        self.partition = partition
        self.acks = acks
        self.before = before
        self.after = after


class Repeats:
    """What one connection has sent before."""

    __slots__ = ("_end", "_frame_bytes_max", "_shapes", "_size", "_spread", "is_through", "position", "taken")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._end = 0
        """Where the heads end: they all have one length."""
        self._size = b""
        """The size of the answers, as it stands before them: they all have one, too."""
        self._shapes: dict[bytes, _Shape] = {}
        self._spread = Spread()
        self.position = 0
        self.taken = 0
        self.is_through = False

    def answer(self, data: bytes | memoryview, start: int) -> bytes | None:
        """See `Shortcut`. Takes requests that are like an earlier one, and like each other."""
        self.is_through = False
        if not self._shapes:
            return self._spread_answers(data, start)
        shape: _Shape | None = None
        batches: list[Buffer] = []
        ids: list[bytes] = []
        end, head_end = len(data), self._end
        while True:
            at = start + SIZE_BYTES
            if at > end:
                self.is_through = True
                break
            (size,) = read_size(data, start)
            following = at + size
            if not head_end + HEADER_SIZE <= size <= self._frame_bytes_max:
                break
            if following > end:
                self.is_through = True
                break
            # With the length of the records, which stands behind it.
            head = bytes(data[at : at + head_end + _LENGTH_BYTES])
            if shape is None:
                shape = self._shapes.get(head[ID_END:head_end])
            if shape is None or not head.startswith(shape.head, ID_END) or not head.startswith(shape.start):
                break
            at += head_end
            if shape.is_flexible:
                # Up to three bytes of seven bits, and one more than the length itself.
                length = head[head_end]
                at += 1
                if length >= 0x80:
                    length = length & 0x7F | head[head_end + 1] << 7
                    at += 1
                    if length >= 0x4000:
                        length = length & 0x3FFF | head[head_end + 2] << 14
                        at += 1
                records_end = following - _TAGS_BYTES
                if at + length - 1 != records_end or _read_word(data, following - _WORD_BYTES)[0] & _TAGS_MASK:
                    break
            else:
                at += _LENGTH_BYTES
                records_end = following
                if at + int.from_bytes(head[head_end:]) != records_end:
                    break
            batches.append(data[at:records_end])
            ids.append(head[ID_AT:ID_END])
            start = following
        if shape is None or not batches:
            return b"" if self.is_through else self._spread_answers(data, start)
        self.position, self.taken = start, len(batches)
        try:
            offsets = append_plain(shape.partition, batches, acks=shape.acks)
        except Refusal:
            # It is found again on the ordinary way, which knows how to say it.
            return None
        return None if offsets is None else self._answers(shape, ids, offsets)

    def _spread_answers(self, data: bytes | memoryview, start: int) -> bytes:
        """The answers to requests for several partitions."""
        spread = self._spread
        answers = spread.answers(data, start, frame_bytes_max=self._frame_bytes_max)
        start, self.taken = spread.position, spread.taken
        self.position = start
        left = len(data) - start - SIZE_BYTES
        # A size that is too large is to be read, and refused.
        self.is_through = left < 0 or left < read_size(data, start)[0] <= self._frame_bytes_max
        return answers

    def _answers(self, shape: _Shape, ids: list[bytes], offsets: list[int]) -> bytes:
        size, before, after = self._size, shape.before, shape.after
        log_start_offset = shape.partition.log.log_start_offset
        parts: list[bytes] = []
        for number, offset in zip(ids, offsets, strict=True):
            parts += (size, number, before, _pack_offsets(offset, NO_TIMESTAMP, log_start_offset), after)
        return b"".join(parts)

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
            self._spread.learn(body, request, partitions)
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
            end = start - _LENGTH_BYTES
        else:
            start = len(body) - len(records) - _TAGS_BYTES
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
        offsets = _pack_offsets(said.base_offset, said.log_append_time_ms, said.log_start_offset)
        parts = bytes(answer[0])[SIZE_BYTES + ID_END - ID_AT :].split(offsets)
        if len(parts) != 2:
            # Old versions do not tell all three of them.
            return
        before, after = parts
        size = pack_size(ID_END - ID_AT + len(before) + _OFFSETS_BYTES + len(after))
        if end != self._end or size != self._size or len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
            self._end, self._size = end, size
        head = opening[ID_END:end]
        self._shapes[head] = _Shape(opening[:ID_AT], head, partition, acks=request.acks, before=before, after=after)
