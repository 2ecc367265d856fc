"""What the main job shows while it runs."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from examples.orders.display import View
from examples.orders.totals import Window

VIEW = View(
    seconds=12,
    stage="running",
    generated=240_000,
    in_table=200_000,
    bad=4_000,
    late=3_900,
    lag=36_000,
    events_per_second=19_876.4,
    shop_time="2026-01-31 23:52",
    closed_before="2026-01-31T23:46:30Z",
    windows=[Window(f"2026-01-31T23:{minute}:00.000Z", 100 + minute, 1_000.25) for minute in range(40, 50)],
)


def _drawn(view: View) -> str:
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(view.drawn())
    return capture.get()


def test_a_line_has_all_the_numbers() -> None:
    assert VIEW.line() == (
        "  12 s  running: generated 240,000, in the table 200,000, bad 4,000, late 3,900, waiting 36,000; "
        "19,876 events/s; windows 7 closed, 3 open"
    )


def test_before_anything_is_known_of_the_queries_nobody_guesses_what_waits() -> None:
    assert "waiting ...;" in replace(VIEW, lag=None).line()


def test_the_picture_has_the_last_minutes_with_the_newest_first() -> None:
    minutes = [line.strip()[:16] for line in _drawn(VIEW).splitlines() if line.strip().startswith("2026-01-31")]

    assert minutes == [f"2026-01-31 23:{minute}" for minute in range(49, 43, -1)]


def test_the_last_error_is_part_of_the_picture() -> None:
    assert "the broker is away" in _drawn(replace(VIEW, note="the broker is away"))


def test_a_picture_can_be_drawn_before_there_is_anything_to_see() -> None:
    nothing = replace(VIEW, generated=0, in_table=0, bad=0, late=0, lag=None, windows=(), closed_before="")

    assert "0 windows closed, 0 open" in _drawn(nothing)
