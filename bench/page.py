"""The table of a run, for the terminal and for docs/benchmarks; both are the same Markdown."""

from __future__ import annotations

from datetime import datetime

from bench.turns import SLICE_MS, SPREAD_MAX, Row

HEADINGS = ("what", "settings", "ours", "peer", "", "times as fast", "expected", "")


def render(rows: list[Row], *, machine: str, versions: str, taken: datetime, rounds: int, notes: list[str]) -> str:
    """The whole page."""
    return "\n".join(
        [
            "# The foundation against others",
            "",
            f"Taken on {taken:%d %B %Y} by `make bench ARGS=--write`. Sides take turns, {rounds} rounds; of a turn the",
            f"fastest slice of {SLICE_MS} ms counts. A figure is the median of the rounds, with its spread: most less",
            f"least, as a share of the median. A row with a spread above {SPREAD_MAX:.0%} on either side is not",
            "known yet. The ratio is the peer's time over ours.",
            "",
            f"- {machine}",
            f"- {versions}",
            *(f"- {note}" for note in notes),
            "",
            *table(rows),
            "",
        ]
    )


def table(rows: list[Row]) -> list[str]:
    """The rows as an aligned Markdown table."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    expected = "" if row.expected is None else f"{row.expected:g}"
    return (
        row.what,
        row.settings,
        f"{_duration(row.ours.median_ns)} ±{row.ours.spread:.0%}",
        row.peer.name,
        f"{_duration(row.peer.median_ns)} ±{row.peer.spread:.0%}",
        f"{row.ratio:.2f}",
        expected,
        row.verdict,
    )


def _duration(nanoseconds: float) -> str:
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1_000:.2f} µs"
    return f"{nanoseconds / 1_000_000:.2f} ms"
