"""Many waits with an end, at the price of a set operation each.

A produce request that waits for the disk hardly ever times out, and there may be tens of thousands a
second: a timer each would cost more than the request. So deadlines are kept in buckets of a quarter of a
second, and one timer goes from bucket to bucket. It counts its own steps: a wait is not ended, nor made longer,
by somebody who sets the system's clock.
"""

from __future__ import annotations

from typing import Protocol

from ottla.scheduler import Scheduler

BUCKET_MS = 250
TIMEOUT_MS_DEFAULT = 30_000
"""For requests that do not say how long they may wait."""


class Waiting(Protocol):
    """Something that must come to an end."""

    def time_out(self) -> None: ...


class Deadlines:
    """Waits by when they end at the latest; a wait ends up to a bucket later than it asked for."""

    __slots__ = ("_buckets", "_is_set", "_scheduler", "_step")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._buckets: dict[int, set[Waiting]] = {}
        self._step = 0
        self._is_set = False

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, waiting: Waiting, timeout_ms: int) -> int:
        """Have `waiting` told when its time is over; returns what `remove` needs."""
        # The step under way may be nearly over, so it does not count.
        bucket = self._step + 1 + -(-max(timeout_ms, 0) // BUCKET_MS)
        found = self._buckets.get(bucket)
        if found is None:
            found = self._buckets[bucket] = set()
            self._set_timer()
        found.add(waiting)
        return bucket

    def remove(self, waiting: Waiting, bucket: int) -> None:
        """It has come to its end by itself."""
        found = self._buckets.get(bucket)
        if found is not None:
            found.discard(waiting)

    def _set_timer(self) -> None:
        if not self._is_set and self._buckets:
            self._is_set = True
            self._scheduler.call_later(BUCKET_MS, self._look)

    def _look(self) -> None:
        self._is_set = False
        self._step += 1
        for waiting in self._buckets.pop(self._step, ()):
            waiting.time_out()
        self._set_timer()
