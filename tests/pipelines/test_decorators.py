"""A pipeline declared in Python is the same as one declared in YAML, and is checked in the same way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.graph import graph
from ottla.pipelines.reading import load
from ottla.pipelines.spec import Pipeline, Place, PythonStep

HEAD = 'from ottla.pipelines import decorators as op\npipeline = op.pipeline("p")\n'
SOURCE = 'pipeline.topic("a")\n'
SINK = 'pipeline.to_topic("b", from_="a")\n'

IN_PYTHON = """\
from ottla.pipelines import decorators as op

pipeline = op.pipeline("shop", bootstrap="one:9092", checkpoints="state", trigger="5 seconds", spark={"spark.x": 4})
pipeline.topic(
    "orders",
    topic="shop.orders",
    format="json",
    schema="id BIGINT, product STRING, time TIMESTAMP",
    starting="-10m",
    bad="shop.bad",
    watermark="time 2 minutes",
    expect={
        "known": {"where": "id IS NOT NULL", "otherwise": "drop"},
        "early": {"where": "time < _timestamp", "otherwise": {"route": "shop.late"}},
    },
    options={"maxOffsetsPerTrigger": 1000, "failOnDataLoss": False},
)
pipeline.topic("products", format="csv", separator=";", schema="product STRING, price DOUBLE", read="latest")
pipeline.table("countries", path="tables/countries", expect={"coded": "code IS NOT NULL"})
pipeline.files("uploads", path="in", format="csv", schema="id BIGINT", stream=True, options={"header": True})


@pipeline.step(watermark="time 1 hour", expect={"priced": "price IS NOT NULL"})
def priced(orders, products):
    return orders.join(products, "product", "left")


pipeline.sql("all_ids", "SELECT id FROM priced UNION ALL SELECT id FROM uploads")
pipeline.to_topic("ids", from_="all_ids", key="id", value="id", mode="append", options={"kafka.linger.ms": 5})
pipeline.to_table("orders", from_="priced", path="t", keys=["id"], partition_by="date(time)", deleted="price < 0",
                  order="time", file_bytes_min=1000)
pipeline.to_format("shown", from_="priced", format="console", mode="update", options={"truncate": False})
"""
IN_YAML = """\
pipeline: shop
bootstrap: one:9092
checkpoints: state
trigger: 5 seconds
spark: {spark.x: 4}
sources:
  orders:
    topic: shop.orders
    format: json
    schema: id BIGINT, product STRING, time TIMESTAMP
    starting: -10m
    bad: shop.bad
    watermark: time 2 minutes
    expect:
      known: {where: id IS NOT NULL, otherwise: drop}
      early: {where: time < _timestamp, otherwise: {route: shop.late}}
    options: {maxOffsetsPerTrigger: 1000, failOnDataLoss: false}
  products: {topic: products, format: csv, separator: ";", schema: "product STRING, price DOUBLE", read: latest}
  countries: {table: tables/countries, expect: {coded: code IS NOT NULL}}
  uploads: {files: in, format: csv, schema: id BIGINT, stream: true, options: {header: true}}
steps:
  priced:
    python: "shop_pipeline:priced"
    from: [orders, products]
    watermark: time 1 hour
    expect: {priced: price IS NOT NULL}
  all_ids: SELECT id FROM priced UNION ALL SELECT id FROM uploads
sinks:
  ids: {from: all_ids, topic: ids, key: id, value: id, options: {kafka.linger.ms: 5}}
  orders: {from: priced, table: t, keys: [id], partition_by: date(time), deleted: price < 0, order: time,
           file_bytes_min: 1000}
  shown: {from: priced, format: console, mode: update, options: {truncate: false}}
