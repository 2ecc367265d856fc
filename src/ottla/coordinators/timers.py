"""The timers of one shard: many deadlines that are mostly pushed further before they come.

A heartbeat moves its member's deadline on, thousands of times for each time that one is reached. So a later time
for the same key is a store in a dict; the heap is looked at when its old time has come, and the entry goes back
with the new one. What a timer means is the state machine's business.

Time may leap: the machine slept, the process was stopped, somebody set the clock. Nobody could be heard meanwhile, so
what fell due in such a gap is told a little later, when whoever is alive has had time to say so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from ottla.clock import Clock
from ottla.coordinators.outcome import TimerKey
from ottla.coordinators.turns import TURN_MS
from ottla.scheduler import Scheduler, Timer

LEAP_MS = 1_000
"""By how much a timer must be late for time to have leapt."""
GRACE_MS = 3_000
"""How much later what fell due in a leap is told: as often as clients beat by default."""


class Timers:
    """Deadlines by key; `due` is called with each key whose time has come, after it has been forgotten."""

    __slots__ = (
        "_clock",
        "_due",
        "_grace_end_ms",
        "_heap",
        "_is_firing",
        "_queued",
        "_scheduler",
        "_timer",
        "_timer_at_ms",
        "_wanted",
    )

    def __init__(self, scheduler: Scheduler, clock: Clock, due: Callable[[TimerKey], None]) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._due = due
        self._wanted: dict[TimerKey, int] = {}
        """When each key is due."""
        self._queued: dict[TimerKey, int] = {}
        """When the heap looks at each key: never later than it is due."""
        self._heap: list[tuple[int, TimerKey]] = []
        self._timer: Timer | None = None
        self._timer_at_ms = 0
        self._is_firing = False
        self._grace_end_ms = 0
        """Nothing is told before."""

    def __len__(self) -> int:
        return len(self._wanted)

    def set(self, key: TimerKey, at_ms: int) -> None:
        """Have this key told at that time, instead of any other."""
        self._wanted[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queue(key, at_ms)

    def cancel(self, key: TimerKey) -> None:
        """Forget a key; its place in the heap is given up when its time comes."""
        self._wanted.pop(key, None)

    def clear(self) -> None:
        """Forget all of them."""
        self._wanted.clear()
        self._queued.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _queue(self, key: TimerKey, at_ms: int) -> None:
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))
        if not self._is_firing:
            self._arm()

    def _arm(self) -> None:
        """One timer of the scheduler's, for the head of the heap."""
        if not self._heap:
            return
        at_ms = max(self._heap[0][0], self._grace_end_ms)
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self._scheduler.call_later(max(at_ms - self._clock.now_ms(), 1), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        if now_ms - self._timer_at_ms > LEAP_MS:
            self._grace_end_ms = now_ms + GRACE_MS
            self._arm()
            return
        self._is_firing = True
        try:
            while self._heap and self._heap[0][0] <= now_ms:
                if self._clock.now_ms() - now_ms >= TURN_MS:
                    # A machine with hundreds of members has died, say. The rest comes in the next pass, and being
                    # late by that is no leap.
                    self._grace_end_ms = self._clock.now_ms()
                    break
                at_ms, key = heapq.heappop(self._heap)
                if self._queued.get(key) != at_ms:
                    # It was set to an earlier time meanwhile, and that place in the heap counted.
                    continue
                del self._queued[key]
                wanted_ms = self._wanted.get(key)
                if wanted_ms is None:
                    continue
                if wanted_ms > now_ms:
                    self._queue(key, wanted_ms)
                    continue
                del self._wanted[key]
                self._due(key)
        finally:
            self._is_firing = False
            self._arm()
