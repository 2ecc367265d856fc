"""When work is done, and on whose thread.

A broker has one owner's thread: all its state is changed there. On a server that is the event loop's
thread; in a program that embeds a broker it is whoever holds the lock. The parts in between see this
contract only, and a simulation runs them by hand.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

from ottla.clock import ManualClock

Work = Callable[[], None]


class Timer(Protocol):
    """Work that waits for its time."""

    def cancel(self) -> None:
        """Do not run it; fine when it has run already."""
        ...


class Scheduler(Protocol):
    """Where work is left for the owner's thread."""

    def call_soon(self, work: Work) -> None:
        """Run at the end of the pass that is under way; for the owner's thread."""
        ...

    def call_later(self, delay_ms: int, work: Work) -> Timer:
        """Run when so much time has passed; for the owner's thread."""
        ...

    def post(self, work: Work) -> None:
        """Run on the owner's thread, soon; for any other thread."""
        ...


class _ManualTimer:
    __slots__ = ("cancelled", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualScheduler:
    """Runs what is due when it is told to, in the order in which it came: the same every time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._ready: deque[Work] = deque()
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._order = count()

    def call_soon(self, work: Work) -> None:
        self._ready.append(work)

    post = call_soon

    def call_later(self, delay_ms: int, work: Work) -> _ManualTimer:
        timer = _ManualTimer(work)
        heapq.heappush(self._timers, (self._clock.now_ms() + delay_ms, next(self._order), timer))
        return timer

    def run(self) -> None:
        """Run all that is ready, and what that makes ready."""
        while True:
            while self._timers and self._timers[0][0] <= self._clock.now_ms():
                timer = heapq.heappop(self._timers)[2]
                if not timer.cancelled:
                    self._ready.append(timer.work)
            if not self._ready:
                return
            self._ready.popleft()()

    def advance(self, by_ms: int) -> None:
        """Let time pass, and run what falls due on the way, each at its own time."""
        end_ms = self._clock.now_ms() + by_ms
        self.run()
        while self._timers and self._timers[0][0] <= end_ms:
            self._clock.advance(self._timers[0][0] - self._clock.now_ms())
            self.run()
        self._clock.advance(end_ms - self._clock.now_ms())
        self.run()
