"""A cluster in memory that does as a test says: a small model of Kafka behind the client's transport contract.

Requests and responses pass through the real codec in the version that the client chose, so a field that a version
cannot carry fails here too. Time is a `ManualClock`: sleeping and long polls move it, and things can be set to
happen at a time. Faults are queued per API and used up one by one.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ottla.client.errors import NetworkException, Unreachable
from ottla.client.settings import Address
from ottla.client.transport import Call, Reply
from ottla.clock import ManualClock
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode, encode_bytes
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.schema import Message
from ottla.records.batch import check, peek, restamp
from ottla.records.builder import build_batch
from ottla.records.packing import RecordTuple
from ottla.records.reader import Record, read_batch
from tests.client.scripted_admin import answer_admin
from tests.client.scripted_transactions import ScriptedTransactions

Fault = Callable[[Call, Callable[[], Reply]], Reply]
"""Given a call and the way to carry it out, decides what comes back."""


def lose_request(call: Call, carry_out: Callable[[], Reply]) -> Reply:
    """The connection breaks before the broker has read anything."""
    raise NetworkException(f"{call.address}: scripted loss of a request")


def lose_answer(call: Call, carry_out: Callable[[], Reply]) -> Reply:
    """The broker does the work, and the connection breaks before its answer arrives."""
    carry_out()
    raise NetworkException(f"{call.address}: scripted loss of an answer")


@dataclass
class Partition:
    """One partition's log and what its leader remembers."""

    leader: int = 1
    leader_epoch: int = 0
    batches: list[bytearray] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    refusals: deque[ErrorCode] = field(default_factory=deque)
    """Codes that the next produce or fetch requests of this partition are answered with."""
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    recent: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def append(self, batch: bytearray) -> None:
        restamp(batch, base_offset=self.end, leader_epoch=self.leader_epoch)
        self.batches.append(batch)
        self.end = peek(batch).next_offset

    def records(self) -> list[Record]:
        return [record for batch in self.batches if not peek(batch).is_control for record in read_batch(batch)]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]


@dataclass
class Topic:
    """A topic of the model."""

    topic_id: bytes
    partitions: list[Partition]
    is_internal: bool = False
    configs: dict[str, str] = field(default_factory=dict)


