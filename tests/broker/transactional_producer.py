"""A transactional producer moved by hand: it sends what a client would, in either version of transactions.

It keeps the producer id, the epoch and the sequence numbers as clients do, and leaves the rest to the test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchRequest, PartitionData
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.records.batch import Buffer, walk
from ottla.records.control import parse_marker
from ottla.records.reader import read_batch
from tests.broker.stage import Sent, Stage, creation, fetch_topic
from tests.storage.workbench import batch

TIMEOUT_MS = 60_000
READ_COMMITTED = 1


@dataclass
class TransactionalProducer:
    """One client with a transactional id."""

    stage: Stage
    transactional_id: str = "id"
    second: bool = True
    """Whether it knows the second version of transactions."""
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def init(self, *, timeout_ms: int = TIMEOUT_MS) -> TransactionalProducer:
        """Take the transactional id."""
        response = self.stage.call(self.init_request(timeout_ms=timeout_ms))
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        self._go_on(response.producer_id, response.producer_epoch)
        return self

    def init_request(self, *, timeout_ms: int = TIMEOUT_MS) -> InitProducerIdRequest:
        return InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)

    def _go_on(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    # --- writing ---------------------------------------------------------------------------------------

    def data(self, *values: bytes, topic: str = "t", partition: int = 0, sequence: int | None = None) -> bytes:
        """The next batch for a partition."""
        due = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = (due if sequence is None else sequence) + len(values)
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=due if sequence is None else sequence,
            transactional=True,
        )

    def request(self, *batches: tuple[str, int, Buffer], acks: int = -1) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=data)])
                for topic, index, data in batches
            ],
        )

    @property
    def version(self) -> int:
        """Of Produce."""
        return 12 if self.second else 11

    def send(self, *values: bytes, topic: str = "t", partition: int = 0, version: int | None = None) -> Sent:
        """A batch on its way; nothing moves."""
        request = self.request((topic, partition, self.data(*values, topic=topic, partition=partition)))
        return self.stage.send(request, version or self.version)

    def produce(self, *values: bytes, topic: str = "t", partition: int = 0, version: int | None = None) -> int:
        """A batch, with what a client of this version does before; returns the error code."""
        if not self.second and version is None:
            self.add((topic, partition))
        sent = self.send(*values, topic=topic, partition=partition, version=version)
        self.stage.scheduler.run()
        return code_of(sent)

    def add(self, *places: tuple[str, int], version: int = 3) -> list[int]:
        """Add partitions as clients of the first version do; returns the error codes."""
        response = self.stage.call(self.add_request(*places), version)
        return [
            result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]

    def add_request(self, *places: tuple[str, int]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in places],
        )

    # --- offsets ---------------------------------------------------------------------------------------

    def add_offsets(self, group: str = "g", version: int = 4) -> int:
        return int(self.stage.call(self.add_offsets_request(group), version).error_code)

    def add_offsets_request(self, group: str = "g") -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )

    def offsets_request(self, offset: int, *, group: str = "g", topic: str = "t") -> TxnOffsetCommitRequest:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )

    def commit_offset(self, offset: int, *, group: str = "g", version: int | None = None) -> int:
        version = version or (5 if self.second else 3)
        response = self.stage.call(self.offsets_request(offset, group=group), version)
        return int(response.topics[0].partitions[0].error_code)

    # --- ending ----------------------------------------------------------------------------------------

    def end_request(self, *, committed: bool = True) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    def end(self, *, committed: bool = True, version: int | None = None) -> int:
        """Commit or abort; returns the error code, and goes on with what the response tells."""
        version = (5 if self.second else 3) if version is None else version
        response = self.stage.call(self.end_request(committed=committed), version)
        if response.error_code == ErrorCode.NONE and version >= 5:
            self._go_on(response.producer_id, response.producer_epoch)
        return int(response.error_code)

    def state(self) -> Any:
        """What the coordinator tells of the id."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        return self.stage.call(request).transaction_states[0]


def code_of(sent: Sent) -> int:
    """The error code of a produce request with one batch."""
    (code,) = codes_of(sent)
    return code


def codes_of(sent: Sent) -> list[int]:
    """The error codes of a produce request, in its order."""
    return [answer.error_code for topic in sent.response.responses for answer in topic.partition_responses]


def settle(stage: Stage) -> None:
    """Let a disk that is held do all there is to do."""
    stage.scheduler.run()
    while stage.jobs.waiting:
        stage.jobs.finish()


def held_producer(*, second: bool = True, partitions: int = 2) -> TransactionalProducer:
    """A producer whose broker's disk does nothing unless it is told to; with a topic `t`."""
    stage = Stage(held=True)
    stage.send(creation("t", partitions))
    producer = TransactionalProducer(stage, second=second)
    sent = stage.send(producer.init_request())
    settle(stage)
    producer.producer_id, producer.epoch = sent.response.producer_id, sent.response.producer_epoch
    return producer


def committed_data(stage: Stage, topic: str = "t", partition: int = 0, *, offset: int = 0) -> PartitionData:
    """What a read_committed consumer is given from an offset on."""
    request = FetchRequest(isolation_level=READ_COMMITTED, topics=[fetch_topic(topic, partition, offset=offset)])
    data: PartitionData = stage.call(request, 12).responses[0].partitions[0]
    return data


def committed_values(stage: Stage, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    """What a read_committed consumer sees, as clients read it: skipping what the aborted transactions cover."""
    data = committed_data(stage, topic, partition)
    aborted = sorted((found.first_offset, found.producer_id) for found in data.aborted_transactions or ())
    skipped: set[int] = set()
    values: list[bytes | None] = []
    found = bytes(data.records or b"")
    for position, header in walk(found):
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.pop(0)[1])
        whole = found[position : position + header.size]
        if header.is_control:
            marker = parse_marker(whole)
            assert marker is not None
            skipped.discard(marker.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            values += [record.value for record in read_batch(whole)]
    return values


def markers(stage: Stage, topic: str = "t", partition: int = 0) -> list[tuple[int, int, str]]:
    """The markers in a partition: producer id, epoch, COMMIT or ABORT."""
    found = []
    for each in stage.partition(topic, partition).log.batches(offset=0):
        if each.header.is_control:
            marker = parse_marker(each.data)
            assert marker is not None
            found.append((marker.producer_id, marker.producer_epoch, marker.marker_type.name))
    return found


def end_offset(stage: Stage, topic: str = "t", partition: int = 0, *, committed: bool = True) -> int:
    """The end of a partition as ListOffsets tells it."""
    request = ListOffsetsRequest(
        isolation_level=READ_COMMITTED if committed else 0,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
        ],
    )
    response = stage.call(request)
    return int(response.topics[0].partitions[0].offset)
