"""One shard of a coordinator at run time: a state machine, the partition that holds its records, and who waits.

A decision's records are appended as one batch. Its replies, and every reply after them, wait until what the shard
has appended so far survives a power loss: whoever is answered may rely on it. A batch that cannot be appended, or
that never becomes durable, ends this life of the shard: all who wait are told that there is no coordinator, and
the state is read back from the log.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from typing import Generic, TypeVar

from ottla.clock import Clock
from ottla.coordinators.loading import Decode, Loading
from ottla.coordinators.outcome import CoordinatorRecord, Outcome, Ticket, TimerKey
from ottla.coordinators.state_machine import StateMachine
from ottla.coordinators.timers import Timers
from ottla.coordinators.turns import Turns
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ProtocolError,
    Refusal,
    StorageError,
)
from ottla.partitions.partition import Partition
from ottla.protocol.schema import Message
from ottla.records.batch import peek
from ottla.records.builder import build_batch
from ottla.scheduler import Scheduler

RETRY_MS_MIN = 100
RETRY_MS_MAX = 10_000
"""How long a shard that failed waits before it is read back; twice as long after each failure, up to this."""

M = TypeVar("M", bound=StateMachine)
Done = Callable[[Message | Refusal], None]
"""Called once, on the owner's thread, with the reply or the reason why there is none."""
Decision = Callable[[M, Ticket, Outcome, int], None]
"""Looks at a machine and fills an outcome, or raises a Refusal and leaves it empty."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recipe(Generic[M]):
    """How the shards of one coordinator are made."""

    partition: Callable[[int], Partition]
    """The partition of a shard's records; raises a Refusal while it cannot be had."""
    machine: Callable[[int], M]
    """A shard's state machine, with nothing in it."""
    encode: Callable[[CoordinatorRecord], tuple[bytes, bytes | None]]
    decode: Decode
    carry_out: Callable[[object], None] | None = None
    """Does what a machine has ordered; called once all that the shard had appended by then is durable."""


class _State(Enum):
    WAITING = "waiting"
    """Nothing has been read yet."""
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    STOPPED = "stopped"


