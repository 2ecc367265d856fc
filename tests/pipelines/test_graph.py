"""What reads what in a pipeline, in which order it can be made, and what is wrong with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.graph import graph, problems_in
from ottla.pipelines.spec import (
    FileSource,
    Pipeline,
    Place,
    PythonStep,
    Raw,
    Source,
    SqlStep,
    Step,
    TableSource,
    TopicSink,
    TopicSource,
)

HERE = Place("p.yaml", 1)


def topic(name: str, *, latest: bool = False) -> TopicSource:
    return TopicSource(name=name, place=HERE, topic=name, format=Raw(), latest_by_key=latest)


def sql(name: str, query: str, line: int = 1) -> SqlStep:
    place = Place("p.yaml", line)
    return SqlStep(name=name, place=place, sql=query, sql_place=place)


def pipeline(sources: list[Source], steps: list[Step], *sinks: str) -> Pipeline:
    return Pipeline(
        name="p",
        place=HERE,
        checkpoints="c",
        sources={source.name: source for source in sources},
        steps={step.name: step for step in steps},
        sinks={f"to_{name}": TopicSink(name=f"to_{name}", place=HERE, input=name, topic="t") for name in sinks},
    )


def test_a_step_comes_after_all_that_it_reads() -> None:
    late_first: list[Step] = [sql("c", "SELECT * FROM b, a"), sql("b", "SELECT * FROM a")]

    assert graph(pipeline([topic("a")], late_first, "c")).order == ("a", "b", "c")


def test_steps_that_do_not_depend_on_each_other_keep_the_order_of_the_file() -> None:
    steps: list[Step] = [sql(name, "SELECT * FROM a") for name in ("z", "y", "x")]

    assert graph(pipeline([topic("a")], steps, "x")).order == ("a", "z", "y", "x")


def test_inputs_have_the_names_that_they_were_declared_with() -> None:
    made = graph(pipeline([topic("Orders")], [sql("big", "SELECT * FROM ORDERS o JOIN orders")], "big"))

    assert made.inputs("big") == ("Orders",)
    assert made.inputs("Orders") == ()


def test_a_function_gets_its_inputs_in_its_own_order() -> None:
    step = PythonStep(name="s", place=HERE, function="m:f", inputs=("b", "a"))

    assert graph(pipeline([topic("a"), topic("b")], [step], "s")).inputs("s") == ("b", "a")


def test_it_is_known_who_uses_a_node() -> None:
    steps: list[Step] = [sql("b", "SELECT * FROM a"), sql("c", "SELECT * FROM a, b")]
    made = graph(pipeline([topic("a")], steps, "a", "c"))

    assert made.used_by("a") == ("b", "c")
    assert made.used_by("c") == ()
    assert made.sinks_of("a") == ("to_a",)
    assert made.sinks_of("b") == ()


def test_what_reads_a_stream_is_a_stream() -> None:
    files = FileSource(name="f", place=HERE, path="in", format="csv", stream=True)
    table = TableSource(name="t", place=HERE, path="tables/t")
    steps: list[Step] = [sql("still", "SELECT * FROM t JOIN l"), sql("moving", "SELECT * FROM still JOIN a")]
    made = graph(pipeline([topic("a"), topic("l", latest=True), files, table], steps, "moving"))

    assert made.streams == {"a", "f", "moving"}


def test_tables_of_another_catalog_are_not_ours_to_know() -> None:
    made = graph(pipeline([topic("a")], [sql("b", "SELECT * FROM a JOIN warehouse.prices")], "b"))

    assert made.inputs("b") == ("a",)


def test_what_nothing_uses_is_a_warning() -> None:
    made = graph(pipeline([topic("a"), topic("b")], [sql("c", "SELECT * FROM a")], "a"))

    assert [warning.what for warning in made.warnings] == ["nothing uses `b`", "nothing uses `c`"]


def test_a_name_that_nobody_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(PipelineInvalid, match=r"p.yaml:8: .*`ordres`.* Write `orders`"):
        graph(pipeline([topic("orders")], [sql("b", "SELECT *\nFROM ordres", 7)], "b"))


def test_the_way_round_a_circle_is_shown() -> None:
    steps: list[Step] = [
        sql("a", "SELECT * FROM c", 3),
        sql("b", "SELECT * FROM a", 4),
        sql("c", "SELECT * FROM b, s", 5),
    ]

    with pytest.raises(PipelineInvalid, match=r"p.yaml:3: .*: `a` reads `c`, which reads `b`, which reads `a`\."):
        graph(pipeline([topic("s")], steps, "c"))


def test_a_node_that_is_declared_with_mistakes_is_no_unknown_name() -> None:
    made = pipeline([topic("a")], [sql("c", "SELECT * FROM a, Broken")], "c", "broken")

    assert problems_in(made, unread=["broken"]) == []
    assert len(problems_in(made)) == 2


@given(st.integers(1, 12), st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11))))
def test_an_order_is_found_exactly_when_there_is_one(count: int, edges: set[tuple[int, int]]) -> None:
    reads = {step: sorted({other for one, other in edges if one == step and other < count}) for step in range(count)}
    steps: list[Step] = [
        sql(f"n{step}", "SELECT * FROM " + ", ".join(["a", *(f"n{other}" for other in reads[step])]))
        for step in range(count)
    ]
    made = pipeline([topic("a")], steps, "n0")

    if _has_circle(reads):
        with pytest.raises(PipelineInvalid, match="circle"):
            graph(made)
    else:
        found = graph(made)
        assert sorted(found.order) == sorted(["a", *made.steps])
        position = {name: index for index, name in enumerate(found.order)}
        assert all(position[read] < position[name] for name in found.order for read in found.inputs(name))


def _has_circle(reads: dict[int, list[int]]) -> bool:
    """By the closure of the relation: a node that reaches itself is in a circle."""
    reached = {step: set(others) for step, others in reads.items()}
    for _ in reads:
        for step in reads:
            reached[step] |= {far for near in reached[step] for far in reached[near]}
    return any(step in others for step, others in reached.items())
