"""Produce requests with batches for several partitions of one topic: what Kafka's own client sends.

All that stands before the partitions is the same bytes again as in an earlier request of the connection, so it is
compared and not read. Behind it stand a number and a batch for each partition, which are found by their lengths. What
came together for a partition is appended with one write, if it is plain, and else as the Produce handler appends it.
The answers are put together from the pieces of an earlier one. A request that is not of this kind is read, nothing of
it having happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import cast

from ottla.broker.batches import append_batch, refused
from ottla.broker.plain_produce import waits_for_disk
from ottla.errors import Refusal
from ottla.partitions.partition import Partition
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import encode_bytes
from ottla.protocol.headers import read_request_header, response_header, response_header_version
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.wire import Buffer, varint
from ottla.records.batch import NO_TIMESTAMP
from ottla.server.alike import (
    FLEXIBLE_VERSION_MIN,
    ID_AT,
    ID_END,
    SIZE_BYTES,
    VERSION_AT,
    Entry,
    cut_entries,
    pack_size,
    read_size,
)

TOPICS_MAX = 128
"""How many different topics one connection is remembered by."""
GATHERED_MAX = 3
"""How many requests the next pass may wait for. Kafka's client has five under way: two can be made meanwhile."""
GATHERED_BYTES_MIN, GATHERED_BYTES_MAX = 16 << 10, 128 << 10
"""The size of those that are worth it: a batch of Kafka's client at least, and not so much that one is enough."""

_EMPTY_END = b"\1\0\0"
"""How a request ends that has a topic without partitions: no partitions, and no tagged fields of either."""
_TOLD = Struct(">ihqqq")
"""A partition's number, no error, where its batch stands, when that was stamped, and where its log starts."""
_pack_told = _TOLD.pack
_MARK = 0x5A5A5A5A


Told = bytes | PartitionProduceResponse
"""What a partition is told of a batch: as it stands in an answer, or a refusal."""


class _Topic:
    """One head, the partitions that were served behind it, and the answer around what they are told."""

    __slots__ = ("_before", "_end", "acks", "behind", "name", "partitions", "start", "topic_id", "version")

    def __init__(self, start: bytes, request: ProduceRequest) -> None:
        topic = request.topic_data[0]
        self.start = start
        """The request's API and version."""
        self.version = start[VERSION_AT]
        self.acks = request.acks
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.partitions: dict[int, Partition] = {}
        # What an answer with two of them has around both is what any answer has.
        marked = PartitionProduceResponse(_MARK, 0, _MARK, _MARK, _MARK)
        before, self.behind, last = self._encode([marked, marked]).split(_pack_told(_MARK, 0, _MARK, _MARK, _MARK))
        # Before the count, which is one byte here.
        self._before = before[:-1]
        self._end = last[len(self.behind) :]

    def takes(self, entries: Sequence[Entry]) -> bool:
        """Whether all of them are for partitions that were served before, and could be now without waiting."""
        partitions, acks = self.partitions, self.acks
        for index, _ in entries:
            partition = partitions.get(index)
            if partition is None or partition.offline is not None or waits_for_disk(partition, acks):
                return False
        return True

    def _encode(self, answers: Sequence[PartitionProduceResponse]) -> bytes:
        """An answer without its size and number, as any is encoded."""
        header = response_header(0, header_version=response_header_version(ApiKey.PRODUCE, self.version))
        response = ProduceResponse([TopicProduceResponse(self.name, self.topic_id, answers)])
        return header[ID_END - ID_AT :] + encode_bytes(response, self.version)

    def answer(self, number: bytes, told: Sequence[Told]) -> bytes:
        """The whole answer to the request of that number."""
        if PartitionProduceResponse in map(type, told):
            body = number + self._encode([_spelled(each) for each in told])
        else:
            body = b"".join([number, self._before, varint(len(told) + 1), *cast(Sequence[bytes], told), self._end])
        return pack_size(len(body)) + body


def _spelled(told: Told) -> PartitionProduceResponse:
    return PartitionProduceResponse(*_TOLD.unpack_from(told)) if isinstance(told, bytes) else told


