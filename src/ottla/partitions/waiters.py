"""Who waits for a partition to move on: acknowledgements for durability, fetches for records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.errors import Refusal

Settled = Callable[[Refusal | None], None]
"""Called once: with None when what was waited for is true, with the reason when it never will be."""


class OffsetWaiters:
    """Callers that wait until an offset is reached, in any order of offsets."""

    __slots__ = ("_later", "_queue")

    def __init__(self) -> None:
        # Appends come in order, so almost everybody waits for an offset at or beyond the last one.
        self._queue: deque[tuple[int, Settled]] = deque()
        self._later: list[tuple[int, Settled]] = []

    def __len__(self) -> int:
        return len(self._queue) + len(self._later)

    def add(self, offset: int, settled: Settled) -> None:
        if self._queue and offset < self._queue[-1][0]:
            self._later.append((offset, settled))
        else:
            self._queue.append((offset, settled))

    def reached(self, offset: int) -> None:
        """Everything below `offset` is true now."""
        queue = self._queue
        while queue and queue[0][0] <= offset:
            queue.popleft()[1](None)
        if self._later:
            due = [waiter for waiter in self._later if waiter[0] <= offset]
            self._later = [waiter for waiter in self._later if waiter[0] > offset]
            for _, settled in due:
                settled(None)

    def fail(self, error: Refusal) -> None:
        """Nobody will get what they waited for."""
        waiting = [*self._queue, *self._later]
        self._queue.clear()
        self._later = []
        for _, settled in waiting:
            settled(error)


class Watcher(Protocol):
    """Somebody who wants to know when a partition's visible end moves, or the partition goes away."""

    def wake(self, place: int) -> None:
        """The partition that it calls by this number has moved."""
        ...


class Watchers(set[tuple[Watcher, int]]):
    """The watchers of one partition, each with its own number for it, and each until it leaves."""

    __slots__ = ()

    def wake(self) -> None:
        for watcher, place in tuple(self):
            watcher.wake(place)
