"""The graph of a pipeline for people: as text for a terminal, and as a picture in SVG that needs nothing else. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape

from ottla.pipelines.graph import Graph
from ottla.pipelines.layers import Layout, Point, Size, laid_out
from ottla.pipelines.spec import (
    Avro,
    Csv,
    Format,
    FormatSink,
    Json,
    Pipeline,
    PythonStep,
    Sink,
    Source,
    Step,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)

Kind = Literal["source", "step", "sink", "side"]


@dataclass(frozen=True, slots=True)
class _Node:
    """A source, a step or a sink as both drawings show it."""

    kind: Kind
    name: str
    what: str
    inputs: tuple[str, ...] = ()
    """Names of sources and steps."""
    sides: tuple[tuple[str, str], ...] = ()
    """Where rows go that do not pass: the reason and the topic."""
    notes: tuple[str, ...] = ()


# --- what is shown ------------------------------------------------------------------------------------


def _nodes(pipeline: Pipeline, graph: Graph) -> Iterator[_Node]:
    for name in graph.order:
        if name in pipeline.sources:
            source = pipeline.sources[name]
            yield _Node("source", name, _source_text(source), (), tuple(_sides(source)), tuple(_notes(source)))
        else:
            step = pipeline.steps[name]
            what = step.function if isinstance(step, PythonStep) else "SQL"
            yield _Node("step", name, what, graph.inputs(name), tuple(_sides(step)), tuple(_notes(step)))
    for sink in pipeline.sinks.values():
        yield _Node("sink", sink.name, _sink_text(sink), (sink.input,), (), tuple(_sink_notes(sink)))


def _source_text(source: Source) -> str:
    if isinstance(source, TopicSource):
        latest = ", latest of each key" if source.latest_by_key else ""
        return f"topic {source.topic} ({_format_text(source.format)}{latest})"
    if isinstance(source, TableSource):
        return f"table {source.path}"
    stream = ", each file once" if source.stream else ""
    return f"files {source.path} ({source.format}{stream})"


def _format_text(form: Format) -> str:
    if isinstance(form, Json):
        return "json"
    if isinstance(form, Csv):
        return "csv"
    return "avro" if isinstance(form, Avro) else "raw"


def _sink_text(sink: Sink) -> str:
    if isinstance(sink, TopicSink):
        return f"topic {sink.topic}" + ("" if sink.mode == "append" else f" ({sink.mode})")
    if isinstance(sink, TableSink):
        return f"table {sink.path}" + (" (upsert)" if sink.keys else "")
    path = next((value for name, value in sink.options.items() if name.lower() == "path"), "")
    return " ".join(part for part in (sink.format, path) if part)


def _sides(node: Source | Step) -> Iterator[tuple[str, str]]:
    if isinstance(node, TopicSource) and node.bad is not None:
        yield "bad records", node.bad
    for rule in node.expect:
        if rule.topic is not None:
            yield f"not {rule.name}", rule.topic


def _notes(node: Source | Step) -> Iterator[str]:
    """What a terminal has room for and a picture has not."""
    if isinstance(node, TopicSource) and not node.latest_by_key and node.starting != "earliest":
        yield f"starting at {node.starting}"
    watermark = None if isinstance(node, TableSource) else node.watermark
    if watermark is not None:
        yield f"waits {watermark.delay} for late {watermark.column}"
    for rule in node.expect:
        if rule.otherwise != "route":
            yield f"{rule.otherwise}s unless {rule.name}: {_one_line(rule.where)}"


def _sink_notes(sink: Sink) -> Iterator[str]:
    if isinstance(sink, TopicSink) and sink.key is not None:
        yield f"key {_one_line(sink.key)}"
    if isinstance(sink, TableSink):
        if sink.keys:
            yield f"keys {', '.join(sink.keys)}"
        if sink.partition_by:
            yield f"by {', '.join(sink.partition_by)}"
    if isinstance(sink, FormatSink) and sink.mode != "append":
        yield f"mode {sink.mode}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _title(pipeline: Pipeline) -> str:
    pace = pipeline.trigger or "as soon as there is news"
    pace = {"available-now": "what is there now"}.get(pace, pace if pipeline.trigger is None else f"every {pace}")
    return f"{pipeline.name}: {pace}"


# --- text ---------------------------------------------------------------------------------------------


def text(pipeline: Pipeline, graph: Graph) -> str:
    """The pipeline for a terminal: a line for each source, step and sink, then what else there is to say of it."""
    nodes = list(_nodes(pipeline, graph))
    name_width = max((_width(node.name) for node in nodes), default=0)
    what_width = max((_width(node.what) for node in nodes if node.inputs), default=0)
    indent = " " * (2 + len("source") + 2 + name_width + 2 + 2)
    lines = [_title(pipeline), ""]
    for node in nodes:
        head = f"  {node.kind:<6}  {_padded(node.name, name_width)}  "
        if node.inputs:
            lines.append(f"{head}{_padded(node.what, what_width)}  <- {', '.join(node.inputs)}")
        else:
            lines.append(f"{head}{node.what}")
        lines += [f"{indent}{note}" for note in node.notes]
        lines += [f"{indent}{reason} -> topic {topic}" for reason, topic in node.sides]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _width(shown: str) -> int:
    """In cells of a terminal: letters of some scripts take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in shown)


