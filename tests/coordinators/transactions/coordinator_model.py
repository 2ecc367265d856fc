"""A model of the runtime around a shard of transactions: its log, its disk, its timers, and who waits.

It keeps the promises of the runtime and no more: the records of a decision are one batch; replies and orders wait until
all that was appended before them is durable; a crash loses a part of what is not, and every reply, order and timer.
Syncing and releasing are two steps, so that a crash can come between them. Loading takes several steps.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from ottla.clock import ManualClock
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.coordinators.transactions.markers import WriteMarkers
from ottla.coordinators.transactions.records import (
    CommittedBatchesKey,
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    decode,
    encode,
)
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.coordinators.transactions.transactions import TIMEOUT, TIMERS
from ottla.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, Refusal
from ottla.protocol.schema import Message

Decide = Callable[[TransactionShard, Ticket, Outcome, int], None]
Done = Callable[[Message | Refusal], None]

PREPARED = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
COMPLETE = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
LOAD_PIECE = 10


class Batch(NamedTuple):
    """The records of one decision."""

    position: int
    records: tuple[tuple[bytes, bytes | None], ...]


class Change(NamedTuple):
    """What became of an id by one record."""

    transactional_id: str
    value: TransactionLogValue | None
    is_group: bool
    """Whether it was decided for several at once."""


class ModelCoordinator:
    """One shard over all its lives."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        random: Random,
        clock: ManualClock,
        counts: Counter[str],
        carry_out: Callable[[WriteMarkers], None],
        completing: Callable[[str, TransactionLogValue], None],
    ) -> None:
        """`completing` is told of each transaction that is about to be recorded as complete, as it was before."""
        self._settings = settings
        self._random = random
        self._clock = clock
        self._counts = counts
        self._carry_out = carry_out
        self._completing = completing
        self._tickets = 0
        self._next_position = 0
        self.changes: dict[int, list[Change]] = {}
        """By the position of the batch; of all batches that were ever appended and not lost."""
        self.decisions: dict[str, tuple[int, bool]] = {}
        """The last decision to end a transaction of each id: its position, and whether it was one for several."""
        self.timeouts: dict[int, int] = {}
        """Where it was decided that a transaction had taken too long; and the epoch that it had."""
        self.durable: list[Batch] = []
        self.unsynced: list[Batch] = []
        self.held: deque[tuple[int, Ticket, Message | Refusal]] = deque()
        self.ordered: deque[tuple[int, WriteMarkers]] = deque()
        self.waiting: dict[Ticket, tuple[str, Done]] = {}
        """Who waits, with what was asked."""
        self.timers: dict[TimerKey, int] = {}
        self._to_load: deque[Batch] | None = None
        self.shard = TransactionShard(settings)
        self._run(self.shard.loaded)

    # --- what others see ---------------------------------------------------------------------------------------

    @property
    def is_loading(self) -> bool:
        return self._to_load is not None

    @property
    def end_position(self) -> int:
        """Where the next decision will stand."""
        return self._next_position

    @property
    def synced_position(self) -> int:
        """The first position that may be lost."""
        return self.unsynced[0].position if self.unsynced else self._next_position

    @property
    def parked(self) -> list[str]:
        """What those have asked who wait for a decision, and not only for the disk."""
        decided = {ticket for _, ticket, _ in self.held}
        return [asked for ticket, (asked, _) in self.waiting.items() if ticket not in decided]

    def require_ongoing(self, transactional_id: str, *, producer_id: int, producer_epoch: int) -> None:
        if self.is_loading:
            raise CoordinatorLoadInProgress("loading")
        self.shard.require_ongoing(transactional_id, producer_id=producer_id, producer_epoch=producer_epoch)

    def ask(self, asked: str, decide: Decide, done: Done) -> None:
        if self.is_loading:
            done(CoordinatorLoadInProgress("loading"))
            return
        self._tickets += 1
        ticket = self._tickets
        self.waiting[ticket] = asked, done
        outcome = Outcome(self._replay)
        try:
            decide(self.shard, ticket, outcome, self._clock.now_ms())
        except Refusal as refusal:
            assert [*outcome.records, *outcome.replies, *outcome.timers, *outcome.orders] == [], "half decided"
            outcome.reply(ticket, refusal)
        self._apply(outcome)

    def complete(self, order: WriteMarkers) -> None:
        """All markers stand; nobody hears it while the shard is loading."""
        if not self.is_loading:
            self._run(lambda outcome, now_ms: self.shard.completed(order, outcome, now_ms))

    def advance(self, ms: int) -> None:
        """Let time pass, and timers run."""
        end_ms = self._clock.now_ms() + ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= end_ms]:
            at_ms, key = min(due)
            self._clock.advance(max(at_ms - self._clock.now_ms(), 0))
            del self.timers[key]
            self._counts[f"timer: {key[1]}"] += 1
            found = self.shard.transactions.get(key[2]) if key[1] == TIMEOUT else None
            if found is not None and found.status is TransactionStatus.ONGOING:
                self.timeouts[self._next_position] = found.value.producer_epoch
            self._run(partial(self.shard.on_timer, key))
        self._clock.advance(end_ms - self._clock.now_ms())

    def give(self, transactional_id: str, value: TransactionLogValue) -> None:
        """A record as if it had been written before."""
        self._run(lambda outcome, now_ms: outcome.write(TransactionLogKey(transactional_id=transactional_id), value))
        self.sync(count=len(self.unsynced))

    # --- the disk ----------------------------------------------------------------------------------------------

    def sync(self, *, count: int) -> None:
        """The first of what waits for the disk survive from now on."""
        self.durable += self.unsynced[:count]
        del self.unsynced[:count]

    def release(self) -> None:
        """Send what may be sent: answers first, then orders."""
        end = self.synced_position
        while self.held and self.held[0][0] <= end:
            _, ticket, reply = self.held.popleft()
            _, done = self.waiting.pop(ticket)
            done(reply)
        while self.ordered and self.ordered[0][0] <= end:
            _, order = self.ordered.popleft()
            if self.shard.is_due(order):
                self._carry_out(order)
            else:
                self._counts["an order is not due any more"] += 1

    def crash(self) -> None:
        """This life ends; all that is left is a log that may have lost its tail."""
        kept = self._random.randint(0, len(self.unsynced))
        self._note_lost(self.unsynced[kept:])
        for batch in self.unsynced[kept:]:
            del self.changes[batch.position]
        self.decisions.clear()
        for position, changes in self.changes.items():
            self._note_decisions(position, changes)
        del self.unsynced[kept:]
        self.sync(count=kept)
        if self._random.random() < 0.3:
            self._compact()
        waiting = [done for _, done in self.waiting.values()]
        self.held.clear()
        self.ordered.clear()
        self.waiting.clear()
        self.timers.clear()
        self.shard = TransactionShard(self._settings)
        self._to_load = deque(self.durable)
        refusal = CoordinatorNotAvailable("it begins anew")
        for done in waiting:
            done(refusal)

    def load_piece(self) -> None:
        assert self._to_load is not None
        for _ in range(min(LOAD_PIECE, len(self._to_load))):
            for key, value in self._to_load.popleft().records:
                record = decode(key, value)
                assert record is not None
                self.shard.replay(record.key, record.value)
        if not self._to_load:
            self._to_load = None
            self._counts["a load comes to its end"] += 1
            self._run(self.shard.loaded)

    def _compact(self) -> None:
        """Only the last record of each key is left."""
        self._counts["the log is compacted"] += 1
        last = {key: position for position, records in self.durable for key, _ in records}
        compacted = []
        for position, records in self.durable:
            kept = tuple((key, value) for key, value in records if last[key] == position)
            if kept:
                compacted.append(Batch(position, kept))
        self.durable = compacted

    def _note_lost(self, lost: list[Batch]) -> None:
        for batch in lost:
            for change in self.changes[batch.position]:
                if change.value is not None and change.value.transaction_status in PREPARED:
                    self._counts["a decision is lost with the disk's tail"] += 1

    # --- decisions ---------------------------------------------------------------------------------------------

    def _run(self, decide: Callable[[Outcome, int], None]) -> None:
        outcome = Outcome(self._replay)
        decide(outcome, self._clock.now_ms())
        self._apply(outcome)

    def _replay(self, key: Message, value: Message | None) -> None:
        """A record that was just decided."""
        if isinstance(key, TransactionLogKey):
            assert value is None or isinstance(value, TransactionLogValue)
            self._note_change(key.transactional_id, value)
        self.shard.replay(key, value)

    def _note_change(self, transactional_id: str, value: TransactionLogValue | None) -> None:
        found = self.shard.transactions.get(transactional_id)
        self._counts[f"{_told(None if found is None else found.value)} -> {_told(value)}"] += 1
        if found is None or value is None:
            return
        if value.transaction_status in COMPLETE:
            self._completing(transactional_id, found.value)
        if value.producer_id != found.value.producer_id:
            self._counts["a producer goes on under another id"] += 1

    def _apply(self, outcome: Outcome) -> None:
        if outcome.records:
            is_group = any(isinstance(key, CommittedBatchesKey) for key, _ in outcome.records)
            self.changes[self._next_position] = [
                Change(key.transactional_id, value, is_group)
                for key, value in outcome.records
                if isinstance(key, TransactionLogKey) and (value is None or isinstance(value, TransactionLogValue))
            ]
            self._note_decisions(self._next_position, self.changes[self._next_position])
            self.unsynced.append(Batch(self._next_position, tuple(encode(record) for record in outcome.records)))
            self._next_position += 1
        for key, at_ms in outcome.timers.items():
            if at_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = at_ms
        for ticket, response in outcome.replies:
            assert ticket in self.waiting, "nobody waits for this"
            assert ticket not in {held for _, held, _ in self.held}, "two answers for one request"
            self.held.append((self._next_position, ticket, response))
        for order in outcome.orders:
            assert isinstance(order, WriteMarkers)
            self.ordered.append((self._next_position, order))

    def _note_decisions(self, position: int, changes: list[Change]) -> None:
        for change in changes:
            if change.value is not None and change.value.transaction_status in PREPARED:
                self.decisions[change.transactional_id] = position, change.is_group

    # --- looking back ------------------------------------------------------------------------------------------

    def unsynced_changes(self) -> list[Change]:
        return [change for batch in self.unsynced for change in self.changes[batch.position]]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way, but for the look at old ids."""
        is_idle = not (self.is_loading or self.unsynced or self.held or self.ordered or self.waiting)
        return is_idle and all(key[0] == TIMERS and key[1] == "expire" for key in self.timers)


def _told(value: TransactionLogValue | None) -> str:
    return "Nothing" if value is None else TransactionStatus(value.transaction_status).told
