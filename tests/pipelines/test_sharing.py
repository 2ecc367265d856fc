"""Which outputs share a query, now and when a pipeline is started again with another file; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.graph import graph
from ottla.pipelines.names import why_not_sink
from ottla.pipelines.queries import QueryPlan
from ottla.pipelines.reading import load
from ottla.pipelines.shared_query import SIDES
from ottla.pipelines.sharing import (
    NAME_CHARACTERS_MAX,
    Remembered,
    SharedPlan,
    assigned,
    name_of,
    only_stream,
    remembrance,
)
from ottla.pipelines.spec import Place


def plans(*names: str) -> list[QueryPlan]:
    place = Place("shop.yaml", 7)
    return [
        QueryPlan(name=name, node=name, place=place, checkpoint=f"state/{name}", sink=None, topics=()) for name in names
    ]


def queries(
    names: str, sources: dict[str, str], remembered: dict[str, Remembered] | None = None
) -> list[QueryPlan | SharedPlan]:
    return assigned(
        plans(*names.split()), remembered or {}, source_of=lambda plan: sources.get(plan.name), checkpoints="state"
    )


def shape(found: list[QueryPlan | SharedPlan]) -> dict[str, str | list[str]]:
    """By name: the outputs that share a query, or the checkpoint of one that is alone."""
    return {
        query.name: [output.name for output in query.outputs] if isinstance(query, SharedPlan) else query.checkpoint
        for query in found
    }


def test_outputs_of_one_topic_share_a_query_and_the_others_have_their_own() -> None:
    found = queries("revenue orders orders.side clicks lines", {"orders": "o", "orders.side": "o", "clicks": "c"})

    assert shape(found) == {
        "revenue": "state/revenue",
        "lines": "state/lines",
        "orders+orders.side": ["orders", "orders.side"],
        "clicks": "state/clicks",
    }
    shared = next(query for query in found if isinstance(query, SharedPlan))
    assert (shared.source, shared.checkpoint) == ("o", "state/orders+orders.side")


def test_what_was_shared_stays_so_and_an_output_that_is_added_begins_alone() -> None:
    sources = dict.fromkeys(("a", "b", "c"), "o")
    first = queries("a b", sources)
    remembered = remembrance(first, {})

    assert shape(queries("a b c", sources, remembered)) == {"a+b": ["a", "b"], "c": "state/c"}


def test_outputs_that_are_added_together_share_another_query() -> None:
    sources = dict.fromkeys(("a", "b", "c", "d"), "o")
    remembered = remembrance(queries("a b", sources), {})

    assert shape(queries("c a b d", sources, remembered)) == {"a+b": ["a", "b"], "c+d": ["c", "d"]}


def test_an_output_that_was_alone_stays_so_when_others_come() -> None:
    remembered = remembrance(queries("a", {"a": "o"}), {})

    assert shape(queries("a b", {"a": "o", "b": "o"}, remembered)) == {"a": "state/a", "b": "state/b"}


def test_an_output_that_was_away_comes_back_to_its_query() -> None:
    sources = dict.fromkeys(("a", "b", "c"), "o")
    remembered = remembrance(queries("a b c", sources), {})
    meanwhile = queries("a c", sources, remembered)

    assert shape(meanwhile) == {"a+b+c": ["a", "c"]}
    assert shape(queries("a b c", sources, remembrance(meanwhile, remembered))) == {"a+b+c": ["a", "b", "c"]}


def test_an_output_that_can_no_longer_share_its_query_is_refused_with_its_place() -> None:
    remembered = remembrance(queries("a b", {"a": "o", "b": "o"}), {})

    with pytest.raises(PipelineInvalid, match=r"shop\.yaml:7: `b` has been written together .* another name"):
        queries("a b", {"a": "o"}, remembered)
    with pytest.raises(PipelineInvalid, match="`b` has been written together"):
        queries("a b", {"a": "o", "b": "other"}, remembered)


def test_the_name_of_many_outputs_is_not_longer_than_files_allow() -> None:
    many = [f"output-{number:03d}" for number in range(50)]

    assert name_of(many[:2]) == "output-000+output-001"
    assert name_of(many) == "output-000+49"
    assert len(name_of(["x" * 300, "y"])) <= NAME_CHARACTERS_MAX + 10


def test_no_sink_can_be_called_like_what_is_sent_away_from_a_shared_query() -> None:
    assert why_not_sink("side") is None
    assert why_not_sink(SIDES) is not None


SHOP = """
pipeline: shop
sources:
  orders: {topic: orders, format: json, schema: id BIGINT}
  clicks: {topic: clicks}
  products: {topic: products, format: json, schema: id BIGINT, read: latest}
  countries: {table: countries}
  uploads: {files: in, format: csv, schema: id BIGINT, stream: true}
steps:
  priced: SELECT * FROM orders JOIN products USING (id) JOIN countries USING (id)
  both: SELECT id FROM orders UNION ALL SELECT offset FROM clicks
  scored: {python: "steps:score", from: [orders]}
  better: SELECT * FROM scored
  mixed: SELECT * FROM orders JOIN uploads USING (id)
  goods: SELECT * FROM products
sinks:
  out: {from: priced, topic: out}
"""


@pytest.mark.parametrize(
    ("node", "source"),
    [
        ("orders", "orders"),
        ("priced", "orders"),
        ("both", None),
        ("scored", None),
        ("better", None),
        ("mixed", None),
        ("goods", None),
    ],
)
def test_an_output_may_share_a_query_if_its_only_stream_is_a_topic_and_no_function_is_called(
    tmp_path: Path, node: str, source: str | None
) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    pipeline = load(tmp_path / "shop.yaml")

    assert only_stream(pipeline, graph(pipeline), node) == source
