"""What a coordinator does in one pass of the loop, and that the rest is done in the next ones, in order."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.clock import ManualClock
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.timers import LEAP_MS, Timers
from ottla.coordinators.turns import TURN_MS, Turns
from ottla.errors import CoordinatorNotAvailable
from ottla.scheduler import Timer, Work
from tests.coordinators.ledger_stage import Ledger, Replies, Stage

DECISION_MS = 2
IN_ONE_PASS = 3
"""The third begins within the time of a pass."""


class Passes:
    """A scheduler that runs one pass at a time, as a loop does: what comes up meanwhile waits for the next."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._soon: list[Work] = []
        self._later: list[tuple[int, Work]] = []

    def call_soon(self, work: Work) -> None:
        self._soon.append(work)

    post = call_soon

    def call_later(self, delay_ms: int, work: Work) -> Timer:
        entry = (self._clock.now_ms() + delay_ms, work)
        self._later.append(entry)
        return _Cancel(partial(self._later.remove, entry))

    def run_pass(self) -> None:
        due = [entry for entry in self._later if entry[0] <= self._clock.now_ms()]
        self._later = [entry for entry in self._later if entry not in due]
        soon, self._soon = self._soon, []
        for work in [*(work for _, work in due), *soon]:
            work()


class _Cancel:
    def __init__(self, cancel: Work) -> None:
        self.cancel = cancel


class Counter:
    """Decisions that take their time, by shard."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.passes = Passes(self.clock)
        self.turns = Turns(self.passes, self.clock)
        self.done: list[str] = []

    def ask(self, shard: int, what: str) -> None:
        self.turns.take(shard, partial(self._decide, what))

    def _decide(self, what: str) -> None:
        self.clock.advance(DECISION_MS)
        self.done.append(what)

    def next_pass(self) -> list[str]:
        """What was done in it."""
        before = len(self.done)
        self.passes.run_pass()
        return self.done[before:]


def test_what_fits_into_a_pass_is_done_at_once() -> None:
    counter = Counter()
    counter.ask(0, "a")
    counter.ask(0, "b")
    assert counter.done == ["a", "b"]


def test_what_does_not_fit_into_a_pass_is_done_in_the_next_ones_in_the_order_in_which_it_came() -> None:
    counter = Counter()
    for number in range(8):
        counter.ask(0, str(number))
    assert counter.done == ["0", "1", "2"]
    assert counter.next_pass() == ["3", "4", "5"]
    counter.ask(0, "8")
    assert counter.next_pass() == ["6", "7", "8"]
    assert counter.next_pass() == []


def test_shards_take_turns_so_that_one_request_does_not_wait_for_the_burst_of_others() -> None:
    counter = Counter()
    for number in range(100):
        counter.ask(0, str(number))
    counter.ask(1, "other")
    assert "other" in counter.next_pass()


def test_a_pass_is_not_endless_when_the_clock_is_set_back() -> None:
    class SetBack:
        now = 1_000_000

        def now_ms(self) -> int:
            self.now -= 1
            return self.now

    passes = Passes(ManualClock())
    turns = Turns(passes, SetBack())
    done: list[int] = []
    for number in range(3):
        turns.take(0, partial(done.append, number))
    assert done == [0]
    for _ in range(3):
        passes.run_pass()
    assert done == [0, 1, 2]


def test_whoever_waited_goes_on_after_a_decision_that_ended_in_a_bug() -> None:
    counter = Counter()
    for number in range(IN_ONE_PASS):
        counter.ask(0, str(number))

    def bug() -> None:
        raise AssertionError("wrong")

    counter.turns.take(0, bug)
    counter.ask(0, "next")
    with pytest.raises(AssertionError):
        counter.next_pass()
    assert counter.next_pass() == ["next"]


# --- in a shard -------------------------------------------------------------------------------------------


def _slowly(stage: Stage, name: str) -> Replies:
    """A request whose decision takes a whole pass."""

    def decide(ledger: Ledger, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        stage.clock.advance(TURN_MS)
        ledger.put(name, 1, ticket, outcome)

    replies = Replies()
    replies.ticket = stage.runtime.submit(name, decide, replies)
    return replies


def test_a_request_that_waits_for_its_turn_is_decided_though_its_client_hangs_up() -> None:
    stage = Stage()
    _slowly(stage, "first")
    leaves = stage.put("second", 2)
    assert "second" not in stage.ledger.amounts
    stage.runtime.abandon("second", leaves.ticket)
    stage.scheduler.run()
    assert stage.ledger.amounts == {"first": 1, "second": 2}
    assert leaves.all == []


def test_a_request_that_waits_for_its_turn_is_refused_with_all_others_when_its_shard_begins_anew() -> None:
    stage = Stage()
    _slowly(stage, "first")
    waits = stage.put("second", 2)
    stage.runtime.drop("the topic is gone")
    assert waits.refusal is CoordinatorNotAvailable
    stage.scheduler.run()
    assert len(waits.all) == 1


# --- timers -----------------------------------------------------------------------------------------------


def test_timers_that_fall_due_together_are_told_over_several_passes() -> None:
    clock = ManualClock()
    passes = Passes(clock)
    told: list[str] = []

    def due(key: tuple[str, ...]) -> None:
        clock.advance(DECISION_MS)
        told.append(key[0])

    timers = Timers(passes, clock, due)
    for number in range(8):
        timers.set((str(number),), clock.now_ms() + 100)
    clock.advance(100)
    passes.run_pass()
    assert told == ["0", "1", "2"]
    clock.advance(1)
    passes.run_pass()
    assert told == ["0", "1", "2", "3", "4", "5"]


def test_a_backlog_of_timers_is_no_leap_of_time() -> None:
    clock = ManualClock()
    passes = Passes(clock)
    told: list[str] = []

    def due(key: tuple[str, ...]) -> None:
        clock.advance(LEAP_MS // 3)
        told.append(key[0])

    timers = Timers(passes, clock, due)
    for number in range(9):
        timers.set((str(number),), clock.now_ms() + 100)
    clock.advance(100)
    for _ in range(9):
        passes.run_pass()
        clock.advance(1)
    assert len(told) == 9
