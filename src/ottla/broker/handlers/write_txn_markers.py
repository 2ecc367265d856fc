"""WriteTxnMarkers, versions 1-2: an admin ends a transaction that hangs in some partitions.

A transaction that the coordinator knows as open is aborted as a whole, by the coordinator, so that no partition shows
another end than the others; to commit it, or to undo what has been decided, is refused with INVALID_TXN_STATE. For
producers that no transaction is known of, the marker is written as asked, as far as the partition takes it. With
version 2 an admin may ask for the rule of the second version of transactions: the epoch must be above the partition's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import cast

from ottla.broker.answers import Answers
from ottla.broker.caller import Caller
from ottla.broker.coordinator import Gathering
from ottla.broker.deadlines import TIMEOUT_MS_DEFAULT
from ottla.broker.pending import Pending
from ottla.broker.relay import Relay
from ottla.broker.services import Services
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.transactions.markers import TopicPartition
from ottla.coordinators.transactions.records import TransactionStatus
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.error_codes import ErrorCode
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTopicName,
    InvalidTransactionState,
    Refusal,
)
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, is_internal
from ottla.partitions.partition import Partition
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.schema import Message
from ottla.records.batch import peek
from ottla.records.control import MarkerType, build_marker

SECOND_VERSION = 2
"""Of transactions, not of this request."""

_DECIDED = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


def write_txn_markers(
    request: WriteTxnMarkersRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    gathering = Gathering(
        len(request.markers),
        lambda parts: WriteTxnMarkersResponse(markers=[cast(WritableTxnMarkerResult, part) for part in parts]),
    )
    for place, marker in enumerate(request.markers):
        gathering.take(place, _Marking(marker, services).result())
    return gathering.response()


class _Marking:
    """One marker, and the partitions that it is meant for."""

    __slots__ = ("_codes", "_marker", "_places", "_services", "_type")

    def __init__(self, marker: WritableTxnMarker, services: Services) -> None:
        self._marker = marker
        self._services = services
        self._type = MarkerType.COMMIT if marker.transaction_result else MarkerType.ABORT
        named = (TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
        self._places = tuple(dict.fromkeys(named))
        self._codes: dict[TopicPartition, ErrorCode] = {}

    def result(self) -> Message | Pending:
        """The result of this marker, or the promise of one."""
        try:
            if self._marker.producer_id < 0 or self._marker.producer_epoch < 0:
                raise InvalidRequest("a marker without a producer")
            known = self._services.transactions.status_of_producer(self._marker.producer_id)
            if known is None:
                return self._write(self._places)
            transactional_id, status = known
            if status is not TransactionStatus.ONGOING and status not in _DECIDED:
                return self._write(self._places)
            if self._type is MarkerType.COMMIT or status is TransactionStatus.PREPARE_COMMIT:
                raise InvalidTransactionState(f"{transactional_id!r} is in state {status.told}")
        except Refusal as error:
            return self._refused(error)
        return self._abort(transactional_id)

    # --- by the coordinator ------------------------------------------------------------------------------

    def _abort(self, transactional_id: str) -> Message | Pending:
        """Have the transaction aborted, then see to what of the partitions is no part of it."""
        marker = self._marker
        covered: set[TopicPartition] = set()

        def decide(shard: TransactionShard, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
            found = shard.transactions.get(transactional_id)
            if found is None or found.value.producer_id != marker.producer_id:
                raise InvalidTransactionState(f"producer {marker.producer_id} no longer has {transactional_id!r}")
            if found.ending is None and marker.producer_epoch < found.value.producer_epoch:
                raise InvalidProducerEpoch(
                    f"epoch {marker.producer_epoch} was asked for, {transactional_id!r} is at "
                    f"{found.value.producer_epoch}"
                )
            covered.update(found.partitions)
            shard.abort(transactional_id, _DONE, ticket, outcome, now_ms)

        def done(reply: Message | Refusal) -> None:
            if isinstance(reply, Refusal):
                relay.follow(reply)
            else:
                relay.follow(self._write([place for place in self._places if place not in covered]))

        relay = Relay(self._refused)
        self._services.transactions.ask(transactional_id, decide, done)
        return relay.response()

    # --- as asked ----------------------------------------------------------------------------------------

    def _write(self, places: Collection[TopicPartition]) -> Message | Pending:
        answers: Answers[WritableTxnMarkerPartitionResult] = Answers(
            len(places),
            deadlines=self._services.deadlines,
            timeout_ms=TIMEOUT_MS_DEFAULT,
            late=lambda place, error: self._settled(told[place], error),
            respond=lambda parts: self._told(),
        )
        told = tuple(places)
        for number, place in enumerate(told):

            def settled(error: Refusal | None, number: int = number, place: TopicPartition = place) -> None:
                answers.settle(number, self._settled(place, error))

            try:
                self._write_to(place, settled)
            except Refusal as error:
                settled(error)
        return answers.response()

    def _write_to(self, place: TopicPartition, settled: Callable[[Refusal | None], None]) -> None:
        marker, services = self._marker, self._services
        if place.topic == CONSUMER_OFFSETS:
            services.catalog.image.partition(*place)
            services.groups.end_transaction(
                place.partition,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                marker_type=self._type,
                done=settled,
            )
            return
        if is_internal(place.topic):
            raise InvalidTopicName("nobody's transactions write to this topic")
        partition = services.partitions.by_name(*place)
        self._check_epoch(partition)
        batch = build_marker(
            self._type,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=services.clock.now_ms(),
        )
        partition.append(batch, peek(batch))
        partition.when_durable(partition.log.end_offset, settled)

    def _check_epoch(self, partition: Partition) -> None:
        entry = partition.log.producers.entry(self._marker.producer_id)
        if self._marker.transaction_version < SECOND_VERSION or entry is None:
            return
        if self._marker.producer_epoch <= entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {self._marker.producer_id}: a marker of epoch {self._marker.producer_epoch} must be above "
                f"{entry.epoch}, which the partition has seen"
            )

    # --- telling -----------------------------------------------------------------------------------------

    def _settled(self, place: TopicPartition, error: Refusal | None) -> WritableTxnMarkerPartitionResult:
        if error is not None:
            self._codes[place] = _code_of(error)
        return WritableTxnMarkerPartitionResult()

    def _refused(self, error: Refusal) -> WritableTxnMarkerResult:
        self._codes = dict.fromkeys(self._places, _code_of(error))
        return self._told()

    def _told(self) -> WritableTxnMarkerResult:
        return WritableTxnMarkerResult(
            producer_id=self._marker.producer_id,
            topics=[
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        WritableTxnMarkerPartitionResult(
                            partition_index=index,
                            error_code=self._codes.get(TopicPartition(topic.name, index), ErrorCode.NONE),
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in self._marker.topics
            ],
        )


_DONE = WriteTxnMarkersResponse()
"""What the coordinator replies when it has aborted; nobody reads it."""


def _code_of(error: Refusal) -> ErrorCode:
    # Admin clients look for the partition's leader again and retry; of coordinators they know nothing here.
    if isinstance(error, CoordinatorLoadInProgress | CoordinatorNotAvailable):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.code
