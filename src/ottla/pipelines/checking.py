"""Whether Spark takes a pipeline, before anything runs: each query in SQL is analysed against frames without rows.

Topics are not asked for that; whether they exist is another question, which a client answers. Knows what Spark can tell
about a plan, not whether the data fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.errors import OttlaError
from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.formats import quoted
from ottla.pipelines.frames import Frames, Opened, sends_away
from ottla.pipelines.graph import Graph
from ottla.pipelines.queries import records_of, refuse_connect, table_mode
from ottla.pipelines.spark_errors import problem_of
from ottla.pipelines.spec import FileSource, Pipeline, Place, Sink, TableSink, TableSource, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ottla.client.blocking.client import Client

Looked = TypeVar("Looked")

_NOWHERE = "localhost:9092"
"""Frames need an address, and frames without rows call nobody there."""


def analysed(pipeline: Pipeline, graph: Graph, spark: SparkSession) -> None:
    """Raise PipelineInvalid with all that Spark does not take."""
    frames = Frames(pipeline, graph, spark, bootstrap=_NOWHERE, opener=lambda session: WithoutRows(pipeline, session))
    problems: list[Problem] = []
    broken: set[str] = set()
    for name in graph.order:
        if not broken.isdisjoint(graph.inputs(name)):
            # What is made from something broken cannot be looked at, and is not to blame.
            broken.add(name)
        elif found := _problems(_look_at, frames, name):
            problems += found
            broken.add(name)
    for sink in pipeline.sinks.values():
        if sink.input not in broken:
            problems += _problems(_look_at_sink, frames, sink)
    if problems:
        raise PipelineInvalid(problems)


def missing_topics(pipeline: Pipeline, client: Client) -> list[Problem]:
    """A problem for each topic that is read or written and is not there."""
    admin = client.admin()
    there = {topic: admin.partition_count(topic) is not None for topic in {name for name, _ in topics_of(pipeline)}}
    return [
        Problem(place, f"there is no topic `{topic}`", f"Create it: ottla topics create {topic}")
        for topic, place in topics_of(pipeline)
        if not there[topic]
    ]


def topics_of(pipeline: Pipeline) -> list[tuple[str, Place]]:
    """Every topic that a pipeline reads or writes, with the first place that names it."""
    found: dict[str, Place] = {}
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource):
            found.setdefault(source.topic, source.place)
            if source.bad is not None:
                found.setdefault(source.bad, source.place)
    for node in (*pipeline.sources.values(), *pipeline.steps.values()):
        for rule in node.expect:
            if rule.topic is not None:
                found.setdefault(rule.topic, rule.place)
    for sink in pipeline.sinks.values():
        if isinstance(sink, TopicSink):
            found.setdefault(sink.topic, sink.place)
    return list(found.items())


class WithoutRows:
    """Sources as frames that have their columns and no rows; streams where they will be streams."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self._spark = spark
        self._opened = Opened(pipeline, spark, bootstrap=_NOWHERE, hold_file=None)

    def topic(self, source: TopicSource, *, streaming: bool, headers: bool) -> DataFrame:
        from ottla.spark.schema import ALL_COLUMNS, DEFAULT_COLUMNS, spark_schema

        return self._empty(spark_schema(columns=ALL_COLUMNS if headers else DEFAULT_COLUMNS), streaming=streaming)

    def is_small(self, source: TopicSource) -> bool:
        return False

    def table(self, source: TableSource) -> DataFrame:
        return self._opened.table(source)

    def files(self, source: FileSource) -> DataFrame:
        from ottla.pipelines.formats import schema_of

        if source.schema is None:
            return self._opened.files(source)
        return self._empty(schema_of(source.schema), streaming=source.stream)

    def _empty(self, schema: StructType, *, streaming: bool) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        if not streaming:
            return self._spark.createDataFrame([], schema)
        # Any stream will do: this one is made by Spark itself, and is never started.
        columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
        return self._spark.readStream.format("rate").load().select(*columns)


def _problems(look: Callable[[Frames, Looked], None], frames: Frames, at: Looked) -> list[Problem]:
    try:
        look(frames, at)
    except PipelineInvalid as e:
        return list(e.problems)
    return []


def _look_at(frames: Frames, name: str) -> None:
    _ = frames.frame(name).schema
    pipeline = frames.pipeline
    if sends_away(pipeline.sources[name] if name in pipeline.sources else pipeline.steps[name]):
        side = frames.side_frame(name)
        assert side is not None, "it sends records away"
        _ = side.schema


def _look_at_sink(frames: Frames, sink: Sink) -> None:
    from pyspark.errors import PySparkException

    frame = frames.frame(sink.input)
    refuse_connect(sink, frame)
    what = f"sink `{sink.name}`"
    try:
        if isinstance(sink, TopicSink):
            _ = records_of(sink, frame).schema
        elif isinstance(sink, TableSink):
            _look_at_table(sink, frame)
        mode = table_mode(sink, frame) if isinstance(sink, TableSink) else sink.mode
        _refuse_unsupported(frame, mode)
    except PySparkException as e:
        raise PipelineInvalid([problem_of(e, sink.place, what=what, in_text=False)]) from e
    except OttlaError as e:
        if isinstance(e, PipelineInvalid):
            raise
        raise PipelineInvalid([Problem(sink.place, f"{what}: {e}", "Change the sink")]) from e


def _look_at_table(sink: TableSink, frame: DataFrame) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from ottla.pipelines.tables.partitions import partition_column, partition_problems

    for expression in (*map(quoted, sink.keys), sink.deleted, sink.order):
        if expression is not None:
            _ = frame.select(F.expr(expression)).schema
    columns = [partition_column(text) for text in sink.partition_by]
    told = partition_problems(columns, json.loads(frame.schema.json()))
    if told:
        fix = "Change `partition_by`"
        raise PipelineInvalid([Problem(sink.place, f"sink `{sink.name}`: {each}", fix) for each in told])


def _refuse_unsupported(frame: DataFrame, mode: str) -> None:
    """Raise what Spark would raise when the query is started: not every query can be a stream in every mode."""
    plan, java = getattr(frame, "_jdf", None), getattr(frame.sparkSession, "_jvm", None)
    if plan is None or java is None:
        # Spark Connect does not let its plans be looked at.
        return
    modes = java.org.apache.spark.sql.streaming.OutputMode
    chosen = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(plan.queryExecution().analyzed(), chosen)
