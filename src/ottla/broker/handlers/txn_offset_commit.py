"""TxnOffsetCommit, versions 0-5: a group's offsets, stored as part of a transaction.

They count when the transaction commits, and never if it aborts. Since version 5 the group joins the transaction by it;
before, AddOffsetsToTxn must have come. A fenced producer is told INVALID_PRODUCER_EPOCH; one whose group is not in its
transaction TRANSACTION_ABORTABLE, and INVALID_TXN_STATE before version 4. Since version 3 a member may name itself, and
is refused where its group has gone on without it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.relay import Relay
from ottla.broker.services import Services
from ottla.coordinators.groups.groups import check_group_id
from ottla.coordinators.groups.shard import GroupShard
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.transactions.claims import Claim
from ottla.coordinators.transactions.markers import TopicPartition
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, ProducerFenced, Refusal, TransactionAbortable
from ottla.metadata.internal_topics import CONSUMER_OFFSETS
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.schema import Message

ABORTABLE_VERSION_MIN = 4
IMPLICIT_VERSION_MIN = 5
_GRANTED = TxnOffsetCommitResponse()
"""The transaction coordinator's word that the offsets may be stored; nobody reads it."""


def txn_offset_commit(
    request: TxnOffsetCommitRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    def refused(error: Refusal) -> TxnOffsetCommitResponse:
        return _refused(request, error, version)

    try:
        if not request.transactional_id:
            raise InvalidRequest("an empty transactional id")
        check_group_id(request.group_id)
    except Refusal as error:
        return refused(error)
    relay = Relay(refused)

    def ready(error: Refusal | None) -> None:
        if error is not None:
            relay.follow(error)
        elif not relay.is_over:
            _claim(request, version, services, granted)

    def granted(reply: Message | Refusal) -> None:
        if isinstance(reply, Refusal):
            relay.follow(reply)
        elif not relay.is_over:
            relay.follow(_store(request, version, services, refused))

    services.groups.when_ready(ready)
    return relay.response()


def _claim(
    request: TxnOffsetCommitRequest,
    version: int,
    services: Services,
    granted: Callable[[Message | Refusal], None],
) -> None:
    """Make sure that the end of the transaction will reach the group."""
    place = TopicPartition(CONSUMER_OFFSETS, services.groups.partition_of(request.group_id))
    claim = Claim(request.transactional_id, request.producer_id, request.producer_epoch, (place,))

    def decide(shard: TransactionShard, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        if version >= IMPLICIT_VERSION_MIN:
            shard.add(claim, _GRANTED, ticket, outcome, now_ms)
        else:
            shard.verify(claim, _GRANTED, ticket, outcome, now_ms)

    services.transactions.ask(request.transactional_id, decide, granted)


def _store(
    request: TxnOffsetCommitRequest, version: int, services: Services, refused: Callable[[Refusal], Message]
) -> Message | Pending:
    def decide(shard: GroupShard, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        # In the moment of the decision: the transaction may have been ended since it was claimed.
        services.transactions.require_ongoing(
            request.transactional_id, producer_id=request.producer_id, producer_epoch=request.producer_epoch
        )
        shard.commit_transactional(request, version, ticket, outcome, now_ms)

    return services.groups.submit(request.group_id, decide, refused)


def _refused(request: TxnOffsetCommitRequest, error: Refusal, version: int) -> TxnOffsetCommitResponse:
    code = error.code
    if isinstance(error, ProducerFenced):
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif isinstance(error, TransactionAbortable) and version < ABORTABLE_VERSION_MIN:
        code = ErrorCode.INVALID_TXN_STATE
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