class ScriptedCluster:
    """The model. `transport()` gives a client's way in, which never suspends."""

    def __init__(self, *, nodes: int = 1) -> None:
        self.clock = ManualClock()
        self.nodes = {node: Address(f"broker-{node}", 9092) for node in range(1, nodes + 1)}
        self.controller = 1
        self.topics: dict[str, Topic] = {}
        self.auto_create = False
        self.calls: list[Call] = []
        self.versions = {key: (APIS[key].versions.first, APIS[key].versions.last) for key in APIS}
        self.faults: dict[ApiKey, deque[Fault]] = defaultdict(deque)
        self.down: set[int] = set()
        self.sleeps_ms: list[int] = []
        self.next_producer_id = 1000
        self.transactions = ScriptedTransactions(self)
        self.transaction_version = 2
        """The level of the feature; 0 is not told of."""
        self._ids = itertools.count(1)
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._order = itertools.count()

    # --- the script ----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1) -> Topic:
        leaders = itertools.cycle(self.nodes)
        made = [Partition(leader=next(leaders)) for _ in range(partitions)]
        topic = self.topics[name] = Topic(next(self._ids).to_bytes(16, "big"), made)
        return topic

    def partition(self, topic: str, partition: int = 0) -> Partition:
        return self.topics[topic].partitions[partition]

    def write(self, topic: str, partition: int, *values: bytes, timestamp_ms: int = 1_000, pid: int = -1) -> None:
        """Append one batch, as if another producer had sent it; with a `pid`, as part of a transaction."""
        rows: list[RecordTuple] = [(None, value, timestamp_ms + index, ()) for index, value in enumerate(values)]
        epoch = -1 if pid < 0 else 0
        batch = build_batch(rows, producer_id=pid, producer_epoch=epoch, base_sequence=epoch, transactional=pid >= 0)
        self.partition(topic, partition).append(batch)

    def fault(self, api_key: ApiKey, *faults: Fault) -> None:
        self.faults[api_key].extend(faults)

    def at(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Let something happen when so much time has passed."""
        heapq.heappush(self._events, (self.clock.now_ms() + delay_ms, next(self._order), action))

    def pass_time(self, by_ms: int, *, until: Callable[[], bool] = lambda: False) -> None:
        """Move the clock, letting what is due happen on the way; stops early when `until` holds."""
        end_ms = self.clock.now_ms() + by_ms
        while self._events and self._events[0][0] <= end_ms and not until():
            due_ms, _, action = heapq.heappop(self._events)
            self.clock.advance(max(0, due_ms - self.clock.now_ms()))
            action()
        if not until():
            self.clock.advance(max(0, end_ms - self.clock.now_ms()))

    def count(self, api_key: ApiKey) -> int:
        return sum(call.api_key is api_key for call in self.calls)

    def transport(self, *, window: int = 5) -> ScriptedTransport:
        return ScriptedTransport(self, window=window)

    # --- answers -------------------------------------------------------------------------------------

    def answer(self, call: Call) -> Reply:
        """What the broker at the call's address does with it."""
        self.calls.append(call)
        node = next((node for node, address in self.nodes.items() if address == call.address), None)
        if node is None or node in self.down:
            raise Unreachable(f"{call.address}: connection refused")
        faults = self.faults[call.api_key]
        if faults:
            return faults.popleft()(call, lambda: self._carry_out(node, call))
        return self._carry_out(node, call)

    def _carry_out(self, node: int, call: Call) -> Reply:
        message = decode(request_class(call.api_key), call.version, encode_bytes(call.message, call.version))
        reply = self._handle(node, call, message)
        if not call.expects_response:
            return None
        version = 0 if getattr(reply, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION else call.version
        return decode(response_class(call.api_key), version, encode_bytes(reply, version))

    def _handle(self, node: int, call: Call, message: Message) -> Message:
        if call.api_key is ApiKey.API_VERSIONS:
            return self._api_versions(call.version)
        first, last = self.versions[call.api_key]
        assert first <= call.version <= last, f"{call.api_key.name} {call.version} was not announced"
        if isinstance(message, MetadataRequest):
            return self._metadata(message)
        if isinstance(message, ProduceRequest):
            return self._produce(node, message, call.version)
        if isinstance(message, FetchRequest):
            return self._fetch(node, message)
        if isinstance(message, ListOffsetsRequest):
            return self._list_offsets(node, message)
        about_transactions = self.transactions.answer(call.api_key, call.version, message)
        if about_transactions is not None:
            return about_transactions
        if call.api_key is ApiKey.INIT_PRODUCER_ID:
            self.next_producer_id += 1
            return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)
        return answer_admin(self, node, message)

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        first, last = self.versions[ApiKey.API_VERSIONS]
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()
        ]
        code = ErrorCode.NONE if first <= version <= last else ErrorCode.UNSUPPORTED_VERSION
        level = self.transaction_version
        features = [FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=level)]
        return ApiVersionsResponse(
            error_code=code, api_keys=keys, finalized_features_epoch=1, finalized_features=features if level else ()
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        asked = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        if request.allow_auto_topic_creation and self.auto_create:
            for name in asked:
                if name not in self.topics:
                    self.create(name)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=address.host, port=address.port)
                for node, address in self.nodes.items()
            ],
            cluster_id="scripted",
            controller_id=self.controller,
            topics=[self._describe(name) for name in asked],
        )

    def _describe(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=each.leader,
                    leader_epoch=each.leader_epoch,
                    replica_nodes=[each.leader],
                    isr_nodes=[each.leader],
                )
                for number, each in enumerate(topic.partitions)
            ],
        )

    def _name(self, name: str, topic_id: bytes) -> str:
        if name or not any(topic_id):
            return name
        return next((known for known, topic in self.topics.items() if topic.topic_id == topic_id), "")

    def find(self, node: int, name: str, topic_id: bytes, number: int) -> tuple[Partition | None, ErrorCode]:
        """A partition that this node leads, or why not."""
        name = self._name(name, topic_id)
        if not name and any(topic_id):
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        topic = self.topics.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[number]
        if partition.leader != node:
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition, ErrorCode.NONE

    def _produce(self, node: int, request: ProduceRequest, version: int) -> ProduceResponse:
        responses = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                partition, code = self.find(node, topic.name, topic.topic_id, data.index)
                offset = -1
                batch = bytearray(data.records or b"")
                if partition is not None and peek(batch).is_transactional:
                    key = (self._name(topic.name, topic.topic_id), data.index)
                    code = self.transactions.check(request.transactional_id, key, peek(batch), version)
                if partition is not None and not code:
                    code, offset = self._append(partition, batch)
                answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
            responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        return ProduceResponse(responses=responses)

    def _append(self, partition: Partition, batch: bytearray) -> tuple[ErrorCode, int]:
        header = check(batch)
        assert header.size == len(batch), "one batch per partition"
        if partition.refusals:
            code = partition.refusals.popleft()
            if code is not ErrorCode.NONE:
                return code, -1
        if header.has_producer:
            who = (header.producer_id, header.producer_epoch)
            known = partition.recent.get((*who, header.base_sequence))
            if known is not None:
                return ErrorCode.NONE, known
            expected = partition.sequences.get(who, 0)
            if header.base_sequence != expected:
                late = header.base_sequence < expected
                return (ErrorCode.DUPLICATE_SEQUENCE_NUMBER if late else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
            partition.sequences[who] = (header.last_sequence + 1) & 0x7FFFFFFF
            partition.recent[(*who, header.base_sequence)] = partition.end
        offset = partition.end
        partition.append(batch)
        return ErrorCode.NONE, offset

    def _fetch(self, node: int, request: FetchRequest) -> FetchResponse:
        assert request.session_id == 0
        assert request.session_epoch == -1

        def has_news() -> bool:
            for topic in request.topics:
                for asked in topic.partitions:
                    partition, code = self.find(node, topic.topic, topic.topic_id, asked.partition)
                    if code or partition is None or partition.refusals or asked.fetch_offset != partition.end:
                        return True
            return False

        if not has_news():
            self.pass_time(request.max_wait_ms, until=has_news)
        left = [request.max_bytes]
        responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    self._read(
                        *self.find(node, topic.topic, topic.topic_id, asked.partition),
                        number=asked.partition,
                        offset=asked.fetch_offset,
                        bytes_max=asked.partition_max_bytes,
                        left=left,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return FetchResponse(responses=responses)

    def _read(
        self,
        partition: Partition | None,
        code: ErrorCode,
        *,
        number: int,
        offset: int,
        bytes_max: int,
        left: list[int],
    ) -> PartitionData:
        if partition is not None and partition.refusals:
            code = partition.refusals.popleft()
        if partition is not None and not code and not partition.log_start <= offset <= partition.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if partition is None or code:
            return PartitionData(partition_index=number, error_code=code, high_watermark=-1, records=b"")
        found = b""
        for batch in partition.batches:
            fits = len(found) + len(batch) <= min(bytes_max, left[0])
            if peek(batch).next_offset > offset and (fits or (not found and left[0] > 0)):
                found += batch
        left[0] -= len(found)
        return PartitionData(
            partition_index=number,
            high_watermark=partition.end,
            last_stable_offset=partition.end,
            log_start_offset=partition.log_start,
            aborted_transactions=[AbortedTransaction(producer_id=p, first_offset=o) for p, o in partition.aborted],
            records=found,
        )

    def _list_offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        assert request.replica_id == -1, "a consumer says that it is none of the replicas"
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                partition, code = self.find(node, topic.name, b"", asked.partition_index)
                offset, timestamp = -1, -1
                if partition is not None:
                    offset, timestamp = self._locate(partition, asked.timestamp)
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=code, offset=offset, timestamp=timestamp
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    @staticmethod
    def _locate(partition: Partition, timestamp: int) -> tuple[int, int]:
        if timestamp == -1:
            return partition.end, -1
        if timestamp == -2:
            return partition.log_start, -1
        records = [record for record in partition.records() if record.offset >= partition.log_start]
        if timestamp == -3 and records:
            youngest = max(records, key=lambda record: record.timestamp_ms)
            return youngest.offset, youngest.timestamp_ms
        found = next((record for record in records if record.timestamp_ms >= timestamp), None)
        return (found.offset, found.timestamp_ms) if found is not None else (-1, -1)


class ScriptedTransport:
    """A client's way to the model: never suspends, so both faces can use it."""

    def __init__(self, cluster: ScriptedCluster, *, window: int) -> None:
        self._cluster = cluster
        self.window = window
        self.closed = False

    async def request(self, call: Call) -> Reply:
        return self._cluster.answer(call)

    async def exchange(self, calls: Sequence[Call]) -> list[Reply | OttlaError]:
        replies: list[Reply | OttlaError] = []
        for call in calls:
            try:
                replies.append(self._cluster.answer(call))
            except OttlaError as e:
                replies.append(e)
        return replies

    async def sleep(self, delay_ms: int) -> None:
        self._cluster.sleeps_ms.append(delay_ms)
        self._cluster.pass_time(delay_ms)

    def interrupt(self) -> None:
        self.closed = True

    async def close(self) -> None:
        self.closed = True
