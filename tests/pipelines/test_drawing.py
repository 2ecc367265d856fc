"""A pipeline is drawn as text for a terminal and as a picture in SVG."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ottla.pipelines.drawing import svg, text
from ottla.pipelines.graph import Graph, graph
from ottla.pipelines.layers import PASSAGE_HEIGHT, Size, laid_out
from ottla.pipelines.reading import load
from ottla.pipelines.spec import Pipeline, Place, Raw, TableSink, TopicSource

DRAWN = Path(__file__).parent / "drawn"
SVG = "{http://www.w3.org/2000/svg}"
HERE = Place("p.yaml", 1)


@pytest.fixture(scope="module")
def orders() -> tuple[Pipeline, Graph]:
    pipeline = load(DRAWN / "orders.yaml")
    return pipeline, graph(pipeline)


def hostile() -> tuple[Pipeline, Graph]:
    """Names that would be markup, if they were not escaped."""
    source = TopicSource(name="a", place=HERE, topic="t", format=Raw())
    sink = TableSink(name="b", place=HERE, input="a", path='</text><script>"&\x00\n')
    pipeline = Pipeline(name="<p>&", place=HERE, checkpoints="c", sources={"a": source}, steps={}, sinks={"b": sink})
    return pipeline, graph(pipeline)


def test_the_text_is_as_it_was_when_it_was_last_read(orders: tuple[Pipeline, Graph]) -> None:
    assert text(*orders) == (DRAWN / "orders.txt").read_text(encoding="utf-8")


def test_the_picture_is_as_it_was_when_it_was_last_looked_at(orders: tuple[Pipeline, Graph]) -> None:
    assert svg(*orders) == (DRAWN / "orders.svg").read_text(encoding="utf-8")


def test_every_box_of_the_picture_is_inside_of_it(orders: tuple[Pipeline, Graph]) -> None:
    root = ElementTree.fromstring(svg(*orders))
    group = root.find(f"{SVG}g")
    assert group is not None
    left, top = (float(number) for number in re.findall(r"[\d.]+", group.attrib["transform"]))

    boxes = group.findall(f"{SVG}rect")
    assert len(boxes) == 12
    for box in boxes:
        assert left + float(box.attrib["x"]) + float(box.attrib["width"]) <= float(root.attrib["width"])
        assert top + float(box.attrib["y"]) + float(box.attrib["height"]) <= float(root.attrib["height"])


def test_names_are_escaped_in_the_picture() -> None:
    root = ElementTree.fromstring(svg(*hostile()))

    assert root.find(f".//{SVG}script") is None
    assert root.findtext(f"{SVG}title") == "<p>&"


def test_the_picture_asks_for_nothing_from_elsewhere(orders: tuple[Pipeline, Graph]) -> None:
    picture = svg(*orders).replace('xmlns="http://www.w3.org/2000/svg"', "")

    assert "http" not in picture
    assert "href" not in picture


def test_a_source_and_a_sink_of_one_name_are_two_boxes() -> None:
    pipeline, _ = hostile()
    sink = TableSink(name="a", place=HERE, input="a", path="t")
    both = Pipeline(name="p", place=HERE, checkpoints="c", sources=pipeline.sources, steps={}, sinks={"a": sink})

    assert svg(both, graph(both)).count('rx="6"') == 2


# --- where boxes go -----------------------------------------------------------------------------------


def test_boxes_of_one_column_do_not_overlap() -> None:
    layout = laid_out({name: Size(50, 20) for name in "abc"}, [], dict.fromkeys("abc", 0))

    tops = sorted(corner.y for corner in layout.corners.values())
    assert all(below - above >= 20 for above, below in pairwise(tops))


def test_a_line_that_passes_a_column_runs_between_its_boxes() -> None:
    sizes = {name: Size(50, 20) for name in ("start", "one", "two", "end")}
    edges = [("start", "one"), ("start", "two"), ("start", "end"), ("one", "end")]
    layout = laid_out(sizes, edges, {"start": 0, "one": 1, "two": 1, "end": 2})

    passage = layout.lines["start", "end"][1]
    for name in ("one", "two"):
        top = layout.corners[name].y
        assert passage.y <= top - PASSAGE_HEIGHT / 2 or passage.y >= top + 20 + PASSAGE_HEIGHT / 2


def test_boxes_stand_in_the_order_of_what_they_read() -> None:
    sizes = {name: Size(50, 20) for name in ("a", "b", "of_b", "of_a")}
    layout = laid_out(sizes, [("a", "of_a"), ("b", "of_b")], {"a": 0, "b": 0, "of_a": 1, "of_b": 1})

    assert (layout.corners["a"].y < layout.corners["b"].y) == (layout.corners["of_a"].y < layout.corners["of_b"].y)
