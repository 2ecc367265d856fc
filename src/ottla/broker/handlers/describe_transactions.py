"""DescribeTransactions, version 0: what is known of transactional ids.

State, producer, timeout and the partitions that the open transaction has; each id is answered for itself, one that is
not known with TRANSACTIONAL_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import cast

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.broker.transactions import TransactionDecision
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.schema import Message

NO_ID = -1
NO_EPOCH = -1


def describe_transactions(
    request: DescribeTransactionsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    # Each once, however often it is named: the answer may be a thousand times as long as the question.
    transactional_ids = list(dict.fromkeys(request.transactional_ids))
    if not services.transactions.is_started:
        return DescribeTransactionsResponse(
            transaction_states=[_state(each, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND) for each in transactional_ids]
        )

    def refused(place: int, error: Refusal) -> TransactionState:
        return _state(transactional_ids[place], error.code)

    return services.transactions.submit_each(
        [(transactional_id, _asking(transactional_id)) for transactional_id in transactional_ids],
        refused,
        lambda parts: DescribeTransactionsResponse(transaction_states=[cast(TransactionState, part) for part in parts]),
    )


def _asking(transactional_id: str) -> TransactionDecision:
    return lambda shard, ticket, outcome, now_ms: shard.describe(transactional_id, ticket, outcome, now_ms)


def _state(transactional_id: str, code: ErrorCode) -> TransactionState:
    code = code if transactional_id else ErrorCode.INVALID_REQUEST
    return TransactionState(
        transactional_id=transactional_id, error_code=code, producer_id=NO_ID, producer_epoch=NO_EPOCH
    )
