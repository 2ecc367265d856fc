"""Sources and steps as frames: options, paths, sessions, and what is told when one of them cannot be made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.checking import WithoutRows
from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.frames import Frames, path_of, sends_away, topic_options
from ottla.pipelines.graph import graph
from ottla.pipelines.python_steps import loaded
from ottla.pipelines.reading import load
from ottla.pipelines.spec import Json, Pipeline, Place, PythonStep, Rule, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Place("pipelines/orders.yaml", 3)


def source(
    *, latest_by_key: bool = False, starting: str = "earliest", options: dict[str, str] | None = None
) -> TopicSource:
    return TopicSource(
        name="orders",
        place=HERE,
        topic="orders-v1",
        format=Json("id BIGINT"),
        latest_by_key=latest_by_key,
        starting=starting,
        options=options or {},
    )


def pipeline_of(tmp_path: Path, text: str) -> Pipeline:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    return load(path)


def frames_of(pipeline: Pipeline, spark: SparkSession) -> Frames:
    made = graph(pipeline)
    return Frames(pipeline, made, spark, bootstrap="localhost:1", opener=lambda own: WithoutRows(pipeline, own))


def python_step(function: str) -> PythonStep:
    return PythonStep(name="scored", place=HERE, function=function, inputs=("orders",))


# --- options and paths --------------------------------------------------------------------------------


def test_a_stream_starts_where_the_source_says_and_sees_no_aborted_records() -> None:
    options = topic_options(source(starting="-10m"), bootstrap="b:1", streaming=True, headers=False)
    assert options == {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "orders-v1",
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "-10m",
    }


def test_options_of_the_source_come_before_ours_however_they_are_spelt() -> None:
    given = {"KAFKA.isolation.level": "read_uncommitted", "maxOffsetsPerTrigger": "5"}
    options = topic_options(source(options=given), bootstrap="b:1", streaming=True, headers=True)
    assert options["KAFKA.isolation.level"] == "read_uncommitted"
    assert "kafka.isolation.level" not in options
    assert (options["maxOffsetsPerTrigger"], options["includeHeaders"]) == ("5", "true")


def test_a_table_of_the_latest_is_read_from_the_start_and_whole() -> None:
    given = {"maxOffsetsPerTrigger": "5"}
    options = topic_options(source(latest_by_key=True, options=given), bootstrap="b:1", streaming=False, headers=False)
    assert options["startingOffsets"] == "earliest"
    assert "maxOffsetsPerTrigger" not in options


def test_paths_begin_where_the_pipelines_file_is() -> None:
    pipeline = Pipeline(name="p", place=HERE, checkpoints="state", sources={}, steps={}, sinks={})
    assert path_of(pipeline, "tables/a") == str(Path("pipelines/tables/a").resolve())
    assert path_of(pipeline, "/data/a") == "/data/a"
    assert path_of(pipeline, "s3a://bucket/a") == "s3a://bucket/a"


def test_only_what_has_a_topic_for_it_sends_records_away() -> None:
    where = "id > 0"
    routed = Rule("r", HERE, where, "route", "elsewhere")
    dropped = Rule("d", HERE, where, "drop")
    step = PythonStep(name="s", place=HERE, function="m:f", inputs=(), expect=(dropped,))
    assert not sends_away(source())
    assert not sends_away(step)
    assert sends_away(PythonStep(name="s", place=HERE, function="m:f", inputs=(), expect=(dropped, routed)))
    assert sends_away(TopicSource(name="o", place=HERE, topic="t", format=Json("id INT"), bad="t.bad"))


# --- functions in Python ------------------------------------------------------------------------------


def test_a_module_beside_the_pipelines_file_is_found_and_not_taken_from_another_pipeline(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps_of_a_test.py").write_text(f"def score(frame):\n    return '{name}'\n")
    found = [loaded(python_step("steps_of_a_test:score"), directory=tmp_path / name) for name in ("one", "two")]
    assert [function(None) for function in found] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("x = 1\n", "broken_steps_a:score", "broken_steps_a has no function score"),
        ("import nothing_like_this\n", "broken_steps_b:score", "No module named 'nothing_like_this'"),
        ("def score(frame)\n", "broken_steps_c:score", "broken_steps_c cannot be loaded: SyntaxError"),
        ("1 / 0\n", "broken_steps_d:score", r"ZeroDivisionError: division by zero \(broken_steps_d.py:1\)"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_told_with_the_place_of_its_step(
    tmp_path: Path, text: str, function: str, message: str
) -> None:
    (tmp_path / f"{function.partition(':')[0]}.py").write_text(text)
    with pytest.raises(PipelineInvalid, match=rf"orders\.yaml:3: step `scored`: .*{message}"):
        loaded(python_step(function), directory=tmp_path)


# --- frames -------------------------------------------------------------------------------------------

SEVERAL = """\
pipeline: several
spark: {spark.sql.shuffle.partitions: 3}
sources:
  orders: {topic: orders, format: json, schema: "id BIGINT, at TIMESTAMP", watermark: at 1 minute}
  products: {topic: products, format: json, schema: "id BIGINT, price DOUBLE", read: latest}
  uploads: {files: in, format: csv, schema: "id BIGINT", stream: true}
steps:
  joined: SELECT o.id, o.at, p.price FROM Orders o LEFT JOIN products p USING (id)
  twice: {python: "steps_of_several:twice", from: [joined, uploads]}
  wrong: {python: "steps_of_several:wrong", from: [joined]}
  unlucky: {python: "steps_of_several:unlucky", from: [joined]}
sinks:
  out: {from: twice, topic: out}
"""
STEPS = """
def twice(joined, uploads):
    return joined.select("id").union(uploads)

def wrong(joined):
    return joined.columns

def unlucky(joined):
    return joined.select("no such column")
"""


def test_frames_are_streams_where_their_sources_are_and_have_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "steps_of_several.py").write_text(STEPS)
    (tmp_path / "in").mkdir()
    frames = frames_of(pipeline_of(tmp_path, SEVERAL), spark)
    assert [frames.frame(name).isStreaming for name in ("orders", "products", "joined", "twice")] == [
        True,
        False,
        True,
        True,
    ]
    added = ["_key", "_topic", "_partition", "_offset", "_timestamp"]
    assert frames.frame("orders").columns == ["id", "at", *added]
    assert frames.frame("products").columns == ["id", "price", *added]
    assert frames.frame("twice").columns == ["id"]
    with pytest.raises(PipelineInvalid, match=r"yaml:10: step `wrong`: .* returned list, which is no frame"):
        frames.frame("wrong")
    with pytest.raises(PipelineInvalid, match=r"yaml:11: step `unlucky`: .* failed with AnalysisException"):
        frames.frame("unlucky")


def test_each_pipeline_has_views_and_settings_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    frames = frames_of(pipeline_of(tmp_path, SEVERAL), spark)
    frames.frame("joined")
    assert frames.spark.catalog.tableExists("orders")
    assert not spark.catalog.tableExists("orders")
    assert frames.spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert frames.spark.conf.get("spark.sql.session.timeZone") == "UTC"
