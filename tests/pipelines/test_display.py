"""How a run looks: lines for logs, a table for people."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from ottla.clock import ManualClock
from ottla.pipelines.display import COLUMNS, LINE_EACH_MS, Lines, LiveTable, cells, line, table
from ottla.pipelines.progress import QueryProgress

TOLD = QueryProgress(
    pipeline="p",
    query="revenue",
    run="r",
    state="running",
    at="2026-01-31T12:34:56.000Z",
    batch_id=7,
    rows_in=100,
    rows_out=50,
    rows_in_per_s=12_345.6,
    rows_out_per_s=50.0,
    batch_ms=152,
    rows_in_total=1_000_000,
    rows_out_total=5,
    lag=42,
)


def test_a_line_has_all_that_is_known_of_a_query() -> None:
    assert line(TOLD) == (
        "12:34:56 revenue: running; batch 7 in 152 ms; 12,346 rows/s in, 50/s out; 1,000,000 rows in, 5 out; lag 42"
    )


def test_a_line_leaves_out_what_is_not_known() -> None:
    told = QueryProgress(pipeline="p", query="q", run="r", state="running", at=TOLD.at)

    assert line(told) == "12:34:56 q: running"


def test_a_line_names_the_last_error_and_the_restarts() -> None:
    assert line(replace(TOLD, restarts=2, error="ValueError: no")).endswith("restarts 2; last error: ValueError: no")


def test_a_query_gets_a_line_every_few_seconds() -> None:
    written: list[str] = []
    clock = ManualClock()
    lines = Lines(written.append, clock)
    for _ in range(11):
        lines.update(TOLD)
        clock.advance(LINE_EACH_MS // 5)

    assert len(written) == 3


def test_another_state_gets_a_line_at_once() -> None:
    written: list[str] = []
    lines = Lines(written.append, ManualClock())
    lines.update(TOLD)
    lines.update(replace(TOLD, state="restarting"))

    assert len(written) == 2


def test_there_is_a_cell_for_each_column() -> None:
    assert len(cells(TOLD)) == len(COLUMNS)


def drawn(*told: QueryProgress) -> str:
    console = Console(file=io.StringIO(), width=150, force_terminal=False)
    console.print(table("pipeline p", list(told)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_shows_the_figures_of_every_query() -> None:
    text = drawn(TOLD, replace(TOLD, query="audit", lag=7))

    assert "12,346" in text
    assert "audit" in text


def test_the_table_shows_below_it_why_a_query_failed() -> None:
    text = drawn(replace(TOLD, state="restarting", error="ValueError: [no]"))

    assert text.rstrip().endswith("revenue: ValueError: [no]")


def test_a_live_table_ends_with_what_was_told_last() -> None:
    console = Console(file=io.StringIO(), width=150, force_terminal=True)
    with LiveTable("pipeline p", console) as live:
        live.update(TOLD)
        live.update(replace(TOLD, rows_in_total=77))
    assert isinstance(console.file, io.StringIO)

    assert "77" in console.file.getvalue()
