"""A model of the broker around the transaction coordinator: partitions, the way of a batch, and the writer of markers.

It does what the broker promises to do, one small step at a time, so that a crash can come between any two of them: a
batch is taken only while its transaction is open, markers are written one partition after the other, and a transaction
is told complete when all of them are durable. Where exactly a crash would fall is told by `crash_points`.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

from ottla.clock import ManualClock
from ottla.coordinators.transactions.claims import Claim
from ottla.coordinators.transactions.markers import TopicPartition, WriteMarkers
from ottla.coordinators.transactions.records import TransactionLogValue, TransactionStatus
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.transaction import EPOCH_MAX, Transaction, is_exhausted
from ottla.errors import NotLeader, ProducerFenced, Refusal
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.protocol.messages.commit_together import CommitTogetherResponse
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schema import Message
from tests.coordinators.transactions.coordinator_model import COMPLETE, PREPARED, Decide, Done, ModelCoordinator
from tests.coordinators.transactions.partition_model import NO_SEQUENCE, NO_TOKEN, Entry, ModelPartition

GRANTED = AddPartitionsToTxnResponse()
VERSION_2_MIN = 5
FIRST_PRODUCER_ID = 1_000

DECIDED = "decided, not durable"
DURABLE = "durable, not answered"
ANSWERED = "answered, no marker written"
FIRST = "after the first marker"
MIDDLE = "between two markers in the middle"
LAST = "before the last marker"
WRITTEN = "all markers written, not durable"
FINISHED = "all markers durable, not complete"
COMPLETED = "complete, not durable"
STEPS_OF_AN_END = (DECIDED, DURABLE, ANSWERED, FIRST, MIDDLE, LAST, WRITTEN, FINISHED, COMPLETED)
GROUP = "group commit: "
LOADING = "while the coordinator loads"
AGAIN = "while markers are written again"
BETWEEN = "group commit: some transactions complete, others not"
OPEN = "with a transaction open"
INIT_WAITS = "while an InitProducerId waits"
ADD_WAITS = "while an add waits"
CRASH_POINTS = (
    *STEPS_OF_AN_END,
    *(GROUP + step for step in STEPS_OF_AN_END),
    LOADING,
    AGAIN,
    BETWEEN,
    OPEN,
    INIT_WAITS,
    ADD_WAITS,
)


class Produce(NamedTuple):
    """One batch on its way."""

    transactional_id: str
    producer_id: int
    epoch: int
    sequence: int
    token: int
    place: TopicPartition
    adds: bool
    """Whether the partition joins the transaction by it, as in the second version."""


class _Run:
    """An order that is being carried out."""

    def __init__(self, order: WriteMarkers, decision: int, *, is_group: bool, is_again: bool) -> None:
        self.order = order
        self.decision = decision
        self.is_group = is_group
        self.is_again = is_again
        self.left = list(order.partitions)
        self.unsettled = 0

    @property
    def written(self) -> int:
        return len(self.order.partitions) - len(self.left)

    @property
    def is_finished(self) -> bool:
        return not self.left and not self.unsettled

    @property
    def point(self) -> str:
        """Where it stands."""
        if self.is_finished:
            return FINISHED
        if not self.left:
            return WRITTEN
        if not self.written:
            return ANSWERED
        if self.written == 1:
            return FIRST
        return LAST if len(self.left) == 1 else MIDDLE


class ModelBroker:
    """One broker over all its lives."""

    def __init__(
        self, settings: TransactionSettings, *, random: Random, counts: Counter[str], partition_count: int
    ) -> None:
        self._random = random
        self._counts = counts
        self.clock = ManualClock(0)
        names = [TopicPartition("p", number) for number in range(partition_count - 1)]
        names.append(TopicPartition("__consumer_offsets", 7))
        self.partitions = {name: ModelPartition(name) for name in names}
        self._runs: list[_Run] = []
        self._begun: set[int] = set()
        """Decisions for which markers have been ordered before."""
        self._told: dict[str, tuple[int, int]] = {}
        """The producer id and epoch that somebody was told last, by transactional id."""
        self._owners: dict[tuple[int, int], object] = {}
        """Who was told each of them: never two, or the one could write into what the other has open."""
        self._producer_ids = FIRST_PRODUCER_ID
        self.coordinator = ModelCoordinator(
            settings,
            random=random,
            clock=self.clock,
            counts=counts,
            carry_out=self._begin_run,
            completing=self._check_completing,
        )

    # --- requests ------------------------------------------------------------------------------------------------

    def ask(self, asked: str, decide: Decide, done: Done) -> None:
        """A request that only the coordinator decides."""

        def counted(reply: Message | Refusal) -> None:
            told = reply.code.name if isinstance(reply, Refusal) else "NONE"
            self._counts[f"{asked} {told}"] += 1
            if isinstance(reply, CommitTogetherResponse) and reply.is_repeated:
                self._counts["a key is committed already"] += 1
            done(reply)

        self.coordinator.ask(asked, decide, counted)

    def init_producer(self, request: InitProducerIdRequest, who: object, done: Done) -> None:
        self._producer_ids += 1
        new_producer_id = self._producer_ids

        def told(reply: Message | Refusal) -> None:
            if isinstance(reply, InitProducerIdResponse):
                assert request.transactional_id is not None
                self._note_told(request.transactional_id, reply.producer_id, reply.producer_epoch, who)
                if self._is_timed_out(request.transactional_id, epoch=request.producer_epoch):
                    self._counts["after a timeout a producer goes on by naming itself"] += 1
            done(reply)

        self.ask("InitProducerId", lambda shard, *rest: shard.init_producer(request, new_producer_id, *rest), told)

    def end(self, request: EndTxnRequest, version: int, who: object, done: Done) -> None:
        self._producer_ids += 1
        new_producer_id = self._producer_ids if is_exhausted(request.producer_epoch) else -1

        def told(reply: Message | Refusal) -> None:
            if isinstance(reply, EndTxnResponse) and version >= VERSION_2_MIN:
                self._note_told(request.transactional_id, reply.producer_id, reply.producer_epoch, who)
                if self._is_timed_out(request.transactional_id, epoch=request.producer_epoch):
                    assert not request.committed, "what took too long was told committed"
                    self._counts["after a timeout a producer goes on by an abort"] += 1
            elif isinstance(reply, ProducerFenced) and version >= VERSION_2_MIN:
                assert not self._may_go_on(request), "fenced, though it only took too long"
            done(reply)

        name = "EndTxn" if version >= VERSION_2_MIN else "EndTxn of version 1"
        self.ask(name, lambda shard, *rest: shard.end(request, version, new_producer_id, *rest), told)

    def is_open(self, transactional_id: str, place: TopicPartition | None) -> bool:
        """Whether a transaction of this id is open, in this partition if one is named."""
        found = self.coordinator.shard.transactions.get(transactional_id)
        is_ongoing = found is not None and found.status is TransactionStatus.ONGOING
        return is_ongoing and (place is None or (found is not None and place in found.partitions))

    def add(self, claim: Claim, done: Done) -> None:
        self.ask("AddPartitionsToTxn", lambda shard, *rest: shard.add(claim, GRANTED, *rest), done)

    def produce(self, batch: Produce, done: Done) -> None:
        """The way of a batch: at once where its transaction is open, else when the coordinator has said yes."""

        def counted(reply: Message | Refusal) -> None:
            self._counts[f"Produce {reply.code.name if isinstance(reply, Refusal) else 'NONE'}"] += 1
            done(reply)

        if self.partitions[batch.place].is_open(batch.producer_id, epoch=batch.epoch):
            self._counts["a batch finds its transaction open"] += 1
            self._append(batch, counted)
            return

        def settled(reply: Message | Refusal) -> None:
            if isinstance(reply, Refusal):
                counted(reply)
            else:
                self._append(batch, counted)

        claim = Claim(batch.transactional_id, batch.producer_id, batch.epoch, (batch.place,))
        if batch.adds:
            self.ask("add", lambda shard, *rest: shard.add(claim, GRANTED, *rest), settled)
        else:
            self.ask("verify", lambda shard, *rest: shard.verify(claim, GRANTED, *rest), settled)

    def _append(self, batch: Produce, done: Done) -> None:
        taken_at = self.coordinator.end_position
        entry = Entry(batch.producer_id, batch.epoch, batch.sequence, batch.token, taken_at)
        try:
            self.coordinator.require_ongoing(
                batch.transactional_id, producer_id=batch.producer_id, producer_epoch=batch.epoch
            )
            self.partitions[batch.place].append(entry, lambda: done(GRANTED))
        except Refusal as refusal:
            done(refusal)

    def _is_timed_out(self, transactional_id: str, *, epoch: int) -> bool:
        """Whether the last transaction of this id took too long, and had this epoch."""
        position, _ = self.coordinator.decisions.get(transactional_id, (-1, False))
        return self.coordinator.timeouts.get(position) == epoch

    def _may_go_on(self, request: EndTxnRequest) -> bool:
        """Whether nobody has come since the transaction of this producer took too long; and it has epochs left."""
        found = self.coordinator.shard.transactions.get(request.transactional_id)
        is_its_own = self._is_timed_out(request.transactional_id, epoch=request.producer_epoch)
        if found is None or not is_its_own or is_exhausted(request.producer_epoch):
            return False
        present = (request.producer_id, request.producer_epoch + 1)
        is_aborted = found.status in (TransactionStatus.PREPARE_ABORT, TransactionStatus.COMPLETE_ABORT)
        return is_aborted and found.identity == present

    def _note_told(self, transactional_id: str, producer_id: int, epoch: int, who: object) -> None:
        assert self._owners.setdefault((producer_id, epoch), who) is who, "two have been told one epoch"
        assert epoch < EPOCH_MAX, "an epoch that nobody could be fenced from"
        before_id, before_epoch = self._told.get(transactional_id, (-1, -1))
        assert producer_id >= before_id, "an old producer id is told again"
        assert producer_id > before_id or epoch >= before_epoch, "the epoch goes down"
        self._told[transactional_id] = producer_id, epoch

    # --- markers -------------------------------------------------------------------------------------------------

    @property
    def has_runs(self) -> bool:
        return bool(self._runs)

    def _begin_run(self, order: WriteMarkers) -> None:
        if any(run.order == order for run in self._runs):
            # Given again by a shard that began anew, while this one is still at it: it is one order.
            self._counts["an order is given again while it is carried out"] += 1
            return
        decision, is_group = self.coordinator.decisions[order.transactional_id]
        self._runs.append(_Run(order, decision, is_group=is_group, is_again=decision in self._begun))
        self._begun.add(decision)

    def write_a_marker(self) -> None:
        """In one partition of one transaction."""
        runs = [run for run in self._runs if run.left]
        if not runs:
            return
        run = self._random.choice(runs)
        place = self._random.choice(run.left)
        order = run.order
        marker = Entry(
            order.producer_id,
            order.producer_epoch,
            NO_SEQUENCE,
            NO_TOKEN,
            self.coordinator.end_position,
            order.marker_type,
            run.decision,
        )

        def settled() -> None:
            run.unsettled -= 1

        try:
            self.partitions[place].append_marker(marker, settled)
        except NotLeader:
            self._counts["a marker waits for an offline partition"] += 1
            return
        run.left.remove(place)
        run.unsettled += 1

    def tell_completed(self) -> None:
        """The coordinator hears that one of the transactions has all its markers."""
        finished = [run for run in self._runs if run.is_finished]
        if finished:
            run = self._random.choice(finished)
            self._runs.remove(run)
            self.coordinator.complete(run.order)

    def _check_completing(self, transactional_id: str, before: TransactionLogValue) -> None:
        decision, _ = self.coordinator.decisions[transactional_id]
        for place in Transaction(transactional_id, before).partitions:
            partition = self.partitions[place]
            durable = partition.entries[: partition.durable_count]
            markers = {entry.decision for entry in durable if entry.marker_type is not None}
            assert decision in markers, f"{transactional_id} is complete without a durable marker in {place}"

    # --- crashes -------------------------------------------------------------------------------------------------

    def crash_points(self) -> set[str]:
        """Where a crash would fall now."""
        coordinator = self.coordinator
        points = {_prefixed(run.point, is_group=run.is_group) for run in self._runs}
        if any(run.is_again and run.left and run.written for run in self._runs):
            points.add(AGAIN)
        if coordinator.is_loading:
            points.add(LOADING)
            return points
        for change in coordinator.unsynced_changes():
            if change.value is not None and change.value.transaction_status in PREPARED:
                points.add(_prefixed(DECIDED, is_group=change.is_group))
            elif change.value is not None and change.value.transaction_status in COMPLETE:
                _, is_group = coordinator.decisions[change.transactional_id]
                points.add(_prefixed(COMPLETED, is_group=is_group))
        for position, order in coordinator.ordered:
            if position <= coordinator.synced_position:
                _, is_group = coordinator.decisions[order.transactional_id]
                points.add(_prefixed(DURABLE, is_group=is_group))
        if self._is_group_half_complete():
            points.add(BETWEEN)
        if any(found.status is TransactionStatus.ONGOING for found in coordinator.shard.transactions):
            points.add(OPEN)
        parked = coordinator.parked
        if "InitProducerId" in parked:
            points.add(INIT_WAITS)
        if "add" in parked or "AddPartitionsToTxn" in parked:
            points.add(ADD_WAITS)
        return points

    def _is_group_half_complete(self) -> bool:
        """Whether of the transactions of one commit some have all their markers recorded, and others have not."""
        shard = self.coordinator.shard
        states: dict[int, set[bool]] = {}
        for transactional_id, (decision, is_group) in self.coordinator.decisions.items():
            found = shard.transactions.get(transactional_id)
            if is_group and found is not None:
                states.setdefault(decision, set()).add(found.ending is not None)
        return any(len(both) == 2 for both in states.values())

    def crash(self) -> None:
        """The process dies."""
        for point in self.crash_points():
            self._counts[f"crash: {point}"] += 1
        self._runs.clear()
        for partition in self.partitions.values():
            partition.crash(self._random)
        self.coordinator.crash()

    def begin_shard_anew(self) -> None:
        """Only the coordinator's shard fails and is read back; markers are being written meanwhile."""
        self._counts["the shard begins anew"] += 1
        self.coordinator.crash()


def _prefixed(point: str, *, is_group: bool) -> str:
    return GROUP + point if is_group else point
