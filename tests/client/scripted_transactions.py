"""The part of the scripted cluster that coordinates transactions, in either version, and commits several as one.

Markers are written at once. Refusals can be queued per API.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.commit_together import CommitTogetherRequest, CommitTogetherResponse
from ottla.protocol.messages.describe_commit import DescribeCommitRequest, DescribeCommitResponse
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.keep_transactions import KeepTransactionsRequest, KeepTransactionsResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.schema import Message
from ottla.records.batch import BatchHeader
from ottla.records.control import MarkerType, build_marker

if TYPE_CHECKING:
    from tests.client.scripted_broker import ScriptedCluster

IMPLICIT_PRODUCE = 12
IMPLICIT_OFFSETS = 5
BUMPING_END = 5


@dataclass
class Transaction:
    """What a coordinator knows of a transactional id."""

    producer_id: int
    epoch: int = 0
    last_epoch: int = -1
    is_open: bool = False
    ended_as: MarkerType | None = None
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    pending: dict[tuple[str, str, int], int] = field(default_factory=dict)


class ScriptedTransactions:
    """All transactional ids of the model."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        self.by_id: dict[str, Transaction] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        """Committed positions by group, topic and partition."""
        self.refusals: dict[ApiKey, list[ErrorCode]] = {}
        """Codes that the next requests of an API are answered with."""
        self.ended: list[tuple[str, MarkerType, int]] = []
        """Every decision: the id, what was decided, and the epoch of its markers."""
        self.batches: set[tuple[str, int]] = set()

    def refuse(self, api_key: ApiKey, *codes: ErrorCode) -> None:
        self.refusals.setdefault(api_key, []).extend(codes)

    def answer(self, api_key: ApiKey, version: int, message: Message) -> Message | None:
        """The response, if the request is about transactions."""
        codes = self.refusals.get(api_key)
        code = codes.pop(0) if codes else ErrorCode.NONE
        if isinstance(message, FindCoordinatorRequest):
            return self._find(message)
        if isinstance(message, InitProducerIdRequest) and message.transactional_id:
            return self._init(message, code)
        if isinstance(message, AddPartitionsToTxnRequest):
            return self._add_partitions(message, code)
        if isinstance(message, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(error_code=code or self._add_group(message))
        if isinstance(message, TxnOffsetCommitRequest):
            return self._store(message, code or self._storable(message, version))
        if isinstance(message, EndTxnRequest):
            return self._end(message, version, code)
        if isinstance(message, DescribeTransactionsRequest):
            return self._describe(message, code)
        return self._together(message, code)

    # --- the producer's ------------------------------------------------------------------------------

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        address = self._cluster.nodes[self._cluster.controller]
        found = Coordinator(
            key=request.coordinator_keys[0],
            node_id=self._cluster.controller,
            host=address.host,
            port=address.port,
        )
        return FindCoordinatorResponse(coordinators=[found])

    def _init(self, request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
        assert request.transactional_id is not None
        if code:
            return InitProducerIdResponse(error_code=code)
        found = self.by_id.get(request.transactional_id)
        if found is None:
            self._cluster.next_producer_id += 1
            found = self.by_id[request.transactional_id] = Transaction(self._cluster.next_producer_id)
            return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)
        is_named = request.producer_id >= 0
        if is_named and not found.is_open:
            if (request.producer_id, request.producer_epoch) == (found.producer_id, found.last_epoch):
                return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)
            if (request.producer_id, request.producer_epoch) != (found.producer_id, found.epoch):
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if found.is_open:
            # As Apache Kafka does it: even for somebody who is refused right after.
            is_holder = (request.producer_id, request.producer_epoch) == (found.producer_id, found.epoch)
            # This epoch is nobody's: whoever asked for the one before must not be taken for us.
            found.epoch += 1
            self._decide(request.transactional_id, found, MarkerType.ABORT, epoch=found.epoch)
            if is_named and not is_holder:
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        found.last_epoch, found.epoch = request.producer_epoch, found.epoch + 1
        found.ended_as = None
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    def time_out(self, transactional_id: str) -> None:
        """The coordinator ends a transaction by itself; its producer may ask for the next epoch."""
        found = self.by_id[transactional_id]
        self._decide(transactional_id, found, MarkerType.ABORT, epoch=found.epoch + 1)
        found.last_epoch, found.epoch = found.epoch, found.epoch + 1

    def _describe(self, request: DescribeTransactionsRequest, code: ErrorCode) -> DescribeTransactionsResponse:
        (transactional_id,) = request.transactional_ids
        found = self.by_id[transactional_id]
        ended = "Empty" if found.ended_as is None else f"Complete{found.ended_as.name.capitalize()}"
        told = TransactionState(
            error_code=code,
            transactional_id=transactional_id,
            transaction_state="Ongoing" if found.is_open else ended,
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
        )
        return DescribeTransactionsResponse(transaction_states=[told])

    def check(self, transactional_id: str | None, key: tuple[str, int], header: BatchHeader, version: int) -> ErrorCode:
        """Whether a batch may enter a partition."""
        found = self.by_id.get(transactional_id or "")
        if found is None or header.producer_id != found.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if header.producer_epoch != found.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if version >= IMPLICIT_PRODUCE:
            found.is_open = True
            found.partitions.add(key)
        elif key not in found.partitions:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def _add_partitions(self, request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
        code = code or self._claim(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        results = []
        for topic in request.v3_and_below_topics:
            if not code:
                found = self.by_id[request.v3_and_below_transactional_id]
                found.is_open = True
                found.partitions.update((topic.name, number) for number in topic.partitions)
            parts = [
                AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                for number in topic.partitions
            ]
            results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=parts))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _claim(self, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
        found = self.by_id.get(transactional_id)
        if found is None or found.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if epoch == found.epoch else ErrorCode.PRODUCER_FENCED

    def _add_group(self, request: AddOffsetsToTxnRequest) -> ErrorCode:
        code = self._claim(request.transactional_id, request.producer_id, request.producer_epoch)
        if not code:
            found = self.by_id[request.transactional_id]
            found.is_open = True
            found.groups.add(request.group_id)
        return code

    def _storable(self, request: TxnOffsetCommitRequest, version: int) -> ErrorCode:
        code = self._claim(request.transactional_id, request.producer_id, request.producer_epoch)
        if code:
            return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
        found = self.by_id[request.transactional_id]
        if version >= IMPLICIT_OFFSETS:
            found.is_open = True
            found.groups.add(request.group_id)
        return ErrorCode.NONE if request.group_id in found.groups else ErrorCode.INVALID_TXN_STATE

    def _store(self, request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                if not code:
                    key = (request.group_id, topic.name, each.partition_index)
                    self.by_id[request.transactional_id].pending[key] = each.committed_offset
                parts.append(TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return TxnOffsetCommitResponse(topics=topics)

    def _end(self, request: EndTxnRequest, version: int, code: ErrorCode) -> EndTxnResponse:
        if code:
            return EndTxnResponse(error_code=code)
        found = self.by_id.get(request.transactional_id)
        wanted = MarkerType.COMMIT if request.committed else MarkerType.ABORT
        is_bumped = version >= BUMPING_END
        if found is None or found.producer_id != request.producer_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_ended = not found.is_open and found.ended_as is not None
        if is_bumped and is_ended and request.producer_epoch == found.last_epoch:
            if found.ended_as is not wanted:
                return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
            return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)
        if request.producer_epoch != found.epoch:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if not found.is_open and (request.committed if is_bumped else found.ended_as is not wanted):
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        if is_bumped:
            found.last_epoch, found.epoch = found.epoch, found.epoch + 1
        if found.is_open:
            self._decide(request.transactional_id, found, wanted, epoch=found.epoch)
        return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    def _decide(self, transactional_id: str, found: Transaction, marker_type: MarkerType, *, epoch: int) -> None:
        self.ended.append((transactional_id, marker_type, epoch))
        for topic, number in sorted(found.partitions):
            marker = build_marker(
                marker_type,
                producer_id=found.producer_id,
                producer_epoch=epoch,
                coordinator_epoch=0,
                timestamp_ms=self._cluster.clock.now_ms(),
            )
            self._cluster.partition(topic, number).append(marker)
        if marker_type is MarkerType.COMMIT:
            self.offsets.update(found.pending)
        found.is_open, found.ended_as = False, marker_type
        found.partitions.clear()
        found.groups.clear()
        found.pending.clear()

    # --- several as one ------------------------------------------------------------------------------

    def _together(self, message: Message, code: ErrorCode) -> Message | None:
        if isinstance(message, DescribeCommitRequest):
            last = max((batch for query, batch in self.batches if query == message.query_id), default=-1)
            return DescribeCommitResponse(
                error_code=code, is_committed=(message.query_id, message.batch_id) in self.batches, last_batch_id=last
            )
        if isinstance(message, KeepTransactionsRequest):
            return KeepTransactionsResponse(error_code=code)
        if not isinstance(message, CommitTogetherRequest):
            return None
        key = (message.query_id, message.batch_id)
        if code or key in self.batches:
            return CommitTogetherResponse(error_code=code, is_repeated=not code)
        self.batches.add(key)
        for each in message.transactions:
            found = self.by_id[each.transactional_id]
            found.last_epoch, found.epoch = found.epoch, found.epoch + 1
            self._decide(each.transactional_id, found, MarkerType.COMMIT, epoch=found.epoch)
        return CommitTogetherResponse()
