"""A transactional producer by hand: any request in any version, when and as often as a test wants.

Nothing is tried again and nothing is hidden: every call gives the code that the broker answered with. What a code
ought to be is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.protocol.schema import Message
from ottla.records.builder import build_batch
from tests.server.wire import ACKS_ALL, SECONDS_MAX, Wire

GROUP, TRANSACTION = 0, 1
FIRST_MULTIPLE_ADD = 4
"""From this version on AddPartitionsToTxn names several transactions, as brokers do among themselves."""
NO_EPOCH, NO_PRODUCER, NO_SEQUENCE = -1, -1, -1

M = TypeVar("M", bound=Message)


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Batch(NamedTuple):
    """What one request is to append, and as whom; made with `RawProducer.batch`."""

    place: Place
    values: tuple[bytes, ...]
    producer_id: int
    epoch: int
    sequence: int
    timestamp_ms: int
    transactional: bool = True


def ask(wire: Wire, key: ApiKey, version: int, request: Message, answer: type[M]) -> M:
    """The answer to a request."""
    response = wire.call(key, version, request)
    assert isinstance(response, answer)
    return response


def produce(
    wire: Wire, batch: Batch, transactional_id: str | None, *, version: int, acks: int = ACKS_ALL
) -> tuple[ErrorCode, int]:
    """The code and the offset that one batch is answered with."""
    records = build_batch(
        [(None, value, batch.timestamp_ms + index, ()) for index, value in enumerate(batch.values)],
        producer_id=batch.producer_id,
        producer_epoch=batch.epoch,
        base_sequence=batch.sequence,
        transactional=batch.transactional,
    )
    data = PartitionProduceData(index=batch.place.partition, records=bytes(records))
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=batch.place.topic, partition_data=[data])],
    )
    (answer,) = ask(wire, ApiKey.PRODUCE, version, request, ProduceResponse).responses[0].partition_responses
    return ErrorCode(answer.error_code), answer.base_offset


def until(settled: Callable[[], bool]) -> None:
    """Ask again and again."""
    deadline = time.monotonic() + SECONDS_MAX
    while not settled():
        assert time.monotonic() < deadline, "it does not come true"


def find_coordinator(wire: Wire, key: str, key_type: int) -> None:
    """Wait until there is one; Kafka makes the topic that it needs at the first question."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])

    def is_found() -> bool:
        (found,) = ask(wire, ApiKey.FIND_COORDINATOR, 4, request, FindCoordinatorResponse).coordinators
        assert found.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE), ErrorCode(found.error_code)
        return found.error_code == ErrorCode.NONE

    until(is_found)


