"""Produce requests with batches for several partitions of one topic: what Kafka's own client sends.

All that stands before the partitions is the same bytes again as in an earlier request of the connection, so it is
compared and not read. Behind it stand a number and a batch for each partition, which are found by their lengths. What
came together for a partition is appended with one write, if it is plain, and else as the Produce handler appends it.
The answers are put together from the pieces of an earlier one. A request that is not of this kind is read, nothing of
it having happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ottla.broker.batches import append_batch, refused
from ottla.broker.deadlines import Deadlines
from ottla.clock import Clock
from ottla.errors import Refusal
from ottla.partitions.partition import Partition
from ottla.protocol.codec import encode_bytes
from ottla.protocol.headers import read_request_header
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.wire import Buffer
from ottla.records.batch import NO_TIMESTAMP
from ottla.server.alike import (
    FLEXIBLE_VERSION_MIN,
    ID_AT,
    ID_END,
    SIZE_BYTES,
    VERSION_AT,
    pack_size,
)
from ottla.server.answered import MARK, AnsweredTopic
from ottla.server.durable import DurableAnswers, Refused
from ottla.server.gathering import COUNT_MAX
from ottla.server.several import Spreading, SpreadRequests, cut_spread, pack_told

TOPICS_MAX = 128
"""How many different topics one connection is remembered by."""

_EMPTY_END = b"\1\0\0"
"""How a request ends that has a topic without partitions: no partitions, and no tagged fields of either."""
Outcomes = dict[int, list[PartitionProduceResponse]]
"""What each partition says of the batches that came for it."""
Places = tuple[list[int], int]
"""The offsets of the batches that came for a partition, and where its log starts."""
_ALL = 1 << 30
"""More requests than can come at once."""


class _Topic:
    """One head, the partitions that were served behind it, and the answer around what they are told."""

    __slots__ = (
        "_answered",
        "_before",
        "_behind",
        "_clock",
        "_deadlines",
        "_end",
        "acks",
        "partitions",
        "start",
        "timeout_ms",
        "version",
    )

    def __init__(self, start: bytes, request: ProduceRequest, deadlines: Deadlines, clock: Clock) -> None:
        topic = request.topic_data[0]
        self.start = start
        """The request's API and version."""
        self.version = start[VERSION_AT]
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self._deadlines = deadlines
        self._clock = clock
        self._answered = AnsweredTopic(topic, version=self.version)
        self.partitions: dict[int, Partition] = {}
        # What an answer with two of them has around both is what any answer has.
        marked = PartitionProduceResponse(MARK, 0, MARK, MARK, MARK)
        before, self._behind, last = self._answered.encode([marked, marked]).split(pack_told(MARK, 0, MARK, MARK, MARK))
        # Before the count, which is one byte here.
        self._before = before[:-1]
        self._end = last[len(self._behind) :]

    def takes(self, cut: SpreadRequests) -> bool:
        """Whether all of it is for partitions that were served before, and could be now."""
        partitions = self.partitions
        for index in cut.runs:
            partition = partitions.get(index)
            if partition is None or partition.offline is not None:
                return False
        return True

    def append(self, cut: SpreadRequests) -> bytes | DurableAnswers:
        """Append everything, and answer."""
        waiting: dict[int, Partition] = {}
        acks, now_ms = self.acks, self._clock.now_ms()
        for index, run in cut.runs.items():
            partition = self.partitions[index]
            try:
                is_taken = partition.append_run(run, now_ms=now_ms)
            except Refusal:
                # Nothing has happened: it is found again below, with what is to be said of it.
                is_taken = False
            if not is_taken:
                return self._append_rest(cut, first=index)
            if acks in partition.durable_acks:
                waiting[index] = partition
        answers = cut.answer(self._before, self._behind, self._end)
        if not waiting:
            return answers
        requests, places = cut.requests, _places(cut, cut.runs)
        return self._hold(answers, waiting, lambda refusals: self._tell(requests, _said(places), refusals))

    def _append_rest(self, cut: SpreadRequests, *, first: int) -> bytes | DurableAnswers:
        """As `append`, from the partition `first` on, one batch after the other; those before it have taken theirs."""
        requests, indexes = cut.requests, list(cut.runs)
        taken, left = indexes[: indexes.index(first)], indexes[indexes.index(first) :]
        said = _said(_places(cut, taken))
        for index in left:
            said[index] = [self._append_one(index, records) for records in cut.runs[index].batches]
        answers = self._tell(requests, said, {})
        waiting = {
            index: partition
            for index, outcomes in said.items()
            if self.acks in (partition := self.partitions[index]).durable_acks
            and any(not outcome.error_code for outcome in outcomes)
        }
        if not waiting:
            return answers
        return self._hold(answers, waiting, partial(self._tell, requests, said))

    def _hold(
        self, answers: bytes, waiting: Mapping[int, Partition], make: Callable[[Refused], bytes]
    ) -> DurableAnswers:
        return DurableAnswers(answers, make, waiting, self._deadlines, timeout_ms=self.timeout_ms)

    def _tell(self, requests: list[Spreading], said: Outcomes, refusals: Refused) -> bytes:
        """The answers to these requests; what was appended to a partition that is refused counts for nothing."""
        said = said | {
            index: [each if each.error_code else refused(index, error) for each in said[index]]
            for index, error in refusals.items()
        }
        encode = self._answered.encode
        answers = [number + encode([said[index][ordinal] for index, ordinal in order]) for number, order in requests]
        return b"".join([part for answer in answers for part in (pack_size(len(answer)), answer)])

    def _append_one(self, index: int, records: Buffer) -> PartitionProduceResponse:
        try:
            return append_batch(self.partitions[index], index, records, version=self.version)
        except Refusal as error:
            return refused(index, error)


