"""The run of a pipeline's queries: all are started and watched, what failed is started again, and all stop together.

One thread does it all, and asks Spark a few times a second. What it tells of goes to a link, which neither waits nor
fails, and to the caller's own function. What is decided for one query is in `supervision`; how queries, the session and
the link are made is in `runner`. Knows Spark by the few things that are asked of its queries.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol

from ottla.clock import Clock
from ottla.errors import OttlaError
from ottla.pipelines.claims import BEAT_MS
from ottla.pipelines.error_lines import line_that_matters
from ottla.pipelines.progress import Offsets, QueryProgress, RunProgress, State, moment
from ottla.pipelines.restarts import RESTARTS_MAX
from ottla.pipelines.supervision import Startable, Supervised, Totals

POLL_MS = 250
"""How often queries are looked at."""
REFRESH_MS = 2_000
"""How often Spark is asked for accounts that it did not send."""
TOLD_EACH_MS = 1_000
"""How often a query is told of at most, unless its state is another one."""
REST_MS = 1_500
"""How long a query that is held must be quiet. Its sources may wait for news for half a second before they notice."""
DRAINED_MS = 1_000
STOP_TIMEOUT_MS = 60_000
ACCOUNTS_MAX = 10_000
"""Far more than come between two looks."""

OnProgress = Callable[[QueryProgress], None]

_logger = logging.getLogger(__name__)


class SparkGone(OttlaError):
    """The Spark that runs the queries has ended, or cannot be reached."""


class Link(Protocol):
    """Where a run tells of itself and hears what is asked of it."""

    @property
    def is_asked_to_stop(self) -> bool: ...
    def tell(self, told: QueryProgress | RunProgress) -> None: ...


class Unlinked:
    """Nobody listens."""

    is_asked_to_stop = False

    def tell(self, told: QueryProgress | RunProgress) -> None:
        """Nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    state: Literal["stopped", "failed"]
    error: str | None
    totals: Mapping[str, Totals]
    """By query."""
    unfinished: tuple[str, ...] = ()
    """Queries that were stopped in the middle of a batch, which the next run does again."""


class Accounts:
    """What Spark sends of its queries' batches, from whichever thread; waits here until it is looked at."""

    def __init__(self) -> None:
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=ACCOUNTS_MAX)

    def put(self, told: Mapping[str, Any]) -> None:
        self._waiting.append(told)

    def all(self) -> list[Mapping[str, Any]]:
        found = []
        while self._waiting:
            found.append(self._waiting.popleft())
        return found