class ShardRuntime(Generic[M]):
    """One shard, over all its lives."""

    def __init__(
        self,
        index: int,
        recipe: Recipe[M],
        *,
        scheduler: Scheduler,
        clock: Clock,
        turns: Turns,
        ask_load: Callable[[ShardRuntime[M]], None],
    ) -> None:
        self.index = index
        self._recipe = recipe
        self._scheduler = scheduler
        self._clock = clock
        self._turns = turns
        self._ask_load = ask_load
        self._state = _State.WAITING
        self._life = 0
        """Counts the lives: what was asked for in an earlier one is no longer waited for."""
        self._tickets = count(1)
        self._parked: dict[Ticket, Done] = {}
        """Who waits for a decision. Each has a client behind it, which bounds them."""
        self._decided: deque[tuple[int, Done, Message | Refusal]] = deque()
        """Replies that wait for the disk, in order: each with the end of the log that must be durable."""
        self._ordered: deque[tuple[int, object]] = deque()
        """Orders that wait for the disk, in the same way."""
        self._awaited_offset = -1
        self._timers = Timers(scheduler, clock, self._on_timer)
        self._retry_ms = RETRY_MS_MIN
        self._machine: M | None = None
        self._partition: Partition | None = None
        self._loading: Loading | None = None

    # --- requests --------------------------------------------------------------------------------------

    @property
    def machine(self) -> M | None:
        """The state, once it has been read back."""
        return self._machine if self._state is _State.ACTIVE else None

    def require(self) -> M:
        """The state, to look at; raises a Refusal while it is not there."""
        if self._state is not _State.ACTIVE:
            refusal = self._refusal()
            if refusal is not None:
                raise refusal
        assert self._machine is not None
        return self._machine

    def submit(self, decide: Decision[M], done: Done) -> Ticket:
        """Decide a request; `done` is told when its reply may be sent, which may be now."""
        ticket = next(self._tickets)
        refusal = self._refusal()
        if refusal is not None:
            done(refusal)
            return ticket
        self._parked[ticket] = done
        self._turns.take(self.index, partial(self._decide, self._life, decide, ticket))
        return ticket

    def _decide(self, life: int, decide: Decision[M], ticket: Ticket) -> None:
        """Its turn has come. Also for one who has gone away meanwhile: a member says that it leaves, and hangs up."""
        if life == self._life:
            self._run(lambda machine, outcome, now_ms: decide(machine, ticket, outcome, now_ms), ticket)

    def tell(self, decide: Callable[[M, Outcome, int], None]) -> None:
        """Let the machine see to something that nobody waits for; nothing if it is not there."""
        if self._state is _State.ACTIVE:
            self._run(decide, None)

    def abandon(self, ticket: Ticket) -> None:
        """Whoever holds this ticket waits no more."""
        self._parked.pop(ticket, None)

    def hurry(self, ticket: Ticket) -> None:
        """Refuse whoever holds this ticket, unless the decision is made and only the disk is waited for."""
        done = self._parked.pop(ticket, None)
        if done is not None:
            done(CoordinatorNotAvailable("the broker stops"))

    def stop(self) -> None:
        """No more timers and no more loading; requests are still decided."""
        if self._state is not _State.ACTIVE:
            self._state = _State.STOPPED
        self._timers.clear()
        self._timers = Timers(_NEVER, self._clock, self._on_timer)

    def drop(self, reason: str) -> None:
        """The partition is gone for good: refuse all who wait, and do not come back."""
        self._end_life(reason)
        self._state = _State.STOPPED

    def _refusal(self) -> Refusal | None:
        """Why nothing can be decided now; None if it can."""
        if self._state is _State.WAITING:
            # A small state is there at once, and whoever asks never notices.
            self.load_piece()
        if self.machine is not None:
            return None
        if self._state is _State.LOADING:
            return CoordinatorLoadInProgress("the coordinator is reading its state back; try again")
        return CoordinatorNotAvailable("the coordinator is not available; try again")

    # --- deciding --------------------------------------------------------------------------------------

    def _run(self, decide: Callable[[M, Outcome, int], None], ticket: Ticket | None) -> None:
        assert self._machine is not None
        outcome = Outcome(self._machine.replay)
        now_ms = self._clock.now_ms()
        try:
            decide(self._machine, outcome, now_ms)
        except Refusal as refusal:
            if outcome.records or outcome.replies or ticket is None:
                self._fail(f"a decision was refused when it was half made: {refusal}")
                raise AssertionError("check first, then write") from refusal
            self._answer(ticket, refusal)
            self._release()
            return
        except Exception as bug:
            # Nobody knows what it has changed, so nothing of this life can be relied on.
            self._fail(f"a decision ended in {bug!r}")
            raise
        self._apply(outcome, now_ms)

    def _apply(self, outcome: Outcome, now_ms: int) -> None:
        if outcome.records and not self._append(outcome.records, now_ms):
            return
        for key, at_ms in outcome.timers.items():
            if at_ms is None:
                self._timers.cancel(key)
            else:
                self._timers.set(key, at_ms)
        for ticket, response in outcome.replies:
            self._answer(ticket, response)
        if outcome.orders:
            assert self._partition is not None
            end_offset = self._partition.log.end_offset
            self._ordered.extend((end_offset, order) for order in outcome.orders)
        self._release()

    def _append(self, records: list[CoordinatorRecord], now_ms: int) -> bool:
        """One batch for all records of a decision, so that a crash keeps all of them or none."""
        assert self._partition is not None
        try:
            encoded = [self._recipe.encode(record) for record in records]
            batch = build_batch([(key, value, now_ms, ()) for key, value in encoded])
            self._partition.append(batch, peek(batch))
        except (Refusal, ProtocolError) as error:
            self._fail(f"{len(records)} records cannot be written: {error}")
            return False
        return True

    def _answer(self, ticket: Ticket, reply: Message | Refusal) -> None:
        """Let a reply wait its turn; who has gone away meanwhile is not answered."""
        assert self._partition is not None
        done = self._parked.pop(ticket, None)
        if done is not None:
            self._decided.append((self._partition.log.end_offset, done, reply))

    def _release(self) -> None:
        """Send the replies that may be sent, and see to it that the others will be."""
        assert self._partition is not None
        decided = self._decided
        synced_offset = self._partition.log.synced_offset
        while decided and decided[0][0] <= synced_offset:
            _, done, reply = decided.popleft()
            done(reply)
        life, ordered = self._life, self._ordered
        while ordered and ordered[0][0] <= synced_offset:
            _, order = ordered.popleft()
            assert self._recipe.carry_out is not None, "a machine that orders has somebody to carry it out"
            self._recipe.carry_out(order)
        if life != self._life:
            # Whoever was told has brought this life to its end.
            return
        end_offset = max(waiting[-1][0] if waiting else -1 for waiting in (decided, ordered))
        if end_offset > max(self._awaited_offset, synced_offset):
            self._awaited_offset = end_offset
            self._partition.when_durable(end_offset, partial(self._durable, self._life))

    def _durable(self, life: int, error: Refusal | None) -> None:
        if life != self._life:
            return
        if error is None:
            # Only this shows that the trouble is over: on a full disk everything else works.
            self._retry_ms = RETRY_MS_MIN
            self._release()
        else:
            self._fail(f"what was written is not durable: {error}")

    def _on_timer(self, key: TimerKey) -> None:
        if self._state is _State.ACTIVE:
            self._run(lambda machine, outcome, now_ms: machine.on_timer(key, outcome, now_ms), None)

    # --- the lives of a shard --------------------------------------------------------------------------

    def load_piece(self) -> bool:
        """Read a piece of the state back; true when there is nothing left to do for now."""
        if self._state not in (_State.WAITING, _State.LOADING):
            return True
        try:
            if self._loading is None:
                self._begin_loading()
            assert self._loading is not None
            if not self._loading.step():
                return False
        except (Refusal, StorageError) as error:
            self._fail(f"its partition cannot be read: {error}")
            return True
        self._end_loading()
        return True

    def _begin_loading(self) -> None:
        partition = self._recipe.partition(self.index)
        partition.require_online()
        machine = self._recipe.machine(self.index)
        self._partition, self._machine = partition, machine
        self._loading = Loading(partition.log, self._recipe.decode, machine.replay)
        self._state = _State.LOADING

    def _end_loading(self) -> None:
        assert self._machine is not None
        assert self._loading is not None
        if self._loading.records:
            _logger.info("shard %d has read %d records back", self.index, self._loading.records)
        self._loading = None
        self._state = _State.ACTIVE
        self._awaited_offset = -1
        self._run(lambda machine, outcome, now_ms: machine.loaded(outcome, now_ms), None)

    def _fail(self, reason: str) -> None:
        if self._retry_ms == RETRY_MS_MIN:
            # Once for each trouble, not for each try.
            _logger.error("shard %d of a coordinator begins anew: %s", self.index, reason)
        self._end_life(reason)
        self._state = _State.FAILED
        self._scheduler.call_later(self._retry_ms, partial(self._retry, self._life))
        self._retry_ms = min(self._retry_ms * 2, RETRY_MS_MAX)

    def _retry(self, life: int) -> None:
        if life == self._life and self._state is _State.FAILED:
            self._state = _State.WAITING
            self._ask_load(self)

    def _end_life(self, reason: str) -> None:
        self._life += 1
        self._machine = self._partition = self._loading = None
        self._timers.clear()
        waiting = [*(done for _, done, _ in self._decided), *self._parked.values()]
        self._decided.clear()
        self._ordered.clear()
        self._parked.clear()
        refusal = CoordinatorNotAvailable(f"the coordinator begins anew, look for it again: {reason}")
        for done in waiting:
            done(refusal)


class _Never:
    """A scheduler for one who has stopped: what is left with it is not done."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Never."""

    post = call_soon

    def call_later(self, delay_ms: int, work: Callable[[], None]) -> _Never:
        return self

    def cancel(self) -> None:
        """There is nothing to cancel."""


_NEVER = _Never()