class Spread:
    """What one connection has sent before for several partitions at once."""

    __slots__ = ("_end", "_topics", "position", "taken", "wanted_bytes")

    def __init__(self) -> None:
        self._end = 0
        """Where the heads end: they all have one length."""
        self._topics: dict[bytes, _Topic] = {}
        self.wanted_bytes = 0
        """What the next pass may wait for, after one that showed that several requests are under way; else 0."""
        self.position = 0
        """Behind the requests that were taken."""
        self.taken = 0
        """How many they are."""

    def answers(self, data: bytes | memoryview, start: int, *, frame_bytes_max: int) -> bytes:
        """The answers to the requests from `start` on, up to the first that is not whole, or is to be read."""
        topic: _Topic | None = None
        requests: list[tuple[bytes, list[Entry]]] = []
        begin, end = start, self._end
        while end and start + SIZE_BYTES <= len(data):
            at = start + SIZE_BYTES
            (size,) = read_size(data, start)
            following = at + size
            if not end < size <= frame_bytes_max or following > len(data):
                break
            head = bytes(data[at : at + end])
            found = self._topics.get(head[ID_END:])
            if found is None or not head.startswith(found.start) or (topic is not None and found is not topic):
                break
            entries = cut_entries(data, at=at + end, end=following)
            if not entries or not found.takes(entries):
                break
            topic = found
            requests.append((head[ID_AT:ID_END], entries))
            start = following
        self.position, self.taken = start, len(requests)
        if topic is None:
            return b""
        self.wanted_bytes = _worth_gathering(start - begin, len(requests), has_more=start < len(data))
        return _append(topic, requests)

    def learn(self, body: Buffer, request: ProduceRequest, partitions: Sequence[Partition]) -> None:
        """Remember a request for these partitions, which has been served the ordinary way."""
        start = bytes(body[:ID_AT])
        version = start[VERSION_AT]
        if version < FLEXIBLE_VERSION_MIN:
            return
        asked = request.topic_data[0]
        _, header_end = read_request_header(body)
        empty = ProduceRequest(
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=[TopicProduceData(asked.name, asked.topic_id)],
        )
        written = encode_bytes(empty, version).removesuffix(_EMPTY_END)
        end = header_end + len(written)
        if bytes(body[header_end:end]) != written:
            # The same can be said in other bytes, too.
            return
        head = bytes(body[ID_END:end])
        topic = self._topics.get(head)
        if topic is None or topic.start != start:
            if end != self._end or len(self._topics) >= TOPICS_MAX:
                self._topics.clear()
                self._end = end
            topic = self._topics[head] = _Topic(start, request)
        for data, partition in zip(asked.partition_data, partitions, strict=True):
            topic.partitions[data.index] = partition


def _worth_gathering(taken_bytes: int, taken: int, *, has_more: bool) -> int:
    """What the next pass may wait for, by what this one has taken: as many requests as were under way at once."""
    size = taken_bytes // taken
    if not GATHERED_BYTES_MIN <= size <= GATHERED_BYTES_MAX:
        return 0
    count = min(taken + has_more, GATHERED_MAX)
    return size * count if count > 1 else 0


def _append(topic: _Topic, requests: Sequence[tuple[bytes, list[Entry]]]) -> bytes:
    """Append everything, and answer."""
    together: dict[int, list[Buffer]] = {}
    for _, entries in requests:
        for index, records in entries:
            together.setdefault(index, []).append(records)
    told = {
        index: iter(_append_to(topic, index, topic.partitions[index], batches)) for index, batches in together.items()
    }
    return b"".join([topic.answer(number, [next(told[index]) for index, _ in entries]) for number, entries in requests])


def _append_to(topic: _Topic, index: int, partition: Partition, batches: list[Buffer]) -> list[Told]:
    """Append what came together for one partition: what is said of each batch."""
    try:
        places = partition.append_run(batches)
    except Refusal:
        # Nothing has happened: it is found again below, with what is to be said of it.
        places = None
    behind = topic.behind
    if places is not None:
        start_offset = partition.log.log_start_offset
        return [_pack_told(index, 0, place[0], NO_TIMESTAMP, start_offset) + behind for place in places]
    told: list[Told] = []
    for records in batches:
        try:
            done = append_batch(partition, index, records, version=topic.version)
            told.append(_pack_told(index, 0, done.base_offset, done.log_append_time_ms, done.log_start_offset) + behind)
        except Refusal as error:
            told.append(refused(index, error))
    return told