def _padded(shown: str, width: int) -> str:
    return shown + " " * (width - _width(shown))


# --- svg ----------------------------------------------------------------------------------------------

_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_NAME_PIXELS = 14
_WHAT_PIXELS = 11
_LETTER = 0.65
"""How wide a letter of a monospaced font is, as a share of its height; a little more than most fonts need."""
_PADDING = 12
_BOX_HEIGHT = 46
_MARGIN = 24
_TITLE_HEIGHT = 34
_COLOURS: dict[Kind, tuple[str, str]] = {
    "source": ("#e3f0fb", "#2f6ea5"),
    "step": ("#f4f1e8", "#8a7a45"),
    "sink": ("#e6f4e6", "#3f8246"),
    "side": ("#fbe9e7", "#b3533f"),
}


class _Box(NamedTuple):
    kind: Kind
    name: str
    what: str


def svg(pipeline: Pipeline, graph: Graph) -> str:
    """The pipeline as a picture, as large as what is in it."""
    boxes, edges = _boxes(pipeline, graph)
    sizes = {key: _box_size(box) for key, box in boxes.items()}
    layout = laid_out(sizes, edges, _columns(boxes, edges))
    title = _title(pipeline)
    title_width = int(_width(title) * _NAME_PIXELS * _LETTER)
    width = max(layout.size.width, title_width) + 2 * _MARGIN
    height = layout.size.height + 2 * _MARGIN + _TITLE_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{_FONT}">',
        f"<title>{_clean(pipeline.name)}</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#777"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        _text(title, Point(_MARGIN, _MARGIN + _NAME_PIXELS), _NAME_PIXELS, "#222"),
        f'<g transform="translate({_MARGIN} {_MARGIN + _TITLE_HEIGHT})">',
    ]
    lines += [_line(layout, edge, dashed=boxes[edge[1]].kind == "side") for edge in edges]
    for key, box in boxes.items():
        lines += _drawn_box(box, layout.corners[key], layout.widths[key])
    return "\n".join([*lines, "</g>", "</svg>"]) + "\n"


def _boxes(pipeline: Pipeline, graph: Graph) -> tuple[dict[str, _Box], list[tuple[str, str]]]:
    """By keys that differ even where a sink has the name of a source; two reasons may lead to one topic."""
    boxes: dict[str, _Box] = {}
    edges: list[tuple[str, str]] = []
    for node in _nodes(pipeline, graph):
        key = f"sink {node.name}" if node.kind == "sink" else f"node {node.name}"
        boxes[key] = _Box(node.kind, node.name, node.what)
        edges += [(f"node {name}", key) for name in node.inputs]
        for topic in dict.fromkeys(topic for _, topic in node.sides):
            reasons = ", ".join(reason for reason, to in node.sides if to == topic)
            side_key = f"side {node.name} {topic}"
            boxes[side_key] = _Box("side", topic, f"topic, {reasons}")
            edges.append((key, side_key))
    return boxes, edges


def _columns(boxes: dict[str, _Box], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Sources at the left, sinks at the right, the rest right behind what it reads."""
    columns: dict[str, int] = {}
    for key in boxes:
        # Boxes come in an order in which all that one reads stands before it.
        columns[key] = 1 + max((columns[start] for start, end in edges if end == key), default=-1)
    last = max((columns[key] for key, box in boxes.items() if box.kind == "sink"), default=0)
    return {key: last if boxes[key].kind == "sink" else column for key, column in columns.items()}


def _box_size(box: _Box) -> Size:
    name = _width(box.name) * _NAME_PIXELS * _LETTER
    what = _width(box.what) * _WHAT_PIXELS * _LETTER
    return Size(int(max(name, what)) + 2 * _PADDING, _BOX_HEIGHT)


def _drawn_box(box: _Box, corner: Point, width: int) -> list[str]:
    fill, stroke = _COLOURS[box.kind]
    x, y = corner.x + _PADDING, corner.y
    dashes = ' stroke-dasharray="4 3"' if box.kind == "side" else ""
    return [
        f'<rect x="{_number(corner.x)}" y="{_number(y)}" width="{width}" height="{_BOX_HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="{stroke}"{dashes}/>',
        _text(box.name, Point(x, y + 20), _NAME_PIXELS, "#111"),
        _text(box.what, Point(x, y + 36), _WHAT_PIXELS, "#555"),
    ]


def _text(shown: str, at: Point, pixels: int, colour: str) -> str:
    where = f'x="{_number(at.x)}" y="{_number(at.y)}"'
    return f'<text {where} font-size="{pixels}" fill="{colour}">{_clean(shown)}</text>'


def _line(layout: Layout, edge: tuple[str, str], *, dashed: bool) -> str:
    points = layout.lines[edge]
    path = [f"M{_number(points[0].x)} {_number(points[0].y)}"]
    for index in range(1, len(points)):
        before, after = points[index - 1], points[index]
        if before.y == after.y:
            path.append(f"L{_number(after.x)} {_number(after.y)}")
        else:
            bend = _number((before.x + after.x) / 2)
            path.append(f"C{bend} {_number(before.y)} {bend} {_number(after.y)} {_number(after.x)} {_number(after.y)}")
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="{" ".join(path)}" fill="none" stroke="#777"{dashes} marker-end="url(#end)"/>'


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _clean(shown: str) -> str:
    """For XML, which has no way to write most control characters."""
    return escape("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in shown))
