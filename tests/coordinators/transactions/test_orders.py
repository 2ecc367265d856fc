"""Whether an order is still to be carried out, when it has waited for the disk."""

from __future__ import annotations

from ottla.coordinators.outcome import CoordinatorRecord, Outcome, Ticket
from ottla.coordinators.transactions.claims import Claim
from ottla.coordinators.transactions.markers import TopicPartition, WriteMarkers
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

TICKET: Ticket = 1
ID = "t"
PRODUCER_ID = 7


class Life:
    """One shard, from its first record or from those of an earlier one."""

    def __init__(self, records: tuple[CoordinatorRecord, ...] = ()) -> None:
        self.shard = TransactionShard(TransactionSettings())
        for key, value in records:
            self.shard.replay(key, value)
        self.records = [*records]
        self.orders: list[WriteMarkers] = []
        outcome = Outcome(self.shard.replay)
        self.shard.loaded(outcome, 0)
        self._follow(outcome)

    def init(self) -> None:
        outcome = Outcome(self.shard.replay)
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1_000)
        self.shard.init_producer(request, PRODUCER_ID, TICKET, outcome, 0)
        self._follow(outcome)

    def add(self, epoch: int) -> None:
        outcome = Outcome(self.shard.replay)
        claim = Claim(ID, PRODUCER_ID, epoch, (TopicPartition("p", 0),))
        self.shard.add(claim, AddPartitionsToTxnResponse(), TICKET, outcome, 0)
        self._follow(outcome)

    def end(self, epoch: int, *, version: int) -> None:
        outcome = Outcome(self.shard.replay)
        request = EndTxnRequest(transactional_id=ID, producer_id=PRODUCER_ID, producer_epoch=epoch, committed=True)
        self.shard.end(request, version, -1, TICKET, outcome, 0)
        self._follow(outcome)

    def complete(self, order: WriteMarkers) -> None:
        outcome = Outcome(self.shard.replay)
        self.shard.completed(order, outcome, 0)
        self._follow(outcome)

    def _follow(self, outcome: Outcome) -> None:
        self.records += outcome.records
        for order in outcome.orders:
            assert isinstance(order, WriteMarkers)
            self.orders.append(order)


def committing(*, version: int) -> Life:
    """A shard that has just decided to commit."""
    life = Life()
    life.init()
    life.add(0)
    life.end(0, version=version)
    return life


def test_an_order_is_due_until_the_transaction_is_complete() -> None:
    life = committing(version=5)
    (order,) = life.orders

    assert life.shard.is_due(order)
    life.complete(order)
    assert not life.shard.is_due(order)


def test_an_order_given_again_by_a_load_is_not_due_when_the_earlier_one_was_carried_out_meanwhile() -> None:
    (order,) = committing(version=5).orders
    again = Life(tuple(committing(version=5).records))
    assert again.orders == [order]

    again.complete(order)
    again.add(1)

    assert not again.shard.is_due(order)


def test_an_order_is_not_due_for_the_next_end_of_the_same_id() -> None:
    life = committing(version=5)
    life.complete(life.orders[0])
    life.add(1)
    life.end(1, version=5)

    assert [life.shard.is_due(order) for order in life.orders] == [False, True]


def test_with_the_first_version_two_orders_may_be_the_same_and_then_one_does_for_the_other() -> None:
    life = committing(version=4)
    life.complete(life.orders[0])
    life.add(0)
    assert not life.shard.is_due(life.orders[0])
    life.end(0, version=4)

    first, second = life.orders
    assert first == second
    assert life.shard.is_due(first)


def test_nothing_is_due_for_an_id_that_nobody_knows() -> None:
    (order,) = committing(version=5).orders

    assert not Life().shard.is_due(order)
