"""Keeps open transactions alive while tasks of the same batch are still at work.

A broker ends a transaction whose time is over, and the time of a slow batch is nobody's fault. So every process that
has a task at work has a thread that lets the time of all slots of the query begin anew: of its own, and of those whose
tasks are done and may have been in processes that are gone. When no task is at work nobody does so: the driver commits
within moments then, or never, and what nobody commits must not hold back readers for longer than its own time. Nor does
anybody do so for a transaction that has been open for `LIVES_MAX` times its time.

A task is at work from its start, also while it waits for its first row: what others have written waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from ottla.client.transaction_admin import TransactionDescription
from ottla.client.transport import MonotonicClock, run_now
from ottla.client.values import OpenTransaction
from ottla.clock import Clock, SystemClock
from ottla.errors import OttlaError
from ottla.spark import pool
from ottla.spark.exactly_once import ONGOING, BatchKey, Queries, queries
from ottla.spark.kafka_options import Connection

LIVES_MAX = 60
"""How many times its own time a transaction is kept open at most: an hour, where that is a minute."""
LOOKS_PER_LIFE = 4
"""How often within that time somebody looks, so that one look may fail."""
IDLE_LOOKS_MAX = 2
"""Looks at which no task was at work, after which it is taken that none will be: between two tasks is none either."""

_logger = logging.getLogger(__name__)


class Slots(Protocol):
    """Whoever knows the slots of queries."""

    def open_slots(self, query_id: str) -> list[str]:
        """The slots of a query in which a transaction is open."""
        ...

    def describe(self, slot: str) -> TransactionDescription | None: ...

    def renew(self, query_id: str, transaction: OpenTransaction) -> None: ...


class BrokerSlots:
    """The slots as the broker has them."""

    def __init__(self, asked: Queries) -> None:
        self._asked = asked

    def open_slots(self, query_id: str) -> list[str]:
        if not run_now(self._asked.serves_group_commits()):
            # Not one of ours, so that there is none. A task that waits for its first row has not asked yet.
            return []
        return run_now(self._asked.open_slots(query_id))

    def describe(self, slot: str) -> TransactionDescription | None:
        return run_now(self._asked.describe_transaction(slot))

    def renew(self, query_id: str, transaction: OpenTransaction) -> None:
        run_now(self._asked.keep_transactions(query_id, [transaction]))


@contextmanager
def broker_slots(connection: Connection) -> Iterator[Slots]:
    """The slots as the broker has them, over connections of our own."""
    with pool.borrowed(connection) as link:
        yield BrokerSlots(queries(link))


_Name = tuple[Connection, str]
"""A query, and the brokers that it writes to."""


@dataclass(slots=True)
class _Watched:
    """What one process has to do with one batch of a query."""

    key: BatchKey
    timeout_ms: int
    since_ms: int
    look_at_ms: int
    running: int = 0
    has_begun_task: bool = False
    """Whether a task has begun since the last look, in a batch that goes on for long: many short ones are work too."""
    idle_looks: int = 0
    is_in_trouble: bool = False
    """Whether the last look failed."""

    @property
    def pause_ms(self) -> int:
        return max(1, self.timeout_ms // LOOKS_PER_LIFE)


class Keeper:
    """The one of a process."""

    def __init__(
        self,
        *,
        slots: Callable[[Connection], AbstractContextManager[Slots]] = broker_slots,
        clock: Clock | None = None,
        ticks: Clock | None = None,
    ) -> None:
        self._slots = slots
        self._clock = clock or SystemClock()
        self._ticks = ticks or MonotonicClock()
        self._watched: dict[_Name, _Watched] = {}
        self._changed = threading.Condition()
        self._threads: dict[Connection, threading.Thread] = {}
        """One for each cluster, so that no query waits for another one's broker, however many there are."""

    @contextmanager
    def at_work(self, connection: Connection, key: BatchKey, *, timeout_ms: int) -> Iterator[None]:
        """A task of this batch is at work as long as the block lasts."""
        name = (connection, key.query_id)
        with self._changed:
            now_ms = self._ticks.now_ms()
            watched = self._watched.get(name)
            if watched is None or watched.key != key:
                # The batch before has been decided about, or this one would not have begun.
                watched = _Watched(key, timeout_ms, since_ms=now_ms, look_at_ms=now_ms)
                watched.look_at_ms += watched.pause_ms
                self._watched[name] = watched
                # Whoever looks may have meant to sleep longer.
                self._changed.notify_all()
            watched.running += 1
            watched.has_begun_task |= now_ms - watched.since_ms >= watched.pause_ms
        try:
            yield
        finally:
            with self._changed:
                watched.running -= 1

    def has_task(self, connection: Connection, key: BatchKey) -> bool:
        """Whether a task of this batch is at work here."""
        with self._changed:
            watched = self._watched.get((connection, key.query_id))
            return watched is not None and watched.key == key and watched.running > 0

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to keep."""
        return not self._watched

    # --- looking -------------------------------------------------------------------------------------

    def start(self, connection: Connection) -> None:
        """See to it that somebody looks now and then, as long as there is something of this cluster to keep."""
        with self._changed:
            present = self._threads.get(connection)
            # One that was inherited in a fork does not run here.
            if present is None or not present.is_alive():
                thread = threading.Thread(target=self._run, args=(connection,), name="ottla-keeper", daemon=True)
                self._threads[connection] = thread
                thread.start()

    def _run(self, connection: Connection) -> None:
        while True:
            with self._changed:
                mine = {name: watched for name, watched in self._watched.items() if name[0] == connection}
                if not mine:
                    # Whoever comes next starts another one.
                    del self._threads[connection]
                    return
                now_ms = self._ticks.now_ms()
                due = [name for name, watched in mine.items() if watched.look_at_ms <= now_ms]
                if not due:
                    self._changed.wait((min(watched.look_at_ms for watched in mine.values()) - now_ms) / 1000)
            for name in due:
                self.look(name)

    def look(self, name: _Name) -> None:
        """Let the time of what is open begin anew, and forget a query that has no task at work any more."""
        with self._changed:
            watched = self._watched.get(name)
            if watched is None:
                return
            is_at_work = watched.running > 0 or watched.has_begun_task
            watched.has_begun_task = False
            watched.look_at_ms = self._ticks.now_ms() + watched.pause_ms
            watched.idle_looks = 0 if is_at_work else watched.idle_looks + 1
            if watched.idle_looks >= IDLE_LOOKS_MAX:
                del self._watched[name]
            if not is_at_work or self._ticks.now_ms() - watched.since_ms < watched.pause_ms:
                # As a rule a batch is over before anything has to be done about it.
                return
        try:
            with self._slots(name[0]) as slots:
                self._keep(slots, watched)
            watched.is_in_trouble = False
        except OttlaError as e:
            if not watched.is_in_trouble:
                _logger.warning("%s: its transactions cannot be kept open just now: %s", watched.key, e)
            watched.is_in_trouble = True

    def _keep(self, slots: Slots, watched: _Watched) -> None:
        for name in slots.open_slots(watched.key.query_id):
            found = slots.describe(name)
            if found is not None and found.state == ONGOING and self._may_go_on(found, watched.timeout_ms):
                self._renew(slots, watched, OpenTransaction(name, found.producer_id, found.producer_epoch))

    def _may_go_on(self, found: TransactionDescription, timeout_ms: int) -> bool:
        return found.started_ms is not None and self._clock.now_ms() - found.started_ms < LIVES_MAX * timeout_ms

    @staticmethod
    def _renew(slots: Slots, watched: _Watched, transaction: OpenTransaction) -> None:
        try:
            slots.renew(watched.key.query_id, transaction)
        except OttlaError as e:
            # It was ended since we looked, as a rule because another attempt has taken the slot.
            _logger.debug("%s: %s", transaction.transactional_id, e)


KEEPER = Keeper()
