"""KeepTransactions, version 0: an API of Ottla's own that lets the time of a query's open transactions begin anew.

For tasks that are done and wait until the others are too: their transactions must not time out meanwhile. Refused for
all if one of them is no longer open.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.coordinator import told
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.messages.keep_transactions import KeepTransactionsRequest, KeepTransactionsResponse
from ottla.protocol.schema import Message


def keep_transactions(
    request: KeepTransactionsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    return services.transactions.submit(
        request.query_id,
        lambda shard, ticket, outcome, now_ms: shard.keep(request, ticket, outcome, now_ms),
        lambda error: KeepTransactionsResponse(error_code=error.code, error_message=told(error)),
    )