"""


class Reader:
    """Reads pipelines from texts in Python."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, text: str, name: str = "shop_pipeline.py") -> Pipeline:
        path = self.directory / name
        path.write_text(text)
        return load(path)

    def refused(self, text: str, name: str = "shop_pipeline.py") -> list[str]:
        with pytest.raises(PipelineInvalid) as caught:
            self(text, name)
        return str(caught.value).replace(f"{self.directory}/", "").splitlines()


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Reader]:
    """Modules and paths that loading adds are taken away again."""
    modules, paths = dict(sys.modules), list(sys.path)
    yield Reader(tmp_path)
    sys.path[:] = paths
    for name in set(sys.modules) - set(modules):
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def without_places(value: Any) -> Any:
    """A pipeline whose parts all stand at one place."""
    nowhere = Place("", 0)
    if isinstance(value, dict):
        return {name: without_places(part) for name, part in value.items()}
    changes: dict[str, Any] = {"place": nowhere}
    if isinstance(value, Pipeline):
        changes.update({part: without_places(dict(getattr(value, part))) for part in ("sources", "steps", "sinks")})
    if hasattr(value, "sql_place"):
        changes["sql_place"] = nowhere
    if getattr(value, "expect", ()):
        changes["expect"] = tuple(replace(rule, place=nowhere) for rule in value.expect)
    return replace(value, **changes)


