"""EndTxn, versions 0-5: a producer commits or aborts its transaction; answered when the decision is durable.

The markers follow the decision by themselves, also after a crash. Since version 5 the epoch goes up at each end and the
response tells it; a request that is sent again because its answer was lost is answered the same. A fenced producer is
told PRODUCER_FENCED, and INVALID_PRODUCER_EPOCH before version 2.
"""

from __future__ import annotations

from ottla.broker.answers import code_of
from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.relay import Relay
from ottla.broker.services import Services
from ottla.coordinators.transactions.ending import BUMP_VERSION_MIN
from ottla.coordinators.transactions.transaction import is_exhausted
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, ProducerFenced, Refusal
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schema import Message

FENCED_VERSION_MIN = 2
NO_ID = -1


def end_txn(request: EndTxnRequest, version: int, caller: Caller, services: Services) -> Message | Pending | None:
    def refused(error: OttlaError) -> EndTxnResponse:
        if isinstance(error, ProducerFenced) and version < FENCED_VERSION_MIN:
            return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        return EndTxnResponse(error_code=code_of(error))

    def submit(new_producer_id: int) -> Message | Pending:
        return services.transactions.submit(
            request.transactional_id,
            lambda shard, ticket, outcome, now_ms: shard.end(
                request, version, new_producer_id, ticket, outcome, now_ms
            ),
            refused,
        )

    if version < BUMP_VERSION_MIN or not is_exhausted(request.producer_epoch):
        return submit(NO_ID)

    def given(outcome: int | OttlaError) -> None:
        if isinstance(outcome, int):
            if not relay.is_over:
                relay.follow(submit(outcome))
        else:
            relay.follow(outcome if isinstance(outcome, Refusal) else refused(outcome))

    # The epochs of this producer id run out: it has to go on under another one.
    relay = Relay(refused, services.deadlines)
    services.producer_ids.take(given)
    return relay.response()