def _places(cut: SpreadRequests, indexes: Iterable[int]) -> dict[int, Places]:
    """Where the batches for these partitions stand, without what was received, which the runs hold."""
    return {index: ((run := cut.runs[index]).offsets, run.log_start_offset) for index in indexes}


def _said(places: dict[int, Places]) -> Outcomes:
    """What partitions that have taken everything say of each batch."""
    return {
        index: [PartitionProduceResponse(index, 0, offset, NO_TIMESTAMP, start) for offset in offsets]
        for index, (offsets, start) in places.items()
    }


class Spread:
    """What one connection has sent before for several partitions at once."""

    __slots__ = ("_clock", "_deadlines", "_end", "_topics", "position", "request_bytes", "taken", "under_way")

    def __init__(self, deadlines: Deadlines, clock: Clock) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._end = 0
        """Where the heads end: they all have one length."""
        self._topics: dict[bytes, _Topic] = {}
        self.request_bytes = 0
        """How large those were that were taken last, on average, if more of them would be worth waiting for; else 0."""
        self.under_way = 0
        """How many the client had under way then, at least."""
        self.position = 0
        """Behind the requests that were taken."""
        self.taken = 0
        """How many they are."""

    def answers(self, data: bytes | memoryview, start: int, *, frame_bytes_max: int) -> bytes | DurableAnswers:
        """The answers to the requests from `start` on, up to the first that is not whole, or is to be read."""
        self.position, self.taken = start, 0
        head_at = start + SIZE_BYTES
        head = bytes(data[head_at + ID_END : head_at + self._end])
        topic = self._topics.get(head)
        if topic is None:
            return b""
        for count_max in (_ALL, 1):
            cut = cut_spread(data, start, topic.start, head, size_max=frame_bytes_max, count_max=count_max)
            if topic.takes(cut):
                break
            # Then perhaps the first of them.
        else:
            return b""
        count, position = len(cut), cut.position
        if not count:
            return b""
        self.position, self.taken = position, count
        answers = topic.append(cut)
        if type(answers) is not bytes:
            # A client whose answers wait for the disk is not made to wait for more of its own.
            return answers
        if COUNT_MAX * cut.batch_count >= count * len(topic.partitions):
            # Otherwise those that came together would hardly ever meet in a partition.
            self.request_bytes = (position - start) // count
            self.under_way = count + (position < len(data))
        return answers

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
            topic = self._topics[head] = _Topic(start, request, self._deadlines, self._clock)
        for data, partition in zip(asked.partition_data, partitions, strict=True):
            topic.partitions[data.index] = partition
