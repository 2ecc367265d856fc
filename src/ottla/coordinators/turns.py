"""Whose turn it is: a coordinator decides for so long in each pass of the loop, and goes on in the next one.

In a large group a decision may take a millisecond, and hundreds of members may speak in the same moment: all that
came at once would be decided in one pass, and whoever else the loop serves would wait for all of it. So what does
not fit into a pass waits for the next ones. Requests of one shard are decided in the order in which they came;
shards take turns, so that the burst of one does not make the others wait. What is decided is not known here.
"""

from __future__ import annotations

from collections import deque

from ottla.clock import Clock
from ottla.scheduler import Scheduler, Work

TURN_MS = 5
"""So much of one pass: short beside what clients wait for, long beside a decision."""


class Turns:
    """What waits for its turn, by shard. Each has a client behind it, which bounds them."""

    __slots__ = ("_began_ms", "_clock", "_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._waiting: dict[int, deque[Work]] = {}
        """Only shards for which something waits; whose turn is next comes first."""
        self._began_ms: int | None = None
        """When the first decision of this pass began; None as long as there was none."""

    def take(self, shard: int, work: Work) -> None:
        """Do this now, or when the shard's turn comes."""
        waiting = self._waiting.get(shard)
        if waiting is not None:
            waiting.append(work)
        elif self._has_time():
            work()
        else:
            self._waiting[shard] = deque((work,))

    def _has_time(self) -> bool:
        now_ms = self._clock.now_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
            self._scheduler.call_soon(self._next_pass)
            return True
        # A clock that was set back must not give one pass an hour.
        return 0 <= now_ms - self._began_ms < TURN_MS

    def _next_pass(self) -> None:
        self._began_ms = None
        while self._waiting and self._has_time():
            shard, waiting = next(iter(self._waiting.items()))
            del self._waiting[shard]
            work = waiting.popleft()
            if waiting:
                self._waiting[shard] = waiting
            work()
