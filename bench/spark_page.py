"""The page of a run on the Spark side: what was expected, the figures behind it, and the picture; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from bench.neighbours import RULE
from bench.spark_bars import Bar, Group, Panel
from bench.spark_rows import Judgement, Row
from bench.turns import SPREAD_MAX, TURNS_MIN

PICTURE = "spark.svg"


class Findings:
    """Everything that has been found: the rows of each part that was measured, and what is to be said of them."""

    def __init__(self, rows: Mapping[str, Sequence[Row]], judged: list[Judgement]) -> None:
        self.throughput = [*rows.get("sources", ()), *rows.get("sinks", ())]
        self.batches = rows.get("batches", ())
        self.latency = rows.get("latency", ())
        self.judged = judged

    def page(self, *, taken: Mapping[str, datetime], counts: Sequence[str], notes: Sequence[str]) -> str:
        """The whole page, in Markdown."""
        rows = (*self.throughput, *self.batches, *self.latency)
        turns = " or ".join(str(number) for number in sorted({len(row.turns) for row in rows}))
        return "\n".join(
            [
                "# Topics in Spark, against Spark's own connector",
                "",
                "Taken by `make bench ARGS='spark --write'`, each part by itself:",
                f"{', '.join(f'{name} on {when:%d %B %Y at %H:%M}' for name, when in taken.items())} (UTC).",
                'One Ottla server and one Spark (`local[2]`), in which `format("ottla")` and `format("kafka")`,',
                "Spark's own connector, are both at hand. Both do the same work on the same server in turns, after one",
                f"turn each to warm up: {turns} turns of each. A figure is the median of its turns, with their",
                "spread: largest less smallest, as a share of the median. With a spread above",
                f"{SPREAD_MAX:.0%} it is not known yet; all sides of the row are then measured once more.",
                *RULE,
                "A time that is to stay below a limit has to do so in every turn.",
                "CPU is that of Spark, the JVM with all its Python workers, and that of the broker. Both connectors",
                "have their defaults, unless the side says otherwise. The broker acknowledges what is on disk.",
                "",
                *(f"- {note}" for note in (*counts, *notes)),
                "",
                f"![The figures as bars]({PICTURE})",
                "",
                "## What was expected",
                "",
                *table(
                    ("what", "measured", "expected", ""),
                    [(each.what, each.measured, each.expected, each.verdict) for each in self.judged],
                ),
                "",
                "## Records a second",
                "",
                *table(_headings("records/s"), [_rate(row) for row in self.throughput]),
                "",
                "## A small micro-batch",
                "",
                "Its duration as Spark tells it, and what was computed for each batch.",
                "",
                *table(_headings("duration"), [_time(row) for row in self.batches]),
                "",
                "## From record to record",
                "",
                "From when a record was due at its producer until a reader of the sink's topic has it; Spark's default",
                "trigger, a record each 100 ms. CPU is for each second.",
                "",
                *table(_headings("latency"), [_time(row) for row in self.latency]),
                "",
            ]
        )

    def panels(self) -> list[Panel]:
        """What the picture shows."""
        return [
            Panel("Million records a second", _groups(self.throughput, _million)),
            Panel("CPU seconds of the broker for the same", _groups(self.throughput, _broker)),
            Panel("Milliseconds of a small micro-batch", _groups(self.batches, _milliseconds)),
            Panel("Milliseconds from record to record", _groups(self.latency, _milliseconds)),
        ]


def table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """An aligned Markdown table."""
    cells = [headings, *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    lines = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |".rstrip()
        for line in cells
    ]
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return lines


def _headings(figure: str) -> tuple[str, ...]:
    return "what", "side", figure, "Spark's CPU", "broker's CPU"


def _rate(row: Row) -> tuple[str, ...]:
    figure = f"{row.median / 1_000_000:.2f} M {_spread(row)}"
    return row.what, row.side, figure, f"{row.spark_cpu_s:.2f} s", f"{row.broker_cpu_s:.2f} s"


def _time(row: Row) -> tuple[str, ...]:
    figure = f"{row.median:.0f} ms {_spread(row)}"
    return row.what, row.side, figure, f"{row.spark_cpu_s * 1000:.0f} ms", f"{row.broker_cpu_s * 1000:.1f} ms"


def _spread(row: Row) -> str:
    if len(row.turns) < TURNS_MIN:
        return "in too few turns, not known yet"
    return f"±{row.spread:.0%}{', not known yet' * (not row.is_known)}"


def _groups(rows: Sequence[Row], bar: Callable[[Row], Bar]) -> list[Group]:
    names = dict.fromkeys(row.what for row in rows)
    return [Group(name, [bar(row) for row in rows if row.what == name]) for name in names]


def _million(row: Row) -> Bar:
    return Bar(row.side, row.median, f"{row.median / 1_000_000:.2f} M")


def _broker(row: Row) -> Bar:
    return Bar(row.side, row.broker_cpu_s, f"{row.broker_cpu_s:.2f} s")


def _milliseconds(row: Row) -> Bar:
    return Bar(row.side, row.median, f"{row.median:.0f} ms")
