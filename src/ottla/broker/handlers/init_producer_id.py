"""InitProducerId, versions 0-5: an id for an idempotent producer.

Every call gets an id that nobody has had, with epoch 0, also when the producer names the one it has. Transactions are
not there yet: a transactional id is refused.
"""

from __future__ import annotations

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.deadlines import TIMEOUT_MS_DEFAULT
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import InvalidRequest, InvalidTransactionState, OttlaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schema import Message

NO_ID = -1
NO_EPOCH = -1


def init_producer_id(
    request: InitProducerIdRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    if request.transactional_id == "":
        raise InvalidRequest("an empty transactional id; leave it out for a producer without transactions")
    if request.transactional_id is not None:
        raise InvalidTransactionState("transactions are not available on this broker")
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        raise InvalidRequest("a producer that has an id has an epoch too: give both or none")
    answers: Answers[InitProducerIdResponse] = Answers(
        1,
        deadlines=services.deadlines,
        timeout_ms=TIMEOUT_MS_DEFAULT,
        late=lambda place, error: _refused(error),
        respond=lambda parts: parts[0],
    )

    def given(outcome: int | OttlaError) -> None:
        if isinstance(outcome, OttlaError):
            answers.settle(0, _refused(outcome))
        else:
            answers.settle(0, InitProducerIdResponse(producer_id=outcome))

    services.producer_ids.take(given)
    return answers.response()


def _refused(error: OttlaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code_of(error), producer_epoch=NO_EPOCH)
