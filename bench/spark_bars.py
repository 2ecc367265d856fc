"""A bar chart as SVG text: panels side by side in one picture, each with groups of bars; pure.

Knows nothing of what the bars mean. Colours go by the name of the series, so that a series has the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LABEL_WIDTH, FIGURE_WIDTH = 960, 300, 100
BAR_HEIGHT, GAP, GROUP_GAP, PANEL_GAP = 16, 3, 12, 40
COLOURS = ("#1b7f5c", "#7cc4a4", "#c2571a", "#e8a87c", "#56608c", "#a9b0cc")


class Bar(NamedTuple):
    """One figure."""

    series: str
    value: float
    text: str
    """How the figure is written beside the bar."""


class Group(NamedTuple):
    """Bars that are compared with each other."""

    label: str
    bars: Sequence[Bar]


class Panel(NamedTuple):
    """Groups on the same scale."""

    title: str
    groups: Sequence[Group]


def svg(panels: Sequence[Panel]) -> str:
    """The picture."""
    names = dict.fromkeys(bar.series for panel in panels for group in panel.groups for bar in group.bars)
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    lines: list[str] = []
    top = _legend(lines, colours)
    for panel in panels:
        top = _panel(lines, panel, colours, top + PANEL_GAP)
    height = top + GROUP_GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#222">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


def _legend(lines: list[str], colours: dict[str, str]) -> int:
    top = GROUP_GAP
    for name, colour in colours.items():
        lines.append(f'<rect x="{GROUP_GAP}" y="{top}" width="{BAR_HEIGHT}" height="{BAR_HEIGHT}" fill="{colour}"/>')
        lines.append(f'<text x="{GROUP_GAP + BAR_HEIGHT + 6}" y="{top + BAR_HEIGHT - 4}">{escape(name)}</text>')
        top += BAR_HEIGHT + GAP
    return top


def _panel(lines: list[str], panel: Panel, colours: dict[str, str], top: int) -> int:
    lines.append(f'<text x="{GROUP_GAP}" y="{top - 10}" font-weight="bold">{escape(panel.title)}</text>')
    largest = max((bar.value for group in panel.groups for bar in group.bars), default=0.0)
    scale = (WIDTH - LABEL_WIDTH - FIGURE_WIDTH) / largest if largest > 0 else 0.0
    for group in panel.groups:
        middle = top + len(group.bars) * (BAR_HEIGHT + GAP) // 2 + 2
        lines.append(f'<text x="{LABEL_WIDTH - 8}" y="{middle}" text-anchor="end">{escape(group.label)}</text>')
        for bar in group.bars:
            width, baseline = bar.value * scale, top + BAR_HEIGHT - 4
            lines.append(
                f'<rect x="{LABEL_WIDTH}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}" '
                f'fill="{colours[bar.series]}"/>'
            )
            lines.append(f'<text x="{LABEL_WIDTH + width + 6:.1f}" y="{baseline}">{escape(bar.text)}</text>')
            top += BAR_HEIGHT + GAP
        top += GROUP_GAP
    return top
