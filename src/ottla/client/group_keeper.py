"""What goes on beside a group's reader: the member's heartbeats, and commits that nobody waits for.

One coroutine, in a thread or in a task (see `background`), with connections of its own, so that a long poll of the
reader holds up no heartbeat and a rebalance no fetch.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from ottla.client.background import Signal
from ottla.client.coordinator import Coordinator
from ottla.client.errors import ClientClosed
from ottla.client.group_commits import Waiting, commit_once, tell
from ottla.client.group_member import GroupMember

WAITING_MAX = 10_000
"""Commits that may wait at once; each replaces those before it, so that more would mean that nothing moves."""

_logger = logging.getLogger(__name__)


class Keeper:
    """Runs beside one reader until it is told to stop."""

    def __init__(self, coordinator: Coordinator, *, wake: Signal, idle: Signal) -> None:
        self._coordinator = coordinator
        self._cluster = coordinator.cluster
        self.member: GroupMember | None = None
        self._wake = wake
        self._idle = idle
        """Set after each attempt at a commit."""
        self._lock = threading.Lock()
        self._commits: deque[Waiting] = deque()
        self._is_committing = False
        self._attempts = 0
        """How often the commits that wait have failed."""
        self._next_attempt_ms = 0
        self._closing = False
        self._is_over = False
        self.has_failed = False
        """Whether a commit that nobody waits for was not made; the reader takes note and makes another."""
        self.failure: BaseException | None = None

    # --- the reader's side ---------------------------------------------------------------------------

    def submit(self, waiting: Waiting) -> None:
        """Commit soon."""
        with self._lock:
            if waiting.promise is None:
                # The next of the same kind says the same and more.
                self._commits = deque(each for each in self._commits if each.promise is not None)
            self._commits.append(waiting)
        self._wake.set()
        if self._is_over:
            self._give_up()

    @property
    def has_room(self) -> bool:
        return len(self._commits) < WAITING_MAX

    async def take_over(self, deadline_ms: int) -> list[Waiting]:
        """All commits that wait, for the reader to make, once an attempt that is under way is over.

        A later commit must not be overtaken by an earlier one, or the position would go back.
        """
        while True:
            with self._lock:
                if not self._is_committing:
                    taken, self._commits = list(self._commits), deque()
                    return taken
            left_ms = deadline_ms - self._cluster.ticks.now_ms()
            if left_ms <= 0:
                return []
            await self._idle.wait(left_ms)

    def stop(self) -> None:
        """Leave the group, then end."""
        self._closing = True
        self._wake.set()

    # --- the work ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The coroutine. A bug in it is kept for the reader, who would wait for nothing otherwise."""
        try:
            await self._run()
        except ClientClosed:
            # Closed from outside while it waited for an answer.
            return
        except BaseException as e:
            self.failure = e
            raise
        finally:
            self._closing = True
            self._is_over = True
            self._give_up()
            await self._cluster.transport.close()

    def _give_up(self) -> None:
        """Nobody will make what waits."""
        with self._lock:
            taken, self._commits = self._commits, deque()
        closed = ClientClosed("the consumer's background work ended before this was committed")
        closed.__cause__ = self.failure
        tell(taken, closed)

    async def _run(self) -> None:
        while not self._closing:
            delay_ms = await self.turn()
            if delay_ms != 0:
                await self._wake.wait(delay_ms)
        self._next_attempt_ms = 0
        await self._commit()
        if self.member is not None:
            await self.member.leave()

    async def turn(self) -> int | None:
        """One attempt at what is to be committed, and one step of the member, whose heartbeats cannot wait for more.

        Returns in how many milliseconds there will be more to do; None: when woken.
        """
        await self._commit()
        step_ms = None if self.member is None else await self.member.step()
        if not self._commits:
            return step_ms
        attempt_ms = max(0, self._next_attempt_ms - self._cluster.ticks.now_ms())
        return attempt_ms if step_ms is None else min(attempt_ms, step_ms)

    async def _commit(self) -> None:
        with self._lock:
            if not self._commits or self._cluster.ticks.now_ms() < self._next_attempt_ms:
                return
            taken, self._commits = list(self._commits), deque()
            self._is_committing = True
        again: list[Waiting] = []
        try:
            again, problem = await commit_once(self._coordinator, taken, self.member)
            if problem is not None and any(each.promise is None and each not in again for each in taken):
                self.has_failed = True
                _logger.warning("group %s: positions were not committed: %s", self._coordinator.group, problem)
        finally:
            with self._lock:
                self._is_committing = False
                self._try_again(again)
            self._idle.set()

    def _try_again(self, again: list[Waiting]) -> None:
        """With the lock held."""
        self._attempts = self._attempts + 1 if again else 0
        self._next_attempt_ms = 0
        if again:
            self._next_attempt_ms = self._cluster.ticks.now_ms() + self._cluster.settings.backoff_ms(self._attempts)
        # What came meanwhile is later, and holds where both name a partition.
        self._commits.extendleft(reversed(again))
