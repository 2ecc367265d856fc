"""The page of the side-by-side: a table and a picture for each group, and under what conditions it was taken; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

from bench.neighbours import RULE, SPEED_RULE
from bench.peers import ratio_plot
from bench.peers.contract import CPU_UNIT, OURS, UNKNOWN, Load, Result, limit
from bench.peers.free_memory import MEMORY_RULE
from bench.peers.latency import PIECES_RULE, STOLEN_RULE
from bench.peers.rounds import UNEXPECTED_RULE
from bench.spark_page import table
from bench.turns import SPREAD_MAX

HEADINGS = (
    "row",
    "what",
    "settings",
    "acknowledged when",
    "unit",
    "ottla",
    "peer",
    "",
    "times as good",
    "expected",
    "",
    "broker's CPU (kernel), s/GB",
    "broker's memory, MB",
    "limit",
)
NOTHING = "-"


def in_order(results: Sequence[Result], ids: Sequence[str]) -> list[Result]:
    """As the rows were defined; those that no definition is left of are dropped, and so are those without a figure."""
    found = {result.row.id: result for result in results if any(result.turns.values()) or result.missing}
    return [found[row_id] for row_id in ids if row_id in found]


def groups(results: Sequence[Result]) -> dict[str, list[Result]]:
    """By heading, in the order of their first rows."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.row.group, []).append(result)
    return found


def picture_name(group: str) -> str:
    """The file of a group's picture."""
    return f"peers-{re.sub(r'[^a-z0-9]+', '-', group.lower()).strip('-')}.svg"


def pictures(results: Sequence[Result]) -> dict[str, str]:
    """By file, as SVG."""
    return {
        picture_name(group): ratio_plot.svg(f"{group}: how many times as good as the peer", ratios)
        for group, members in groups(results).items()
        if (ratios := _ratios(members))
    }


def _ratios(results: Sequence[Result]) -> list[ratio_plot.Ratio]:
    ratios = []
    for result in results:
        ratio, ends = result.ratio, result.ratio_range
        if ratio is None or ends is None:
            continue
        ratios.append(
            ratio_plot.Ratio(
                label=result.row.id,
                value=ratio,
                low=ends[0],
                high=ends[1],
                expected=result.row.expected,
                is_known=result.verdict != "not known yet",
            )
        )
    return ratios


def render(
    results: Sequence[Result],
    *,
    taken: datetime,
    rounds: str,
    facts: Sequence[str],
    commands: Sequence[str],
    cores: int,
    unmeasured: int = 0,
) -> str:
    """The whole page, in Markdown; `unmeasured` rows are not on it."""
    lines = [
        "# Side by side with other brokers",
        "",
        f"Last taken on {taken:%d %B %Y} by `make bench-peers ARGS=--write`; a row stays until it is measured again.",
        f"The sides take turns, A B A B A B, {rounds}; one broker runs at a time, on a wiped directory on the same",
        "disk, with the same client.",
        *RULE,
        *STOLEN_RULE,
        *SPEED_RULE,
        *UNEXPECTED_RULE,
        *MEMORY_RULE,
        *PIECES_RULE,
        "A figure is the median of its rounds with their spread: largest less smallest, as a share of the median.",
        f"A row with a spread above {SPREAD_MAX:.0%} on either side is not known yet. The ratio says how many times",
        "as good as the peer we are, whether more or less is better. In the pictures a bar is green where we are at",
        "least level, orange where we are behind, grey where it is not known yet; the thin line goes from our worst",
        "round against the peer's best to our best against its worst, and the red mark is what is expected.",
        "Beside a throughput stand the broker's CPU seconds for each GB of",
        "records and the kernel's part in them, the memory of its processes after the work and at most",
        "(ours / the peer's), and what was the limit",
        "on each side, as far as CPU time tells: a client whose busiest thread had no time left, the machine's cores,",
        "or the broker. Every topic is checked to hold what its client was told.",
        "",
        *(f"- {fact}" for fact in facts),
        "",
        *_summary(results),
        *(("", f"{unmeasured} more rows have not been measured yet; `--list` names all.") if unmeasured else ()),
        "",
    ]
    for group, members in groups(results).items():
        lines += [f"## {group}", ""]
        if _ratios(members):
            lines += [f"![{group}]({picture_name(group)})", ""]
        lines += [*table(HEADINGS, [_cells(result, cores) for result in members]), "", *_notes(members)]
    lines += ["## The commands", "", "```", *commands, "```", ""]
    return "\n".join(lines)