def test_python_and_yaml_declare_the_same_pipeline(read: Reader, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(IN_YAML)

    assert without_places(read(IN_PYTHON)) == without_places(load(tmp_path / "shop.yaml"))


def test_parts_stand_where_they_are_declared(read: Reader) -> None:
    pipeline = read(IN_PYTHON)

    assert pipeline.place.line == 3
    assert [source.place.line for source in pipeline.sources.values()] == [4, 18, 19, 20]
    assert [step.place.line for step in pipeline.steps.values()] == [23, 28]
    assert pipeline.place.file.endswith("shop_pipeline.py")


def test_the_function_of_a_step_is_found_again_by_its_name(read: Reader) -> None:
    step = read(IN_PYTHON).steps["priced"]

    assert isinstance(step, PythonStep)
    module, _, name = step.function.partition(":")
    assert callable(getattr(sys.modules[module], name))


def test_a_step_may_have_another_name_than_its_function_and_its_parameters(read: Reader) -> None:
    text = f'{HEAD}{SOURCE}@pipeline.step(name="big", inputs=["a"])\ndef only(frame):\n    return frame\n'
    pipeline = read(text + 'pipeline.to_topic("b", from_="big")\n')

    assert pipeline.steps["big"] == PythonStep(
        name="big", place=Place(pipeline.place.file, 4), function="shop_pipeline:only", inputs=("a",)
    )


def test_functions_of_other_modules_are_steps_too(read: Reader, tmp_path: Path) -> None:
    (tmp_path / "shop_steps.py").write_text("def scored(a):\n    return a\n")
    step = read(f"import shop_steps\n{HEAD}{SOURCE}{SINK}pipeline.step()(shop_steps.scored)\n").steps["scored"]

    assert isinstance(step, PythonStep)
    assert step.function == "shop_steps:scored"


def test_a_file_that_was_changed_is_read_anew(read: Reader) -> None:
    first = read(f"{HEAD}{SOURCE}{SINK}")
    second = read(f"{HEAD}{SOURCE}{SINK.replace('b', 'c')}")

    assert (list(first.sinks), list(second.sinks)) == (["b"], ["c"])


def test_what_is_wrong_in_a_query_is_told_with_its_own_line(read: Reader) -> None:
    query = 'pipeline.sql(\n    "c",\n    """\n    SELECT *\n    FROM nowhere\n    """,\n)\n'
    by_name = "pipeline.sql(\n    'd',\n    query='SELECT * FROM missing',\n)\n"

    assert [
        line.partition(":")[2].partition(":")[0] for line in read.refused(HEAD + SOURCE + SINK + query + by_name)
    ] == [
        "9",
        "14",
    ]


def test_annotations_are_what_the_file_says_and_not_texts(read: Reader) -> None:
    read(f"{HEAD}{SOURCE}{SINK}def doubled(number: int) -> float:\n    return number * 2.0\n")

    assert sys.modules["shop_pipeline"].doubled.__annotations__ == {"number": int, "return": float}


MISTAKES = {
    "from ottla.pipelines import decorators as op\n": [
        'shop_pipeline.py:1: no pipeline is declared here. Write one `pipeline = op.pipeline("some-name")` at the top '
        "of the module."
    ],
    f'{HEAD}other = op.pipeline("q")\n': [
        'shop_pipeline.py:1: 2 pipelines are declared here. Write one `pipeline = op.pipeline("some-name")` at the top '
        "of the module."
    ],
    f"{HEAD}{SOURCE}{SINK}pipeline.topic(": [
        "shop_pipeline.py:5: the file fails with SyntaxError: '(' was never closed. Correct it."
    ],
    f"{HEAD}1 / 0\n": ["shop_pipeline.py:3: the file fails with ZeroDivisionError: division by zero. Correct it."],
    f'{HEAD}{SINK}pipeline.topic("a", formt="json")\n': [
        "shop_pipeline.py:4: the file fails with TypeError: Declaration.topic() got an unexpected keyword argument "
        "'formt'. Correct it."
    ],
    f'{HEAD}{SINK}pipeline.topic("a", format="jsno", read="late")\n': [
        "shop_pipeline.py:4: the source `a`: `format` cannot be `jsno`. Write `json`.",
        "shop_pipeline.py:4: the source `a`: `read` cannot be `late`. Write `latest`.",
    ],
    f"{HEAD}{SOURCE}{SOURCE}{SINK}": [
        "shop_pipeline.py:4: `a` is declared twice among the sources; the first one is in line 3. Keep one of the two."
    ],
    f"{HEAD}{SOURCE}{SINK}@pipeline.step()\ndef c(A):\n    return A\n": [
        "shop_pipeline.py:5: the step `c` reads `A`, and there is no source or step of that name. Write `a`."
    ],
    f"{HEAD}{SOURCE}{SINK}@pipeline.step()\ndef c(*frames):\n    return frames\n": [
        "shop_pipeline.py:5: it cannot be told from the parameters of the function what the step reads. Call them as "
        "the sources and steps are called, or give `inputs=`.",
        "shop_pipeline.py:5: the step `c` reads `frames`, and there is no source or step of that name. Declare it; "
        "there are `a`, `c`.",
    ],
    f"{HEAD}{SOURCE}{SINK}pipeline.step(name='c')(lambda a: a)\n": [
        "shop_pipeline.py:5: the step `<lambda>` is a function inside of something else. Define it with `def` at the "
        "top of a module."
    ],
    f"{HEAD}{SOURCE}{SINK}@pipeline.step(name='c')\ndef _(a):\n    return a\n_ = 5\n": [
        "shop_pipeline.py:5: the function `_` cannot be found again under its name. Give each function a name of its "
        "own, and let it be a part of its module."
    ],
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_told_with_their_lines(read: Reader, text: str) -> None:
    assert read.refused(text) == MISTAKES[text]


def test_a_file_that_fails_leaves_no_module_behind(read: Reader) -> None:
    read.refused(f"{HEAD}1 / 0\n")

    assert "shop_pipeline" not in sys.modules


@pytest.mark.parametrize("name", ["my-orders.py", "json.py", "yaml.py", "pyspark.py", "ottla.py"])
def test_a_file_that_cannot_be_a_module_is_refused(read: Reader, name: str) -> None:
    assert "cannot be loaded as a module" in read.refused(f"{HEAD}{SOURCE}{SINK}", name)[0]


def test_a_python_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineInvalid, match="there is no such file"):
        load(tmp_path / "missing.py")


def test_the_examples_of_the_manual_declare_the_same_graph_twice(read: Reader, tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "pipelines" / "file.md").read_text(encoding="utf-8")
    in_yaml, in_python = (
        manual.split(f"```{language}\n{start}")[1].split("```")[0]
        for language, start in (("yaml", "pipeline:"), ("python", ""))
    )
    (tmp_path / "shop.yaml").write_text(f"pipeline:{in_yaml}")
    first, second = load(tmp_path / "shop.yaml"), read(in_python)

    assert without_places(dict(first.sources)) == without_places(dict(second.sources))
    assert without_places(dict(first.sinks)) == without_places(dict(second.sinks))
    assert graph(first).input_names == graph(second).input_names