class RawProducer:
    """One transactional id as one client sees it: the producer id and epoch that it was told last."""

    def __init__(self, wire: Wire, transactional_id: str) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.producer_id = NO_PRODUCER
        self.epoch = NO_EPOCH
        self._next: dict[tuple[int, int, Place], int] = {}
        """The next sequence number, by producer id and epoch: a new epoch begins at nought."""

    def init(
        self,
        *,
        version: int = 5,
        timeout_ms: int = 60_000,
        producer_id: int = NO_PRODUCER,
        epoch: int = NO_EPOCH,
    ) -> ErrorCode:
        """Whether an id and an epoch came; then they are used from now on."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = ask(self.wire, ApiKey.INIT_PRODUCER_ID, version, request, InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def init_patiently(self, *, timeout_ms: int = 60_000) -> None:
        """As every client does it: try again while the transaction before is being ended."""
        allowed = (
            ErrorCode.NONE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        )

        def is_begun() -> bool:
            code = self.init(timeout_ms=timeout_ms)
            assert code in allowed, code
            return code is ErrorCode.NONE

        until(is_begun)

    def batch(
        self,
        place: Place,
        values: Sequence[bytes],
        *,
        producer_id: int | None = None,
        epoch: int | None = None,
        sequence: int | None = None,
        transactional: bool = True,
        timestamp_ms: int | None = None,
    ) -> Batch:
        """The producer's next batch for a partition, unless other numbers are wanted."""
        own_id = self.producer_id if producer_id is None else producer_id
        own_epoch = self.epoch if epoch is None else epoch
        at = self._next.get((own_id, own_epoch, place), 0) if sequence is None else sequence
        when_ms = int(time.time() * 1_000) if timestamp_ms is None else timestamp_ms
        return Batch(place, tuple(values), own_id, own_epoch, at, when_ms, transactional)

    def produce(self, batch: Batch, *, version: int = 12, acks: int = ACKS_ALL) -> tuple[ErrorCode, int]:
        """The code and the offset."""
        code, offset = produce(self.wire, batch, self.transactional_id, version=version, acks=acks)
        if code is ErrorCode.NONE:
            self.taken(batch)
        return code, offset

    def taken(self, batch: Batch) -> None:
        """A batch is in the log, and the next one goes on from there."""
        self._next[batch.producer_id, batch.epoch, batch.place] = batch.sequence + len(batch.values)

    def add(
        self,
        places: Sequence[Place],
        *,
        version: int = 3,
        producer_id: int | None = None,
        epoch: int | None = None,
        verify_only: bool = False,
    ) -> dict[Place, ErrorCode]:
        """The code of each partition."""
        topics = [
            AddPartitionsToTxnTopic(name, [place.partition for place in places if place.topic == name])
            for name in dict.fromkeys(place.topic for place in places)
        ]
        own_id = self.producer_id if producer_id is None else producer_id
        own_epoch = self.epoch if epoch is None else epoch
        if version >= FIRST_MULTIPLE_ADD:
            transaction = AddPartitionsToTxnTransaction(
                self.transactional_id, own_id, own_epoch, verify_only=verify_only, topics=topics
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=own_id,
                v3_and_below_producer_epoch=own_epoch,
                v3_and_below_topics=topics,
            )
        answer = ask(self.wire, ApiKey.ADD_PARTITIONS_TO_TXN, version, request, AddPartitionsToTxnResponse)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        results = answer.results_by_topic_v3_and_below
        if version >= FIRST_MULTIPLE_ADD:
            results = answer.results_by_transaction[0].topic_results
        return {
            Place(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
            for topic in results
            for result in topic.results_by_partition
        }

    def end(
        self, *, commit: bool, version: int = 5, producer_id: int | None = None, epoch: int | None = None
    ) -> ErrorCode:
        """The code; from version 5 on a producer goes on with the id and epoch that come with it."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        answer = ask(self.wire, ApiKey.END_TXN, version, request, EndTxnResponse)
        if answer.error_code == ErrorCode.NONE and answer.producer_id != NO_PRODUCER:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def add_offsets(
        self, group: str, *, version: int = 4, producer_id: int | None = None, epoch: int | None = None
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            group_id=group,
        )
        return ErrorCode(
            ask(self.wire, ApiKey.ADD_OFFSETS_TO_TXN, version, request, AddOffsetsToTxnResponse).error_code
        )

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[Place, int],
        *,
        version: int = 3,
        producer_id: int | None = None,
        epoch: int | None = None,
        generation: int = -1,
        member: str = "",
    ) -> dict[Place, ErrorCode]:
        """The code of each partition."""
        topics = [
            TxnOffsetCommitRequestTopic(
                name,
                [
                    TxnOffsetCommitRequestPartition(place.partition, offset)
                    for place, offset in offsets.items()
                    if place.topic == name
                ],
            )
            for name in dict.fromkeys(place.topic for place in offsets)
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            generation_id=generation,
            member_id=member,
            topics=topics,
        )
        answer = ask(self.wire, ApiKey.TXN_OFFSET_COMMIT, version, request, TxnOffsetCommitResponse)
        return {
            Place(topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }

    def state(self) -> str:
        """What the coordinator says that the transaction is doing, or the code where it says nothing."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        answer = ask(self.wire, ApiKey.DESCRIBE_TRANSACTIONS, 0, request, DescribeTransactionsResponse)
        (told,) = answer.transaction_states
        if told.error_code != ErrorCode.NONE:
            return ErrorCode(told.error_code).name
        return told.transaction_state

    def settle(self, state: str | None = None) -> str:
        """Wait until the transaction is not being ended any more, or until it is in a state; the state."""
        until(lambda: self.state() == state if state is not None else not self.state().startswith("Prepare"))
        return self.state()
