"""All transactional ids of one shard, and who waits until the end of a transaction.

Recorded state changes by `replay` only. Whoever comes while a transaction is being ended waits here, a little while,
and is decided when it has come to its end: clients would only ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.transactions.records import (
    CommittedBatchesKey,
    CommittedBatchesValue,
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
)
from ottla.coordinators.transactions.transaction import Transaction
from ottla.errors import ConcurrentTransactions, InvalidProducerIdMapping, ProducerFenced, Refusal
from ottla.protocol.schema import Message

PARK_MS_MAX = 3_000
"""How long anybody waits for the end of a transaction: markers may have to wait for a disk that has failed."""
TIMERS = "transactions"
PARK = "park"
TIMEOUT = "timeout"

Decide = Callable[[Outcome, int], None]


class _Parked(NamedTuple):
    ticket: Ticket
    decide: Decide


class Transactions:
    """What is recorded, and who waits."""

    def __init__(self) -> None:
        self._by_id: dict[str, Transaction] = {}
        self._by_producer: dict[int, str] = {}
        self.batches: dict[str, CommittedBatchesValue] = {}
        """What was committed together lately, by query, the one that has been silent for longest first."""
        self._parked: dict[str, list[_Parked]] = {}

    def replay(self, key: Message, value: Message | None) -> None:
        """Follow a record."""
        if isinstance(key, TransactionLogKey):
            assert value is None or isinstance(value, TransactionLogValue)
            self._replay_transaction(key.transactional_id, value)
        elif isinstance(key, CommittedBatchesKey):
            assert value is None or isinstance(value, CommittedBatchesValue)
            # The one that was used last stands last.
            self.batches.pop(key.query_id, None)
            if value is not None:
                self.batches[key.query_id] = value

    def _replay_transaction(self, transactional_id: str, value: TransactionLogValue | None) -> None:
        found = None if value is None else Transaction(transactional_id, value)
        before = self._by_id.pop(transactional_id, None)
        if before is not None:
            self._by_producer.pop(before.value.producer_id, None)
        if found is not None and found.status is not TransactionStatus.DEAD:
            self._by_id[transactional_id] = found
            self._by_producer[found.value.producer_id] = transactional_id

    # --- looking -------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def of_producer(self, producer_id: int) -> Transaction | None:
        transactional_id = self._by_producer.get(producer_id)
        return None if transactional_id is None else self._by_id[transactional_id]

    def of_claimant(self, transactional_id: str, *, producer_id: int, producer_epoch: int) -> Transaction:
        """The transaction of a producer that says who it is. Raises a Refusal when it is not the present one."""
        found = self._by_id.get(transactional_id)
        if found is None:
            raise InvalidProducerIdMapping(
                f"nothing is known of transactional id {transactional_id!r}; it may have expired: initialize it again"
            )
        known_id, known_epoch = found.identity
        if producer_id != known_id:
            raise InvalidProducerIdMapping(
                f"transactional id {transactional_id!r} belongs to producer {known_id}, not to {producer_id}"
            )
        if producer_epoch != known_epoch:
            raise ProducerFenced(
                f"transactional id {transactional_id!r} is at epoch {known_epoch}, {producer_epoch} came: another "
                "producer has taken it over, or its transaction took too long and was aborted"
            )
        return found

    def __iter__(self) -> Iterator[Transaction]:
        return iter(tuple(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    # --- writing -------------------------------------------------------------------------------------

    def write(self, transactional_id: str, value: TransactionLogValue | None, outcome: Outcome) -> Transaction | None:
        """Record what has become of an id; returns it as it is now."""
        outcome.write(TransactionLogKey(transactional_id=transactional_id), value)
        return self._by_id.get(transactional_id)

    def end(self, transactional_id: str, value: TransactionLogValue, outcome: Outcome) -> Transaction:
        """Record the decision to end a transaction, and order what must follow it."""
        found = self.write(transactional_id, value, outcome)
        assert found is not None, "a decision does not take an id away"
        outcome.order(found.markers)
        outcome.cancel_timer((TIMERS, TIMEOUT, transactional_id))
        return found

    def abort(
        self, found: Transaction, outcome: Outcome, now_ms: int, *, last_producer_epoch: int, fenced: bool = True
    ) -> Transaction:
        """End an open transaction over its producer's head. One that is not fenced may go on after it has aborted."""
        value = found.aborted_by_coordinator(now_ms, last_producer_epoch=last_producer_epoch, fenced=fenced)
        return self.end(found.transactional_id, value, outcome)

    # --- waiting -------------------------------------------------------------------------------------

    def park(self, transactional_id: str, ticket: Ticket, decide: Decide, outcome: Outcome, now_ms: int) -> None:
        """Decide this when the transaction has come to its end."""
        waiting = self._parked.setdefault(transactional_id, [])
        if not waiting:
            outcome.set_timer((TIMERS, PARK, transactional_id), at_ms=now_ms + PARK_MS_MAX)
        waiting.append(_Parked(ticket, decide))

    def go_on(self, transactional_id: str, outcome: Outcome, now_ms: int) -> None:
        """The transaction has come to its end: decide what has waited for that, in the order in which it came."""
        waiting = self._parked.pop(transactional_id, ())
        if waiting:
            outcome.cancel_timer((TIMERS, PARK, transactional_id))
        for parked in waiting:
            try:
                parked.decide(outcome, now_ms)
            except Refusal as refusal:
                outcome.reply(parked.ticket, refusal)

    def give_up(self, transactional_id: str, outcome: Outcome) -> None:
        """It takes too long: let those who wait ask again."""
        for parked in self._parked.pop(transactional_id, ()):
            outcome.reply(
                parked.ticket,
                ConcurrentTransactions(
                    f"the last transaction of {transactional_id!r} takes longer than {PARK_MS_MAX} ms to end; try again"
                ),
            )
