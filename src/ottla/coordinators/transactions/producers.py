"""InitProducerId: who gets a transactional id, under which producer id and epoch.

Whoever asks takes the id over: a transaction that is open is aborted first, and the producer that had it is fenced. A
producer that names the id and epoch it has goes on with the next one, and may ask again if the answer was lost; one
that has been fenced meanwhile is told so, and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.transactions.claims import ProducerId
from ottla.coordinators.transactions.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionStatus
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.transaction import EPOCH_MAX, Transaction, first_value, is_exhausted
from ottla.coordinators.transactions.transactions import Transactions
from ottla.errors import InvalidRequest, InvalidTransactionTimeout, ProducerFenced
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class _Held(NamedTuple):
    """What a producer says that it has."""

    producer_id: int
    epoch: int


class _Taking(NamedTuple):
    """What it gets."""

    producer_id: int
    epoch: int
    last_epoch: int
    """The epoch with which it may ask again."""


class Producers:
    """Decides about InitProducerId."""

    def __init__(self, transactions: Transactions, settings: TransactionSettings) -> None:
        self._transactions = transactions
        self._settings = settings

    def init_producer(
        self, request: InitProducerIdRequest, new_producer_id: ProducerId, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        transactional_id = request.transactional_id
        timeout_ms = request.transaction_timeout_ms
        if not transactional_id:
            raise InvalidRequest("an empty transactional id; leave it out for a producer without transactions")
        if not 0 < timeout_ms <= self._settings.timeout_ms_max:
            raise InvalidTransactionTimeout(
                f"a transaction timeout of {timeout_ms} ms; it must be above 0 and at most transaction.max.timeout.ms "
                f"({self._settings.timeout_ms_max})"
            )
        held = _held(request)
        found = self._transactions.get(transactional_id)
        if found is None:
            value = first_value(now_ms, timeout_ms=timeout_ms, producer_id=new_producer_id)
        elif found.ending is not None or found.status is TransactionStatus.ONGOING:
            self._end_first(found, request, new_producer_id, ticket, outcome, now_ms)
            return
        else:
            taking = _taking(found, held, new_producer_id)
            value = found.taken(
                now_ms,
                timeout_ms=timeout_ms,
                producer_id=taking.producer_id,
                producer_epoch=taking.epoch,
                last_producer_epoch=taking.last_epoch,
            )
        self._transactions.write(transactional_id, value, outcome)
        outcome.reply(
            ticket, InitProducerIdResponse(producer_id=value.producer_id, producer_epoch=value.producer_epoch)
        )

    def _end_first(
        self,
        found: Transaction,
        request: InitProducerIdRequest,
        new_producer_id: ProducerId,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """What is open is aborted, what is being ended is waited for; then it is decided again."""
        if found.ending is None:
            held = _held(request)
            last_epoch = NO_PRODUCER_EPOCH
            if held is not None:
                _check_holder(found, held)
                last_epoch = held.epoch
            self._transactions.abort(found, outcome, now_ms, last_producer_epoch=last_epoch)

        def again(outcome: Outcome, now_ms: int) -> None:
            self.init_producer(request, new_producer_id, ticket, outcome, now_ms)

        self._transactions.park(found.transactional_id, ticket, again, outcome, now_ms)


def _held(request: InitProducerIdRequest) -> _Held | None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise InvalidRequest("a producer that has an id has an epoch too: give both or none")
    return None if request.producer_id == NO_PRODUCER_ID else _Held(request.producer_id, request.producer_epoch)


def _check_holder(found: Transaction, held: _Held) -> None:
    """Only the producer that has a transaction open may have it aborted by naming itself: not one that was fenced."""
    if held != found.identity:
        raise _fenced(found, held)


def _taking(found: Transaction, held: _Held | None, new_producer_id: ProducerId) -> _Taking:
    value = found.value
    present = _Held(value.producer_id, value.producer_epoch)
    if held is not None and held != present:
        # The answer to its last question may have been lost; then it gets that answer.
        is_its_id = held.producer_id == value.producer_id or found.is_next_of(
            producer_id=held.producer_id, producer_epoch=held.epoch
        )
        if not is_its_id or held.epoch != value.last_producer_epoch:
            raise _fenced(found, held)
        if present.epoch < EPOCH_MAX:
            return _Taking(*present, value.last_producer_epoch)
        # Its open transaction was aborted for it. The markers carry an epoch that nobody could fence: it is not told.
    last_epoch = NO_PRODUCER_EPOCH if held is None else held.epoch
    if is_exhausted(present.epoch):
        return _Taking(new_producer_id, 0, last_epoch)
    return _Taking(present.producer_id, present.epoch + 1, last_epoch)


def _fenced(found: Transaction, held: _Held) -> ProducerFenced:
    producer_id, epoch = found.identity
    return ProducerFenced(
        f"transactional id {found.transactional_id!r} is at producer {producer_id}, epoch {epoch}; producer "
        f"{held.producer_id}, epoch {held.epoch} has been fenced"
    )
