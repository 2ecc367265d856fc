"""Where the boxes of a drawn graph go: in columns from left to right, each right of all that it reads. Pure geometry.

Knows boxes by their names and sizes and nothing of what they show. A line that passes a column without ending there
gets a place of its own in it, so that it runs between boxes and not behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

COLUMN_GAP = 70
ROW_GAP = 18
PASSAGE_HEIGHT = 8
SWEEPS = 8
"""How often columns are put in order by their neighbours; small graphs settle after two or three."""


class Point(NamedTuple):
    """In pixels, from the left and from the top."""

    x: float
    y: float


class Size(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What to draw where."""

    corners: Mapping[str, Point]
    """The upper left of each box."""
    widths: Mapping[str, int]
    """Boxes of one column are equally wide."""
    lines: Mapping[tuple[str, str], tuple[Point, ...]]
    """From the right edge of a box by way of its passages to the left edge of another."""
    size: Size


def laid_out(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]], columns: Mapping[str, int]) -> Layout:
    """`columns` says in which column each box is; every edge leads from a column to one further right."""
    heights = {name: size.height for name, size in sizes.items()}
    members: list[list[str]] = [[] for _ in range(max(columns.values(), default=0) + 1)]
    for name in sizes:
        members[columns[name]].append(name)
    ways: dict[tuple[str, str], tuple[str, ...]] = {}
    for start, end in edges:
        passages = []
        for column in range(columns[start] + 1, columns[end]):
            # No box can have this name: names of boxes hold no line breaks.
            passage = f"{start}\n{end}\n{column}"
            members[column].append(passage)
            heights[passage] = PASSAGE_HEIGHT
            passages.append(passage)
        ways[start, end] = (start, *passages, end)
    links = [(way[index], way[index + 1]) for way in ways.values() for index in range(len(way) - 1)]
    _put_in_order(members, links)
    return _placed(members, heights, sizes, ways)


def _put_in_order(members: list[list[str]], links: Sequence[tuple[str, str]]) -> None:
    """Each box near to the middle of its neighbours in the column before, then in the one after, and again."""
    before: dict[str, list[str]] = {name: [] for column in members for name in column}
    after: dict[str, list[str]] = {name: [] for column in members for name in column}
    for start, end in links:
        after[start].append(end)
        before[end].append(start)
    position = {name: place for column in members for name, place in _places(column)}

    def middle(name: str, near: dict[str, list[str]]) -> float:
        places = [position[other] for other in near[name]]
        return sum(places) / len(places) if places else position[name]

    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        for column in members if forth else reversed(members):
            column.sort(key=partial(middle, near=before if forth else after))
            position.update(_places(column))


def _places(column: Sequence[str]) -> Iterator[tuple[str, float]]:
    """How far down in its column each box is, as a share of it."""
    for index, name in enumerate(column):
        yield name, index / max(1, len(column) - 1)


def _placed(
    members: list[list[str]],
    heights: Mapping[str, int],
    sizes: Mapping[str, Size],
    ways: Mapping[tuple[str, str], tuple[str, ...]],
) -> Layout:
    column_heights = [sum(heights[name] for name in column) + ROW_GAP * (len(column) - 1) for column in members]
    tallest = max(column_heights, default=0)
    corners: dict[str, Point] = {}
    widths: dict[str, int] = {}
    x = 0
    for column, column_height in zip(members, column_heights, strict=True):
        width = max((sizes[name].width for name in column if name in sizes), default=0)
        y = (tallest - column_height) / 2
        for name in column:
            corners[name] = Point(x, y)
            widths[name] = width
            y += heights[name] + ROW_GAP
        x += width + COLUMN_GAP
    lines = {}
    for edge, way in ways.items():
        points = [Point(corners[way[0]].x + widths[way[0]], corners[way[0]].y + heights[way[0]] / 2)]
        for passage in way[1:-1]:
            y = corners[passage].y + PASSAGE_HEIGHT / 2
            points += [Point(corners[passage].x, y), Point(corners[passage].x + widths[passage], y)]
        points.append(Point(corners[way[-1]].x, corners[way[-1]].y + heights[way[-1]] / 2))
        lines[edge] = tuple(points)
    boxes = {name: corner for name, corner in corners.items() if name in sizes}
    return Layout(boxes, {name: widths[name] for name in boxes}, lines, Size(max(0, x - COLUMN_GAP), int(tallest)))