class Runner:
    """One run of a pipeline."""

    def __init__(
        self,
        mine: RunProgress,
        queries: Sequence[Startable],
        *,
        clock: Clock,
        hold_file: Path,
        link: Link | None = None,
        accounts: Accounts | None = None,
        wait: Callable[[int], None] | None = None,
        ends_now: Callable[[Sequence[str]], Offsets] | None = None,
        on_progress: OnProgress | None = None,
        restarts_max: int = RESTARTS_MAX,
        once: bool = False,
        stop_timeout_ms: int = STOP_TIMEOUT_MS,
    ) -> None:
        """`wait` lets so many ms pass, or fewer; `ends_now` asks where topics end."""
        self._mine = replace(mine, queries=tuple(each.name for each in queries))
        self._clock = clock
        self._hold_file = hold_file
        self._link: Link = link or Unlinked()
        self._accounts = accounts or Accounts()
        # Not an Event: a signal that comes while its lock is held would wait for itself.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._wait = wait or self._wait_to_be_woken
        self._ends_now = ends_now
        self._on_progress = on_progress
        self._stop_timeout_ms = stop_timeout_ms
        self._queries = {
            each.name: Supervised(
                each, pipeline=mine.pipeline, run=mine.run, restarts_max=restarts_max, ends_by_itself=once
            )
            for each in queries
        }
        self.has_ended = threading.Event()
        self._asked = False
        self._asked_at_once = False
        self._beat_ms: int | None = None
        self._refreshed_ms = 0
        self._told_ms: dict[str, int] = {}
        self._to_tell: set[str] = set()

    # --- from any thread -----------------------------------------------------------------------------

    def stop(self, *, at_once: bool = False) -> None:
        """Let the run end where its batches end, or at once. May be called from any thread and in signal handlers."""
        self._asked = True
        self._asked_at_once = self._asked_at_once or at_once
        self._wake.put(None)

    def drained(self) -> bool:
        """Whether every query has read its topics to the end that they have now, and rests."""
        now_ms = self._clock.now_ms()
        queries = list(self._queries.values())
        if not all(query.is_at_rest(now_ms, for_ms=DRAINED_MS) for query in queries):
            return False
        read = [query.ends for query in queries]
        if any(ends is None for ends in read) or any(query.state == "restarting" for query in queries):
            return False
        topics = sorted({topic for ends in read for topic in ends or ()})
        try:
            there = self._ends_now(topics) if self._ends_now is not None and topics else {}
        except OttlaError:
            # A broker that is away does not say what there is; nobody can be sure of having read it.
            return False
        return all(_is_read(ends or {}, there) for ends in read)

    def progress(self) -> dict[str, QueryProgress]:
        """How each query stands."""
        now_ms = self._clock.now_ms()
        return {name: query.progress(now_ms) for name, query in self._queries.items()}

    # --- the run -------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Start all queries and stay until they have ended. What Spark says against a query at once is raised."""
        state: State = "failed"
        error: str | None = "the run was broken off"
        unfinished: tuple[str, ...] = ()
        try:
            self._go_on()
            unfinished = self._come_to_rest()
            failed = [query for query in self._queries.values() if query.state == "failed"]
            state = "failed" if failed else "stopped"
            error = f"{failed[0].name}: {failed[0].error}" if failed else None
        except Exception as e:
            error = line_that_matters(e)
            if type(e).__module__.startswith("py4j"):
                raise SparkGone(f"Spark does not answer any more: {error}") from e
            raise
        finally:
            self._end_all()
            self._beat(state, error)
            self.has_ended.set()
        return Outcome(
            state="failed" if state == "failed" else "stopped",
            error=error,
            totals={name: query.totals for name, query in self._queries.items()},
            unfinished=unfinished,
        )

    def _go_on(self) -> None:
        """Until somebody asks for the end, a query is given up, or none is left."""
        while not self._is_to_end():
            self._begin_next()
            self._look(may_restart=True)
            self._beat("running")
            if self._is_to_end():
                return
            self._wait(POLL_MS)

    def _begin_next(self) -> None:
        """Start queries one after the other.

        Each takes a core for seconds, and Spark gives those in Python ten seconds to get going.
        """
        while not self._is_settling():
            query = next((each for each in self._queries.values() if each.state == "starting"), None)
            if query is None:
                return
            query.begin(self._clock.now_ms())
            self._changed(query)

    def _is_settling(self) -> bool:
        now_ms = self._clock.now_ms()
        return any(query.is_settling(now_ms) for query in self._queries.values())

    def _is_to_end(self) -> bool:
        queries = self._queries.values()
        return (
            self._asked
            or self._link.is_asked_to_stop
            or any(query.state == "failed" for query in queries)
            or all(query.has_ended for query in queries)
        )

    def _come_to_rest(self) -> tuple[str, ...]:
        """Hold the sources and wait until no query works on a batch any more; names those that still do."""
        if not self._asked_at_once and not all(query.has_ended for query in self._queries.values()):
            self._hold_file.touch()
        until_ms = self._clock.now_ms() + self._stop_timeout_ms
        while True:
            self._look(may_restart=False)
            busy = tuple(name for name, query in self._queries.items() if not self._rests(query))
            if not busy or self._asked_at_once or self._clock.now_ms() >= until_ms:
                return busy
            self._beat("stopping")
            self._wait(POLL_MS)

    def _rests(self, query: Supervised) -> bool:
        return query.is_at_rest(self._clock.now_ms(), for_ms=REST_MS)

    def _end_all(self) -> None:
        for query in self._queries.values():
            before = query.state
            try:
                query.end()
            except Exception as error:
                # The others are to be stopped all the same.
                _logger.warning("%s could not be stopped: %s", query.name, error)
            if query.state != before or query.name in self._to_tell:
                self._changed(query)
        self._take_accounts()

    # --- looking and telling -------------------------------------------------------------------------

    def _look(self, *, may_restart: bool) -> None:
        self._take_accounts()
        now_ms = self._clock.now_ms()
        is_due = now_ms - self._refreshed_ms >= REFRESH_MS
        for query in self._queries.values():
            if is_due and query.state == "running" and query.refresh():
                self._news(query)
            if query.look(now_ms, may_restart=may_restart, may_start_now=not self._is_settling()):
                self._changed(query)
        if is_due:
            self._refreshed_ms = now_ms
        for name in sorted(self._to_tell):
            self._tell_in_time(self._queries[name], now_ms)

    def _take_accounts(self) -> None:
        for told in self._accounts.all():
            query = self._queries.get(str(told.get("name")))
            if query is not None and query.take(told):
                self._news(query)

    def _news(self, query: Supervised) -> None:
        now_ms = self._clock.now_ms()
        if self._on_progress is not None:
            self._on_progress(query.progress(now_ms))
        self._tell_in_time(query, now_ms)

    def _changed(self, query: Supervised) -> None:
        """Another state is told at once."""
        now_ms = self._clock.now_ms()
        told = query.progress(now_ms)
        if query.state in ("restarting", "failed"):
            _logger.warning("%s %s: %s", query.name, query.state, query.error)
        if self._on_progress is not None:
            self._on_progress(told)
        self._tell(told, now_ms)

    def _tell_in_time(self, query: Supervised, now_ms: int) -> None:
        if now_ms - self._told_ms.get(query.name, 0) >= TOLD_EACH_MS:
            self._tell(query.progress(now_ms), now_ms)
        else:
            self._to_tell.add(query.name)

    def _tell(self, told: QueryProgress, now_ms: int) -> None:
        self._told_ms[told.query] = now_ms
        self._to_tell.discard(told.query)
        self._link.tell(told)

    def _beat(self, state: State, error: str | None = None) -> None:
        """Tell that the run is there, now and then and whenever its state is another one."""
        now_ms = self._clock.now_ms()
        is_same = state == self._mine.state and self._beat_ms is not None
        if is_same and self._beat_ms is not None and now_ms - self._beat_ms < BEAT_MS:
            return
        self._beat_ms = now_ms
        self._mine = replace(self._mine, state=state, at=moment(now_ms), error=error)
        self._link.tell(self._mine)

    def _wait_to_be_woken(self, delay_ms: int) -> None:
        with suppress(Empty):
            self._wake.get(timeout=delay_ms / 1_000)


def _is_read(read: Offsets, there: Offsets) -> bool:
    return all(
        read[topic].get(partition, 0) >= end for topic in read for partition, end in there.get(topic, {}).items()
    )
