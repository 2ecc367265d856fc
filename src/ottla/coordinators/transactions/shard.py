"""One shard of the transaction coordinator: the transactional ids that one partition of `__transaction_state` holds.

Decides who may write in a transaction; who gets an id is in `producers`, how a transaction ends in `ending`, commits of
several in `together`. Markers are ordered here and written elsewhere: see `markers`.
"""

from __future__ import annotations

from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.coordinators.transactions.claims import ApiVersion, Claim, ProducerId
from ottla.coordinators.transactions.ending import Ending
from ottla.coordinators.transactions.expiry import EXPIRE, Expiry
from ottla.coordinators.transactions.listing import Listing
from ottla.coordinators.transactions.markers import WriteMarkers
from ottla.coordinators.transactions.producers import Producers
from ottla.coordinators.transactions.records import TransactionStatus
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.together import Together
from ottla.coordinators.transactions.transaction import EPOCH_MAX
from ottla.coordinators.transactions.transactions import PARK, TIMEOUT, TIMERS, Transactions
from ottla.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
)
from ottla.protocol.messages.commit_together import CommitTogetherRequest
from ottla.protocol.messages.describe_commit import DescribeCommitRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.keep_transactions import KeepTransactionsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.schema import Message


class TransactionShard:
    """The state machine of a shard."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.transactions = Transactions()
        self._producers = Producers(self.transactions, settings)
        self._ending = Ending(self.transactions)
        self._together = Together(self.transactions)
        self._listing = Listing(self.transactions)
        self._expiry = Expiry(self.transactions, settings)

    # --- producers -----------------------------------------------------------------------------------

    def init_producer(
        self, request: InitProducerIdRequest, new_producer_id: ProducerId, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        """`new_producer_id` is one that nobody has had, in case that one is needed."""
        self._producers.init_producer(request, new_producer_id, ticket, outcome, now_ms)

    def add(self, claim: Claim, response: Message, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """The transaction writes to these partitions too; it begins with the first."""
        if not claim.transactional_id:
            raise InvalidRequest("an empty transactional id")
        found = self.transactions.of_claimant(
            claim.transactional_id, producer_id=claim.producer_id, producer_epoch=claim.producer_epoch
        )
        if found.ending is not None:

            def again(outcome: Outcome, now_ms: int) -> None:
                self.add(claim, response, ticket, outcome, now_ms)

            self.transactions.park(claim.transactional_id, ticket, again, outcome, now_ms)
            return
        if claim.producer_epoch >= EPOCH_MAX:
            raise ProducerFenced(
                f"the epochs of producer {claim.producer_id} are used up: there is none left to fence it with; "
                f"initialize {claim.transactional_id!r} again"
            )
        is_begun = found.status is TransactionStatus.ONGOING
        if not found.partitions.issuperset(claim.partitions) or not is_begun:
            self.transactions.write(claim.transactional_id, found.with_partitions(claim.partitions, now_ms), outcome)
        if not is_begun:
            timeout_ms = found.value.transaction_timeout_ms
            outcome.set_timer((TIMERS, TIMEOUT, claim.transactional_id), at_ms=now_ms + timeout_ms)
        outcome.reply(ticket, response)

    def verify(self, claim: Claim, response: Message, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """These partitions belong to the open transaction."""
        found = self.transactions.of_claimant(
            claim.transactional_id, producer_id=claim.producer_id, producer_epoch=claim.producer_epoch
        )
        if found.ending is not None:
            raise ConcurrentTransactions(f"the last transaction of {claim.transactional_id!r} is still being ended")
        if found.status is not TransactionStatus.ONGOING or not found.partitions.issuperset(claim.partitions):
            raise TransactionAbortable(
                f"{claim.transactional_id!r} has no transaction open that these partitions were added to"
            )
        outcome.reply(ticket, response)

    def require_ongoing(self, transactional_id: str, *, producer_id: int, producer_epoch: int) -> None:
        """Raise what a batch or an offset of this transaction is to be refused with now, if it is."""
        found = self.transactions.of_claimant(transactional_id, producer_id=producer_id, producer_epoch=producer_epoch)
        if found.status is not TransactionStatus.ONGOING:
            raise InvalidTransactionState(
                f"{transactional_id!r} has no transaction open: it is in state {found.status.told}"
            )

    def end(
        self,
        request: EndTxnRequest,
        version: ApiVersion,
        new_producer_id: ProducerId,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """`new_producer_id` is needed where the epochs of the present one run out; -1 where they do not."""
        self._ending.end(request, version, new_producer_id, ticket, outcome, now_ms)

    def completed(self, order: WriteMarkers, outcome: Outcome, now_ms: int) -> None:
        """All that was ordered has been done, durably."""
        self._ending.completed(order, outcome, now_ms)

    def is_due(self, order: WriteMarkers) -> bool:
        """Whether an order is to be carried out now.

        One that a load has given again waits for the disk. Meanwhile the markers that an earlier life has ordered may
        all have been written, and the next transaction begun: then markers of the old one would tear it.
        """
        return self._ending.is_due(order)

    # --- commits of several ----------------------------------------------------------------------------

    def commit_together(self, request: CommitTogetherRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        self._together.commit(request, ticket, outcome, now_ms)

    def describe_commit(self, request: DescribeCommitRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        self._together.describe(request, ticket, outcome)

    def keep(self, request: KeepTransactionsRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        self._together.keep(request, ticket, outcome, now_ms)

    # --- tools -----------------------------------------------------------------------------------------

    def abort(self, transactional_id: str, response: Message, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """An admin ends an open transaction."""
        self._ending.abort(transactional_id, response, ticket, outcome, now_ms)

    def status_of_producer(self, producer_id: int) -> tuple[str, TransactionStatus] | None:
        """The transactional id that has this producer id now, and what it is in the middle of."""
        found = self.transactions.of_producer(producer_id)
        return None if found is None else (found.transactional_id, found.status)

    def describe(self, transactional_id: str, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        outcome.reply(ticket, self._listing.described(transactional_id))

    def list_transactions(
        self, request: ListTransactionsRequest, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        outcome.reply(ticket, self._listing.listed(request, now_ms))

    # --- what the runtime tells --------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None) -> None:
        self.transactions.replay(key, value)

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        """Go on with what was decided. Open transactions get their whole time: nobody could end them meanwhile."""
        for found in self.transactions:
            if found.ending is not None:
                outcome.order(found.markers)
            elif found.status is TransactionStatus.ONGOING:
                at_ms = now_ms + found.value.transaction_timeout_ms
                outcome.set_timer((TIMERS, TIMEOUT, found.transactional_id), at_ms=at_ms)
        self._expiry.loaded(outcome, now_ms)

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        if key[1] == EXPIRE:
            self._expiry.on_timer(outcome, now_ms)
        elif key[1] == PARK:
            self.transactions.give_up(key[2], outcome)
        elif key[1] == TIMEOUT:
            self._ending.time_out(key[2], outcome, now_ms)
