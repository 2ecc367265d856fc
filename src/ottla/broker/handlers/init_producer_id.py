"""InitProducerId, versions 0-5: an id and an epoch for a producer.

Without a transactional id every call gets an id that nobody has had, with epoch 0, also when the producer names the one
it has. With one, the producer takes it over: a transaction that is open is aborted first, and whoever had it is fenced.
Since version 3 a producer may name the id and epoch that it has, to go on with the next one; one that has been fenced
is told so, with INVALID_PRODUCER_EPOCH before version 4.
"""

from __future__ import annotations

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.deadlines import TIMEOUT_MS_DEFAULT
from ottla.broker.pending import Pending
from ottla.broker.relay import Relay
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, OttlaError, ProducerFenced, Refusal
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schema import Message

NO_ID = -1
NO_EPOCH = -1
FENCED_VERSION_MIN = 4


def init_producer_id(
    request: InitProducerIdRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    if request.transactional_id == "":
        raise InvalidRequest("an empty transactional id; leave it out for a producer without transactions")
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        raise InvalidRequest("a producer that has an id has an epoch too: give both or none")
    if request.transactional_id is not None:
        return _transactional(request, request.transactional_id, version, services)
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


def _transactional(
    request: InitProducerIdRequest, transactional_id: str, version: int, services: Services
) -> Message | Pending:
    def refused(error: OttlaError) -> InitProducerIdResponse:
        if isinstance(error, ProducerFenced) and version < FENCED_VERSION_MIN:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH, producer_epoch=NO_EPOCH)
        return _refused(error)

    def given(outcome: int | OttlaError) -> None:
        if isinstance(outcome, OttlaError):
            relay.follow(refused(outcome))
            return
        new_producer_id = outcome
        if not relay.is_over:
            relay.follow(
                services.transactions.submit(
                    transactional_id,
                    lambda shard, ticket, outcome, now_ms: shard.init_producer(
                        request, new_producer_id, ticket, outcome, now_ms
                    ),
                    refused,
                )
            )

    relay = Relay(refused, services.deadlines)
    services.producer_ids.take(given)
    return relay.response()


def _refused(error: OttlaError | Refusal) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code_of(error), producer_epoch=NO_EPOCH)
