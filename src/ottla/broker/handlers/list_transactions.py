"""ListTransactions, versions 0-2: the transactional ids of this broker.

By states and producer ids; since version 1 by how long they have been running, since 2 by a pattern of their ids.
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.transactions.listing import Listing
from ottla.coordinators.transactions.transactions import Transactions
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.schema import Message


def list_transactions(
    request: ListTransactionsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    # Each shard looks at the filters.
    request = replace(request, state_filters=tuple(dict.fromkeys(request.state_filters)))
    if not services.transactions.is_started:
        # To look for transactions is no reason to make the topic that would keep them.
        return Listing(Transactions()).listed(request, services.clock.now_ms())
    return services.transactions.submit_to_all(
        lambda shard, ticket, outcome, now_ms: shard.list_transactions(request, ticket, outcome, now_ms),
        lambda error: ListTransactionsResponse(error_code=error.code),
        lambda parts: _together([cast(ListTransactionsResponse, part) for part in parts]),
    )


def _together(parts: list[ListTransactionsResponse]) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        unknown_state_filters=parts[0].unknown_state_filters,
        transaction_states=[state for part in parts for state in part.transaction_states],
    )
