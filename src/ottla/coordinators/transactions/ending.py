"""EndTxn, and whatever else ends a transaction: timeouts, admins, and the markers that have all been written.

With the second version the epoch goes up at each end, so that nothing that comes late can be taken for a part of the
next transaction. A producer that asks again because the answer was lost is told the same once more.
"""

from __future__ import annotations

from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.transactions.claims import ApiVersion, ProducerId
from ottla.coordinators.transactions.markers import WriteMarkers
from ottla.coordinators.transactions.records import NO_PRODUCER_EPOCH, TransactionStatus
from ottla.coordinators.transactions.transaction import Transaction, is_exhausted
from ottla.coordinators.transactions.transactions import Transactions
from ottla.errors import InvalidRequest, InvalidTransactionState, TransactionalIdNotFound
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schema import Message
from ottla.records.control import MarkerType

BUMP_VERSION_MIN = 5
"""From here on clients know the second version of transactions."""

_ENDED_AS = {
    TransactionStatus.PREPARE_COMMIT: MarkerType.COMMIT,
    TransactionStatus.COMPLETE_COMMIT: MarkerType.COMMIT,
    TransactionStatus.PREPARE_ABORT: MarkerType.ABORT,
    TransactionStatus.COMPLETE_ABORT: MarkerType.ABORT,
}


class Ending:
    """Decides how transactions end."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def end(
        self,
        request: EndTxnRequest,
        version: ApiVersion,
        new_producer_id: ProducerId,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """Commit or abort, as the producer asks; it is told so once the decision is durable."""
        if not request.transactional_id:
            raise InvalidRequest("an empty transactional id")
        is_bumped = version >= BUMP_VERSION_MIN
        marker_type = MarkerType.COMMIT if request.committed else MarkerType.ABORT
        found = self._transactions.get(request.transactional_id)
        if found is not None and is_bumped and _is_asked_again(found, request):
            _check_same(found, marker_type)
            outcome.reply(ticket, _told(found))
            return
        found = self._transactions.of_claimant(
            request.transactional_id, producer_id=request.producer_id, producer_epoch=request.producer_epoch
        )
        if found.status is not TransactionStatus.ONGOING:
            if not is_bumped:
                _check_same(found, marker_type)
                outcome.reply(ticket, EndTxnResponse())
                return
            if found.ending is not None:

                def again(outcome: Outcome, now_ms: int) -> None:
                    self.end(request, version, new_producer_id, ticket, outcome, now_ms)

                self._transactions.park(found.transactional_id, ticket, again, outcome, now_ms)
                return
            if marker_type is MarkerType.COMMIT:
                raise InvalidTransactionState(f"{found.transactional_id!r} has no transaction open to commit")
            # A batch may have been refused before anything was added; its producer aborts, and gets its next epoch.
        value = found.ended(marker_type, now_ms, bumped=is_bumped, next_producer_id=new_producer_id)
        found = self._transactions.end(found.transactional_id, value, outcome)
        outcome.reply(ticket, _told(found) if is_bumped else EndTxnResponse())

    def completed(self, order: WriteMarkers, outcome: Outcome, now_ms: int) -> None:
        """All markers of an order stand in their partitions, durably."""
        found = self._transactions.get(order.transactional_id)
        if found is None or not self.is_due(order):
            # It was told twice: once by each life of the shard.
            return
        self._transactions.write(order.transactional_id, found.completed(now_ms), outcome)
        self._transactions.go_on(order.transactional_id, outcome, now_ms)

    def is_due(self, order: WriteMarkers) -> bool:
        """Whether the transaction is still being ended in this way."""
        found = self._transactions.get(order.transactional_id)
        return found is not None and found.ending is not None and found.markers == order

    def time_out(self, transactional_id: str, outcome: Outcome, now_ms: int) -> None:
        """The transaction has been open for as long as its producer has asked for.

        The producer is not fenced: when it aborts, or initializes itself with the epoch that it has, it gets the next.
        """
        found = self._transactions.get(transactional_id)
        if found is not None and found.status is TransactionStatus.ONGOING:
            epoch = found.value.producer_epoch
            # There may be no next one under this id.
            is_last = is_exhausted(epoch)
            self._transactions.abort(found, outcome, now_ms, last_producer_epoch=epoch, fenced=is_last)

    def abort(self, transactional_id: str, response: Message, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """An admin's abort: answered when the markers are written. What has been decided is not undone."""
        found = self._transactions.get(transactional_id)
        if found is None:
            raise TransactionalIdNotFound(f"nothing is known of transactional id {transactional_id!r}")
        if found.status is TransactionStatus.ONGOING:
            self._transactions.abort(found, outcome, now_ms, last_producer_epoch=NO_PRODUCER_EPOCH)
        elif found.ending is not MarkerType.ABORT:
            raise InvalidTransactionState(
                f"{transactional_id!r} has no transaction open to abort: it is in state {found.status.told}"
            )
        self._transactions.park(
            transactional_id, ticket, lambda outcome, now_ms: outcome.reply(ticket, response), outcome, now_ms
        )


def _is_asked_again(found: Transaction, request: EndTxnRequest) -> bool:
    """Whether this is the request that ended the last transaction, sent again because its answer was lost.

    Or the first that a producer sends after its transaction has timed out: that is ended already, too.
    """
    value = found.value
    if value.is_fenced or value.last_producer_epoch == NO_PRODUCER_EPOCH or found.status not in _ENDED_AS:
        return False
    if request.producer_epoch != value.last_producer_epoch:
        return False
    return request.producer_id == value.producer_id or found.is_next_of(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch
    )


def _check_same(found: Transaction, marker_type: MarkerType) -> None:
    ended_as = _ENDED_AS.get(found.status)
    if ended_as is not marker_type:
        raise InvalidTransactionState(
            f"{found.transactional_id!r} has no transaction open: it is in state {found.status.told}"
        )


def _told(found: Transaction) -> EndTxnResponse:
    producer_id, producer_epoch = found.identity
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
