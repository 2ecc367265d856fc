"""AddOffsetsToTxn, versions 0-4: offsets of a group become part of a transaction.

Only clients of the first version of transactions send it; with the second, TxnOffsetCommit does the same by itself. A
fenced producer is told PRODUCER_FENCED, and INVALID_PRODUCER_EPOCH before version 2.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.relay import Relay
from ottla.broker.services import Services
from ottla.coordinators.groups.groups import check_group_id
from ottla.coordinators.transactions.claims import Claim
from ottla.coordinators.transactions.markers import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, ProducerFenced, Refusal
from ottla.metadata.internal_topics import CONSUMER_OFFSETS
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.schema import Message

FENCED_VERSION_MIN = 2


def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    def refused(error: Refusal) -> AddOffsetsToTxnResponse:
        if isinstance(error, ProducerFenced) and version < FENCED_VERSION_MIN:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        return AddOffsetsToTxnResponse(error_code=error.code)

    if not request.transactional_id:
        raise InvalidRequest("an empty transactional id")
    check_group_id(request.group_id)

    def ready(error: Refusal | None) -> None:
        if error is not None:
            relay.follow(error)
        elif not relay.is_over:
            place = TopicPartition(CONSUMER_OFFSETS, services.groups.partition_of(request.group_id))
            claim = Claim(request.transactional_id, request.producer_id, request.producer_epoch, (place,))
            relay.follow(
                services.transactions.submit(
                    request.transactional_id,
                    lambda shard, ticket, outcome, now_ms: shard.add(
                        claim, AddOffsetsToTxnResponse(), ticket, outcome, now_ms
                    ),
                    refused,
                )
            )

    relay = Relay(refused)
    services.groups.when_ready(ready)
    return relay.response()