def _summary(results: Sequence[Result]) -> list[str]:
    judged = [result for result in results if result.row.expected is not None]
    by_verdict = {verdict: [each for each in judged if each.verdict == verdict] for verdict in VERDICTS}
    lines = [
        f"Of {len(judged)} rows with an expectation: "
        + ", ".join(f"{len(found)} {verdict}" for verdict, found in by_verdict.items())
        + "."
    ]
    for verdict in VERDICTS[1:]:
        if by_verdict[verdict]:
            certain = _certain(by_verdict[verdict]) if verdict == UNKNOWN else ""
            why = (
                f" (what limits them, with profiles and what was tried: [{LIMITS}]({LIMITS}))"
                if verdict == SHORT
                else ""
            )
            lines += ["", f"{verdict.capitalize()}{certain}{why}:", ""]
            lines += [f"- {_told(result)}" for result in by_verdict[verdict]]
    return lines


def _certain(unknown: Sequence[Result]) -> str:
    """How many of those that are not known yet do not depend on which rounds are compared."""
    ahead = [each for each in unknown if each.ratio_range and each.ratio_range[0] >= (each.row.expected or 0)]
    return f" ({len(ahead)} of {len(unknown)} reach it whichever rounds are compared)"


SHORT = "NOT MET"
VERDICTS = ("met", SHORT, UNKNOWN, "not measured")
LIMITS = "limits.md"
"""Written by hand, beside the page: a profile is read by somebody."""


def _told(result: Result) -> str:
    ratio = "" if result.ratio is None else f": {result.ratio:.2f}, expected {result.row.expected:g}"
    if result.verdict == UNKNOWN and result.ratio_range:
        ratio += ", {:.2f} to {:.2f} by the rounds that are compared".format(*result.ratio_range)
    return f"`{result.row.id}` ({result.row.what}; against {result.row.peer}){ratio}{_floor(result)}"


def _floor(result: Result) -> str:
    """For a row of CPU seconds: what it would come to if the broker itself cost nothing."""
    ours, peer = result.load(OURS), result.load(result.row.peer)
    if result.row.unit != CPU_UNIT or ours is None or peer is None or not ours.broker_kernel_s:
        return ""
    most = (peer.broker_cpu_s / peer.gigabytes) / (ours.broker_kernel_s / ours.gigabytes)
    return f"; with the kernel's part of ours alone, and no code of the broker's, it would be {most:.2f}"


def _notes(results: Sequence[Result]) -> list[str]:
    notes = dict.fromkeys(result.row.note for result in results if result.row.note)
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for side, why in result.missing.items():
            if not result.values(side):
                reasons.setdefault((side, why), []).append(f"`{result.row.id}`")
    told = [f"{side} was not measured ({', '.join(ids)}): {why}" for (side, why), ids in reasons.items()]
    lines = [f"- {text}" for text in (*notes, *told)]
    return [*lines, ""] if lines else []


def _cells(result: Result, cores: int) -> tuple[str, ...]:
    row, ratio = result.row, result.ratio
    ours, peer = result.load(OURS), result.load(row.peer)
    return (
        f"`{row.id}`",
        row.what,
        row.settings,
        row.fsync,
        row.unit,
        _figure(result, OURS),
        row.peer,
        _figure(result, row.peer),
        NOTHING if ratio is None else f"{ratio:.2f}",
        "" if row.expected is None else f"{row.expected:g}",
        result.verdict,
        _pair(ours, peer, _cpu),
        _pair(ours, peer, _memory),
        _pair(ours, peer, lambda load: limit(load, cores=cores) or NOTHING),
    )


def _figure(result: Result, side: str) -> str:
    median = result.median(side)
    if median is None:
        return NOTHING
    spread = result.spread(side)
    return number(median) + (f" ±{spread:.0%}" if spread != float("inf") else "")


def number(value: float) -> str:
    """Three digits that count, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _pair(ours: Load | None, peer: Load | None, tell: Callable[[Load], str]) -> str:
    if ours is None and peer is None:
        return ""
    return " / ".join(NOTHING if load is None else tell(load) for load in (ours, peer))


def _cpu(load: Load) -> str:
    if not load.gigabytes:
        return NOTHING
    kernel = f" ({number(load.broker_kernel_s / load.gigabytes)})" if load.broker_kernel_s else ""
    return number(load.broker_cpu_s / load.gigabytes) + kernel


def _memory(load: Load) -> str:
    return f"{load.rss_mb:.0f} (most {load.hwm_mb:.0f})"
