"""CommitTogether, version 0: an API of Ottla's own that commits several transactions as one, and only once.

All of them or none; the commit is remembered under the query and its batch, so that whoever asks again is told that it
has been done. The ids are slots of the query: `<query>/<slot>`. Answered when the decision is durable.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.coordinator import told
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.messages.commit_together import CommitTogetherRequest, CommitTogetherResponse
from ottla.protocol.schema import Message


def commit_together(
    request: CommitTogetherRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    return services.transactions.submit(
        request.query_id,
        lambda shard, ticket, outcome, now_ms: shard.commit_together(request, ticket, outcome, now_ms),
        lambda error: CommitTogetherResponse(error_code=error.code, error_message=told(error)),
    )
