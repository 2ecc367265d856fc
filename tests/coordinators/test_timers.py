"""The timers of a shard: each key at its time, once, and cheap to push further."""

from __future__ import annotations

from ottla.clock import ManualClock
from ottla.coordinators.outcome import TimerKey
from ottla.coordinators.timers import GRACE_MS, Timers
from ottla.scheduler import ManualScheduler

START_MS = 1_000_000


class Bench:
    """Timers, and what they told."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.scheduler = ManualScheduler(self.clock)
        self.told: list[tuple[int, str]] = []
        self.timers = Timers(self.scheduler, self.clock, self._due)
        self.again: dict[TimerKey, int] = {}

    def _due(self, key: TimerKey) -> None:
        self.told.append((self.clock.now_ms() - START_MS, key[0]))
        if key in self.again:
            self.timers.set(key, self.clock.now_ms() + self.again.pop(key))

    def set(self, key: str, after_ms: int) -> None:
        self.timers.set((key,), START_MS + after_ms)


def test_each_key_is_told_at_its_time() -> None:
    bench = Bench()
    bench.set("b", 20)
    bench.set("a", 10)
    bench.scheduler.advance(100)
    assert bench.told == [(10, "a"), (20, "b")]
    assert len(bench.timers) == 0


def test_a_time_that_is_pushed_further_counts_from_there() -> None:
    bench = Bench()
    for beat in range(10):
        bench.set("session", 100 + beat * 10)
        bench.scheduler.advance(10)
    bench.scheduler.advance(1_000)
    assert bench.told == [(190, "session")]


def test_a_time_that_is_drawn_nearer_counts_from_there() -> None:
    bench = Bench()
    bench.set("a", 100)
    bench.set("a", 10)
    bench.scheduler.advance(1_000)
    assert bench.told == [(10, "a")]


def test_a_time_that_was_drawn_nearer_and_pushed_further_again_is_told_once() -> None:
    bench = Bench()
    bench.set("a", 100)
    bench.set("a", 10)
    bench.set("a", 100)
    bench.scheduler.advance(1_000)
    assert bench.told == [(100, "a")]


def test_a_cancelled_key_is_not_told() -> None:
    bench = Bench()
    bench.set("a", 10)
    bench.timers.cancel(("a",))
    bench.scheduler.advance(1_000)
    assert bench.told == []


def test_a_cancelled_key_can_be_set_again() -> None:
    bench = Bench()
    bench.set("a", 10)
    bench.timers.cancel(("a",))
    bench.set("a", 30)
    bench.scheduler.advance(1_000)
    assert bench.told == [(30, "a")]


def test_a_key_can_set_itself_again() -> None:
    bench = Bench()
    bench.again[("a",)] = 10
    bench.set("a", 10)
    bench.scheduler.advance(1_000)
    assert bench.told == [(10, "a"), (20, "a")]


def test_a_time_that_has_passed_is_told_soon() -> None:
    bench = Bench()
    bench.set("a", -50)
    bench.scheduler.advance(1)
    assert bench.told == [(1, "a")]


def test_nothing_is_told_once_all_are_forgotten() -> None:
    bench = Bench()
    bench.set("a", 10)
    bench.timers.clear()
    bench.scheduler.advance(1_000)
    assert bench.told == []


def test_what_falls_due_while_time_leaps_can_still_be_pushed_further() -> None:
    bench = Bench()
    bench.set("alive", 100)
    bench.set("gone", 100)
    bench.clock.advance(60_000)
    bench.scheduler.run()
    assert bench.told == []
    bench.set("alive", 200_000)
    bench.scheduler.advance(GRACE_MS)
    assert bench.told == [(60_000 + GRACE_MS, "gone")]


def test_after_a_leap_time_goes_on_as_before() -> None:
    bench = Bench()
    bench.set("a", 100)
    bench.clock.advance(60_000)
    bench.scheduler.run()
    bench.set("soon", 60_010)
    bench.scheduler.advance(GRACE_MS)
    bench.set("later", 60_000 + GRACE_MS + 50)
    bench.scheduler.advance(50)
    assert bench.told == [
        (60_000 + GRACE_MS, "a"),
        (60_000 + GRACE_MS, "soon"),
        (60_000 + GRACE_MS + 50, "later"),
    ]
