"""DescribeCommit, version 0: an API of Ottla's own that tells whether a batch of a query has been committed.

It also tells which batch was the last. Only the latest batches of a query are remembered.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.coordinator import told
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.messages.describe_commit import DescribeCommitRequest, DescribeCommitResponse
from ottla.protocol.schema import Message


def describe_commit(
    request: DescribeCommitRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    if not services.transactions.is_started:
        return DescribeCommitResponse()
    return services.transactions.submit(
        request.query_id,
        lambda shard, ticket, outcome, now_ms: shard.describe_commit(request, ticket, outcome, now_ms),
        lambda error: DescribeCommitResponse(error_code=error.code, error_message=told(error)),
    )
