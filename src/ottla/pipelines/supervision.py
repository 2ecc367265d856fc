"""One query while it runs: what it has done, whether it is at rest, and what becomes of it when it fails.

Decides for one query at a time and is asked again and again; it waits for nothing. Knows Spark's queries by the few
things that it asks of them, so that others can stand in for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ottla.pipelines.error_lines import line_that_matters
from ottla.pipelines.progress import BatchFigures, Offsets, QueryProgress, State, figures, moment
from ottla.pipelines.restarts import Restarts

STOPPED_BY_OTHERS = "somebody else stopped the query"
INITIALIZING = "Initializing"
QUIET = ("Waiting for", "Getting offsets", INITIALIZING)
"""How Spark's word on a query begins while it works on no batch. To close windows is one, though it has no data."""
SETTLING_MS_MAX = 20_000
"""How long a query may take to get going before others are started beside it."""
COUNTED_MAX = 4_000


class Query(Protocol):
    """What is asked of Spark's StreamingQuery."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802
    @property
    def status(self) -> Mapping[str, Any]: ...
    @property
    def lastProgress(self) -> Mapping[str, Any] | None: ...  # noqa: N802
    @property
    def recentProgress(self) -> Sequence[Mapping[str, Any]]: ...  # noqa: N802
    def exception(self) -> BaseException | None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Startable:
    """A query that can be started, as often as need be."""

    name: str
    start: Callable[[], Query]
    rows_out_of: Callable[[int], int | None] | None = None
    """How many rows a batch wrote, for queries whose rows Spark does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a query did in a run."""

    rows_in: int = 0
    rows_out: int | None = None
    batches: int = 0
    restarts: int = 0


class Supervised:
    """A query with its history in this run."""

    def __init__(
        self, startable: Startable, *, pipeline: str, run: str, restarts_max: int, ends_by_itself: bool
    ) -> None:
        self.name = startable.name
        self.state: State = "starting"
        self.error: str | None = None
        self._start = startable.start
        self._rows_out_of = startable.rows_out_of
        self._pipeline = pipeline
        self._run = run
        self._ends_by_itself = ends_by_itself
        self._restarts = Restarts(restarts_max)
        self._query: Query | None = None
        self._restart_at_ms = 0
        self._figures: BatchFigures | None = None
        self._batch_id: int | None = None
        self._rows_in = 0
        self._rows_out: int | None = None
        self._batches = 0
        self._counted: set[int] = set()
        """Batches whose rows are counted; the older ones are forgotten."""
        self._quiet_since_ms: int | None = None
        self._settling_since_ms: int | None = None

    # --- what happens --------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """Start it. What Spark says against it at once, it would say again: that is raised."""
        self._query = self._start()
        self._settling_since_ms = now_ms
        self.state = "running"

    def take(self, told: Mapping[str, Any]) -> bool:
        """Spark's account of a batch; False: nothing new. The same may come twice, by two ways."""
        new = figures(told, self._rows_out_of)
        is_newest = self._figures is None or new.at >= self._figures.at
        if not new.is_batch:
            return is_newest and self._take_idle(new)
        if new.batch_id in self._counted:
            return False
        self._counted.add(new.batch_id)
        if len(self._counted) > COUNTED_MAX:
            self._counted = {one for one in self._counted if one > new.batch_id - COUNTED_MAX // 2}
        self._batches += 1
        self._rows_in += new.rows_in
        if new.rows_out is not None:
            self._rows_out = (self._rows_out or 0) + new.rows_out
        if is_newest:
            self._figures = new
            self._batch_id = new.batch_id
        self._restarts.batch_done()
        self._quiet_since_ms = None
        return True

    def _take_idle(self, new: BatchFigures) -> bool:
        """Spark's word that there is nothing to do, which it says again and again; what the last batch did, stays."""
        last = self._figures
        merged = new
        if last is not None:
            merged = replace(
                last,
                at=new.at,
                rows_in_per_s=0.0,
                rows_out_per_s=None if last.rows_out_per_s is None else 0.0,
                lag=last.lag if new.lag is None else new.lag,
                watermark=new.watermark or last.watermark,
                ends=new.ends or last.ends,
            )
        self._figures = merged
        return last is None or replace(merged, at=last.at) != last

    def look(self, now_ms: int, *, may_restart: bool, may_start_now: bool = True) -> bool:
        """Look how it stands and do what follows from it; True: its state is another one now.

        `may_start_now`: no other query is being started at the moment.
        """
        before = self.state
        if self.state == "restarting":
            self._try_again(now_ms, may_restart=may_restart, may_start_now=may_start_now)
        elif self.state == "running":
            self._look_after(now_ms, may_restart=may_restart)
        return self.state != before

    def _try_again(self, now_ms: int, *, may_restart: bool, may_start_now: bool) -> None:
        if not may_restart:
            self.state = "stopped"
        elif now_ms >= self._restart_at_ms and may_start_now:
            try:
                self.begin(now_ms)
            except Exception as error:
                # Whatever Spark or a user's step raises is a failure of this query, and of no other.
                self._failed(error, now_ms, may_restart=True)

    def _look_after(self, now_ms: int, *, may_restart: bool) -> None:
        query = self._query
        assert query is not None, "it runs"
        if query.isActive:
            message = str(query.status.get("message", ""))
            if not message.startswith(INITIALIZING):
                self._settling_since_ms = None
            if not message.startswith(QUIET):
                self._quiet_since_ms = None
            elif self._quiet_since_ms is None:
                self._quiet_since_ms = now_ms
            return
        self._quiet_since_ms = self._settling_since_ms = None
        self._take_last(query)
        error = query.exception()
        if error is not None:
            self._failed(error, now_ms, may_restart=may_restart)
        elif self._ends_by_itself or not may_restart:
            self.state = "stopped"
        else:
            self._failed(STOPPED_BY_OTHERS, now_ms, may_restart=True)

    def _failed(self, error: BaseException | str, now_ms: int, *, may_restart: bool) -> None:
        self.error = line_that_matters(error)
        self._query = None
        self._settling_since_ms = None
        delay_ms = self._restarts.after_failure() if may_restart else None
        if delay_ms is None:
            self.state = "failed"
        else:
            self.state = "restarting"
            self._restart_at_ms = now_ms + delay_ms

    def refresh(self) -> bool:
        """Ask Spark for its last account, for one that was not sent; True: it has something new."""
        return self._query is not None and self._take_last(self._query)

    def _take_last(self, query: Query) -> bool:
        last = query.lastProgress
        return last is not None and self.take(last)

    def end(self) -> None:
        """Stop it where it stands. A batch that it is in the middle of is done again after the next start."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()
            for told in query.recentProgress:
                # Those that are still on their way to us.
                self.take(told)
        if self.state != "failed":
            self.state = "stopped"

    # --- how it stands -------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        return self.state in ("failed", "stopped")

    def is_settling(self, now_ms: int) -> bool:
        """Whether it was started and has not got going yet."""
        return self._settling_since_ms is not None and now_ms - self._settling_since_ms < SETTLING_MS_MAX

    def is_at_rest(self, now_ms: int, *, for_ms: int) -> bool:
        """Whether it has worked on no batch for so long, or not at all."""
        if self.state != "running":
            return True
        return self._quiet_since_ms is not None and now_ms - self._quiet_since_ms >= for_ms

    @property
    def ends(self) -> Offsets | None:
        """How far it has read its topics; None: nothing is known yet."""
        return None if self._figures is None else self._figures.ends

    @property
    def totals(self) -> Totals:
        return Totals(
            rows_in=self._rows_in, rows_out=self._rows_out, batches=self._batches, restarts=self._restarts.total
        )

    def progress(self, now_ms: int) -> QueryProgress:
        """All of it, as it is told."""
        last = self._figures
        known: dict[str, Any] = (
            {}
            if last is None
            else {
                "rows_in": last.rows_in,
                "rows_out": last.rows_out,
                "rows_in_per_s": last.rows_in_per_s,
                "rows_out_per_s": last.rows_out_per_s,
                "batch_ms": last.batch_ms,
                "lag": last.lag,
                "watermark": last.watermark,
            }
        )
        return QueryProgress(
            pipeline=self._pipeline,
            query=self.name,
            run=self._run,
            state=self.state,
            at=moment(now_ms),
            batch_id=self._batch_id,
            rows_in_total=self._rows_in,
            rows_out_total=self._rows_out,
            restarts=self._restarts.total,
            error=self.error,
            **known,
        )
