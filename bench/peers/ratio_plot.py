"""Ratios as bars in SVG, on a scale on which twice as good and half as good are equally far from level; pure.

Knows nothing of what is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log2

WIDTH, LABEL_WIDTH, FIGURE_WIDTH = 960, 320, 70
BAR_HEIGHT, PITCH, TOP, BOTTOM = 14, 22, 46, 34
AHEAD, BEHIND, UNKNOWN, GRID, INK = "#1b7f5c", "#c2571a", "#b5b8bf", "#dde0e5", "#222"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One bar."""

    label: str
    value: float
    """How many times as good as the peer; 1 is level."""
    low: float
    high: float
    """The range in which the rounds lie."""
    expected: float | None
    is_known: bool


def svg(title: str, ratios: Sequence[Ratio]) -> str:
    """The picture. A ratio that is no finite number above 0 has no place on the scale and is left out."""
    shown = [each for each in ratios if isfinite(each.value) and each.value > 0]
    scale = _Scale(shown)
    height = TOP + PITCH * len(shown) + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    lines += _grid(scale, height)
    for place, ratio in enumerate(shown):
        lines += _bar(ratio, scale, TOP + PITCH * place)
    return "\n".join([*lines, "</svg>", ""])


class _Scale:
    """From powers of two to places."""

    def __init__(self, ratios: Sequence[Ratio]) -> None:
        ends = [end for each in ratios for end in (each.value, each.low, each.high, each.expected or 1.0)]
        powers = [log2(end) for end in ends if isfinite(end) and end > 0]
        self.first = min([-1, *(floor(power) for power in powers)])
        self.last = max([1, *(ceil(power) for power in powers)])

    def place(self, ratio: float) -> float:
        power = min(max(log2(ratio), self.first), self.last) if ratio > 0 and isfinite(ratio) else self.last
        return LABEL_WIDTH + (power - self.first) / (self.last - self.first) * (WIDTH - LABEL_WIDTH - FIGURE_WIDTH)


def _grid(scale: _Scale, height: int) -> list[str]:
    lines = []
    for power in range(scale.first, scale.last + 1):
        place = scale.place(2.0**power)
        colour = INK if power == 0 else GRID
        lines.append(
            f'<line x1="{place:.1f}" y1="{TOP - 8}" x2="{place:.1f}" y2="{height - BOTTOM}" stroke="{colour}"/>'
        )
        text = f"{2**power}x" if power >= 0 else f"1/{2**-power}"
        lines.append(f'<text x="{place:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{text}</text>')
    return lines


def _bar(ratio: Ratio, scale: _Scale, top: int) -> list[str]:
    level, end = scale.place(1.0), scale.place(ratio.value)
    colour = UNKNOWN if not ratio.is_known else AHEAD if ratio.value >= (ratio.expected or 1.0) else BEHIND
    middle, low, high = top + BAR_HEIGHT / 2, scale.place(ratio.low), scale.place(ratio.high)
    left, width = min(level, end), abs(end - level)
    lines = [
        f'<text x="{LABEL_WIDTH - 8}" y="{top + BAR_HEIGHT - 3}" text-anchor="end">{escape(ratio.label)}</text>',
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>',
        f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="{INK}"/>',
        f'<text x="{WIDTH - FIGURE_WIDTH + 14}" y="{top + BAR_HEIGHT - 3}">{ratio.value:.2f}</text>',
    ]
    if ratio.expected is not None:
        place = scale.place(ratio.expected)
        lines.append(
            f'<line x1="{place:.1f}" y1="{top - 2}" x2="{place:.1f}" y2="{top + BAR_HEIGHT + 2}" '
            f'stroke="#b00" stroke-width="2"/>'
        )
    return lines
