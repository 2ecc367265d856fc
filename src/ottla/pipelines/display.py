"""How a run looks while it goes on: a table that is kept up to date on a terminal, a line now and then elsewhere.

Is told of queries by `update` and draws; knows neither Spark nor how a run is made.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ottla.clock import Clock
from ottla.pipelines.progress import QueryProgress, State

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_EACH_MS = 5_000
"""How often a query gets a line, unless its state is another one."""
COLUMNS = ("query", "state", "rows/s in", "out", "rows in", "out", "lag", "batch", "took", "restarts")
_STYLES: dict[State, str] = {
    "starting": "dim",
    "running": "green",
    "restarting": "yellow",
    "stopping": "yellow",
    "failed": "bold red",
    "stopped": "dim",
}


class View(Protocol):
    """Something that shows a run."""

    def update(self, told: QueryProgress) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Lines:
    """A line for each query now and then, for logs and pipes."""

    def __init__(self, write: Callable[[str], None], clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._last: dict[str, tuple[int, State]] = {}

    def update(self, told: QueryProgress) -> None:
        now_ms = self._clock.now_ms()
        written_ms, state = self._last.get(told.query, (None, None))
        if written_ms is None or state != told.state or now_ms - written_ms >= LINE_EACH_MS:
            self._last[told.query] = (now_ms, told.state)
            self._write(line(told))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """There is nothing to put away."""


class LiveTable:
    """A table of all queries on a terminal, drawn anew as they get on."""

    def __init__(self, title: str, console: Console) -> None:
        from rich.live import Live

        self._title = title
        self._queries: dict[str, QueryProgress] = {}
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._drawn)

    def update(self, told: QueryProgress) -> None:
        # Another dict each time: the thread that draws may be in the middle of the last one.
        self._queries = {**self._queries, told.query: told}

    def _drawn(self) -> RenderableType:
        return table(self._title, list(self._queries.values()))

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, traceback)


def line(told: QueryProgress) -> str:
    """One query in one line."""
    parts = [f"{told.at[11:19]} {told.query}: {told.state}"]
    if told.batch_id is not None:
        out = "" if told.rows_out_per_s is None else f", {_count(told.rows_out_per_s)}/s out"
        total_out = "" if told.rows_out_total is None else f", {_count(told.rows_out_total)} out"
        parts += [
            f"batch {told.batch_id} in {told.batch_ms} ms",
            f"{_count(told.rows_in_per_s)} rows/s in{out}",
            f"{_count(told.rows_in_total)} rows in{total_out}",
        ]
    if told.lag is not None:
        parts.append(f"lag {_count(told.lag)}")
    if told.restarts:
        parts.append(f"restarts {told.restarts}")
    if told.error is not None:
        parts.append(f"last error: {told.error}")
    return "; ".join(parts)


def cells(told: QueryProgress) -> tuple[str, ...]:
    """One query as the cells of a table, in the order of COLUMNS."""
    return (
        told.query,
        told.state,
        _count(told.rows_in_per_s),
        _count(told.rows_out_per_s),
        _count(told.rows_in_total),
        _count(told.rows_out_total),
        _count(told.lag),
        _count(told.batch_id),
        f"{told.batch_ms} ms" if told.batch_id is not None else "",
        str(told.restarts) if told.restarts else "",
    )


def table(title: str, queries: list[QueryProgress]) -> RenderableType:
    """All queries, and below them why some failed the last time."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for column in COLUMNS:
        is_word = column in ("query", "state")
        drawn.add_column(column, justify="left" if is_word else "right", no_wrap=True)
    for told in queries:
        name, state, *numbers = cells(told)
        drawn.add_row(Text(name), Text(state, style=_STYLES[told.state]), *map(Text, numbers))
    errors = [Text(f"{told.query}: {told.error}", style="red") for told in queries if told.error is not None]
    return Group(drawn, *errors)


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"
