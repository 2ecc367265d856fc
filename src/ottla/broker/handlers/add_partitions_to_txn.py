"""AddPartitionsToTxn, versions 0-5: partitions become part of a transaction.

Up to version 3 for one transaction: that is what clients of the first version of transactions send. From 4 on for
several, and it may only be asked whether partitions are part of one. If a partition cannot be added, none of its
transaction is, and the others are told OPERATION_NOT_ATTEMPTED. A fenced producer is told PRODUCER_FENCED, and
INVALID_PRODUCER_EPOCH before version 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from ottla.broker.caller import Caller
from ottla.broker.coordinator import Gathering
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.broker.transactions import TransactionDecision
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.transactions.claims import Claim
from ottla.coordinators.transactions.markers import TopicPartition
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, ProducerFenced, Refusal, TransactionAbortable
from ottla.metadata.internal_topics import is_internal
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.schema import Message

FENCED_VERSION_MIN = 2
BATCHED_VERSION_MIN = 4
ABORTABLE_VERSION_MIN = 5

_Codes = Mapping[TopicPartition, ErrorCode]


def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    if version >= BATCHED_VERSION_MIN:
        wanted = request.transactions
    else:
        wanted = (
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            ),
        )
    gathering = Gathering(
        len(wanted), lambda parts: _response(cast(Sequence[AddPartitionsToTxnResult], parts), version)
    )
    for place, transaction in enumerate(wanted):
        gathering.take(place, _Adding(transaction, version, services).result())
    return gathering.response()


class _Adding:
    """What is asked for one transaction."""

    __slots__ = ("_places", "_services", "_transaction", "_version")

    def __init__(self, transaction: AddPartitionsToTxnTransaction, version: int, services: Services) -> None:
        self._transaction = transaction
        self._version = version
        self._services = services
        self._places = tuple(
            TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions
        )

    def result(self) -> Message | Pending:
        """The result of this transaction, or the promise of one."""
        transactional_id = self._transaction.transactional_id
        if not transactional_id:
            return self._refused(InvalidRequest("an empty transactional id"))
        if not self._transaction.verify_only:
            impossible = self._impossible()
            if impossible:
                return self._told(lambda place: impossible.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED))
        if not self._places:
            return self._told(lambda place: ErrorCode.NONE)
        decide = self._verifying() if self._transaction.verify_only else self._adding()
        return self._services.transactions.submit(transactional_id, decide, self._refused)

    def _impossible(self) -> dict[TopicPartition, ErrorCode]:
        found = {}
        topics = self._services.catalog.image.topics
        for place in self._places:
            topic = topics.get(place.topic)
            if is_internal(place.topic):
                # They are Ottla's own; offsets of groups are added by another request.
                found[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not 0 <= place.partition < len(topic.partitions):
                found[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return found

    def _adding(self) -> TransactionDecision:
        claim = self._claim(self._places)
        response = self._told(lambda place: ErrorCode.NONE)
        return lambda shard, ticket, outcome, now_ms: shard.add(claim, response, ticket, outcome, now_ms)

    def _verifying(self) -> TransactionDecision:
        """Each partition for itself: one that is not in the transaction says nothing about the others."""

        def decide(shard: TransactionShard, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
            codes: dict[TopicPartition, ErrorCode] = {}
            for place in self._places:
                try:
                    shard.verify(self._claim((place,)), _GRANTED, ticket, Outcome(shard.replay), now_ms)
                    codes[place] = ErrorCode.NONE
                except Refusal as error:
                    codes[place] = self._code_of(error)
            outcome.reply(ticket, self._told(codes.__getitem__))

        return decide

    def _claim(self, places: Iterable[TopicPartition]) -> Claim:
        transaction = self._transaction
        return Claim(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, tuple(places))

    def _code_of(self, error: Refusal) -> ErrorCode:
        if isinstance(error, ProducerFenced) and self._version < FENCED_VERSION_MIN:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if isinstance(error, TransactionAbortable) and self._version < ABORTABLE_VERSION_MIN:
            return ErrorCode.INVALID_TXN_STATE
        return error.code

    def _refused(self, error: Refusal) -> AddPartitionsToTxnResult:
        code = self._code_of(error)
        return self._told(lambda place: code)

    def _told(self, code: Callable[[TopicPartition], ErrorCode]) -> AddPartitionsToTxnResult:
        return AddPartitionsToTxnResult(
            transactional_id=self._transaction.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code(TopicPartition(topic.name, index))
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in self._transaction.topics
            ],
        )


_GRANTED = AddPartitionsToTxnResponse()
"""What a shard replies to one of several questions; only that it does is looked at."""


def _response(results: Sequence[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    if version >= BATCHED_VERSION_MIN:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
