"""Whether Spark takes a pipeline, before anything runs: each query in SQL is analysed against frames without rows.

Topics are not asked for that; whether they exist is another question, which a client answers. Knows what Spark can tell
about a plan, not whether the data fit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import OttlaError
from ottla.pipelines.declared_sinks import FILE_FORMATS
from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.format_support import unfit_column, unknown_format
from ottla.pipelines.formats import quoted
from ottla.pipelines.frames import Frames, Opened, path_of, sends_away
from ottla.pipelines.graph import Graph
from ottla.pipelines.queries import is_grouped, records_of, table_mode
from ottla.pipelines.spark_errors import message_of, problem_of
from ottla.pipelines.spec import (
    FileSource,
    FormatSink,
    Pipeline,
    Place,
    Sink,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ottla.client.blocking.client import Client

Looked = TypeVar("Looked")

_NOWHERE = "localhost:9092"
"""Frames need an address, and frames without rows call nobody there."""


def analysed(pipeline: Pipeline, graph: Graph, spark: SparkSession) -> None:
    """Raise PipelineInvalid with all that Spark does not take."""
    with settings_placed(pipeline):
        frames = Frames(
            pipeline, graph, spark, bootstrap=_NOWHERE, opener=lambda session: WithoutRows(pipeline, session)
        )
    try:
        problems = _looked_at(frames)
    finally:
        frames.close()
    if problems:
        raise PipelineInvalid(problems)


def _looked_at(frames: Frames) -> list[Problem]:
    pipeline, graph = frames.pipeline, frames.graph
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
    return problems


@contextmanager
def settings_placed(pipeline: Pipeline) -> Iterator[None]:
    """Tell what Spark says against the settings of a pipeline, while it is given them, as a mistake of the file."""
    from pyspark.errors import IllegalArgumentException

    try:
        yield
    except IllegalArgumentException as e:
        what = f"the settings in `spark`: {message_of(e)}"
        raise PipelineInvalid([Problem(pipeline.place, what, "Give it another value, or leave it out")]) from e


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
        # As they are: only so does Spark look whether they are there.
        if (problem := unknown_format(self._spark, source.format, read=True)) is not None:
            raise PipelineInvalid([Problem(source.place, f"source `{source.name}`: {problem.what}", problem.fix)])
        return self._opened.files(source)

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
    pipeline = frames.pipeline
    frame = frames.frame(name)
    _ = frame.schema
    node = pipeline.sources[name] if name in pipeline.sources else pipeline.steps[name]
    if name in frames.graph.streams and not frame.isStreaming:
        what = f"step `{name}` reads a stream and gives rows that are none"
        raise PipelineInvalid([Problem(node.place, what, "Let it make its frame from the frames that it is given")])
    if not sends_away(node):
        return
    side = frames.side_frame(name)
    assert side is not None, "it sends records away"
    try:
        _ = side.schema
        _refuse_unsupported(side, "append")
    except _spark_error() as e:
        what = f"what `{name}` sends away: {message_of(e)}"
        fix = "Give what is grouped a watermark, or let the rule drop or fail"
        raise PipelineInvalid([Problem(node.place, what, fix)]) from e


def _look_at_sink(frames: Frames, sink: Sink) -> None:
    frame = frames.frame(sink.input)
    what = f"sink `{sink.name}`"
    try:
        if isinstance(sink, TopicSink):
            _ = records_of(sink, frame).schema
        elif isinstance(sink, TableSink):
            _look_at_table(sink, frame, path_of(frames.pipeline, sink.path))
        else:
            _look_at_format(sink, frame)
        mode = table_mode(sink, frame) if isinstance(sink, TableSink) else sink.mode
        _refuse_unsupported(frame, mode)
    except _spark_error() as e:
        raise PipelineInvalid([problem_of(e, sink.place, what=what, in_text=False)]) from e
    except OttlaError as e:
        if isinstance(e, PipelineInvalid):
            raise
        raise PipelineInvalid([Problem(sink.place, f"{what}: {e}", "Change the sink")]) from e
    if mode != "append":
        _refuse_two_views(frames, sink, mode)


def _look_at_table(sink: TableSink, frame: DataFrame, path: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from ottla.pipelines.tables.partitions import partition_column, partition_problems

    _refuse_doubles(sink, frame)
    for expression in (*map(quoted, sink.keys), sink.deleted, sink.order):
        if expression is not None:
            # Beside the columns: alone, `max(x)` would be taken for a query of its own.
            _ = frame.select("*", F.expr(expression)).schema
    schema = json.loads(frame.schema.json())
    told = partition_problems([partition_column(text) for text in sink.partition_by], schema)
    fix = "Change `partition_by`"
    if not told:
        told, fix = _differences(sink, path, schema), "Change the sink, or write to another path"
    if told:
        raise PipelineInvalid([Problem(sink.place, f"sink `{sink.name}`: {each}", fix) for each in told])


def _differences(sink: TableSink, path: str, schema: dict[str, Any]) -> list[str]:
    """What keeps these rows from a table that is there already; its writer would find it with the first batch."""
    from ottla.pipelines.tables import table_files
    from ottla.pipelines.tables.commit_log import CommitLog
    from ottla.pipelines.tables.schemas import merged

    state = CommitLog(table_files(path)).refresh()
    if not state.exists:
        return []
    kept = {"partition_by": state.partition_by, "keys": state.keys, "order": (state.order or "",)}
    asked = {"partition_by": sink.partition_by, "keys": sink.keys, "order": (sink.order or "",)}
    told = [
        f"the table is there, and its `{name}` is {_listed(kept[name])} and not {_listed(asked[name])}"
        for name in kept
        if kept[name] != asked[name]
    ]
    return told + [f"the column {mismatch}" for mismatch in merged(state.schema, schema)[1]]


def _listed(texts: tuple[str, ...]) -> str:
    return ", ".join(f"`{text}`" for text in texts if text) or "nothing"


def _look_at_format(sink: FormatSink, frame: DataFrame) -> None:
    problem = unknown_format(frame.sparkSession, sink.format, read=False) or unfit_column(frame, sink.format)
    if problem is not None:
        raise PipelineInvalid([Problem(sink.place, f"sink `{sink.name}`: {problem.what}", problem.fix)])
    if sink.format.lower() in FILE_FORMATS:
        _refuse_doubles(sink, frame)


def _refuse_doubles(sink: Sink, frame: DataFrame) -> None:
    """Files can be written with two columns of one name, and not be read again."""
    seen = Counter(name.lower() for name in frame.columns)
    doubles = [name for name in frame.columns if seen[name.lower()] > 1]
    if doubles:
        what = f"sink `{sink.name}`: its rows have the column `{doubles[0]}` more than once"
        raise PipelineInvalid([Problem(sink.place, what, "Name the columns in a step, each with a name of its own")])


def _refuse_two_views(frames: Frames, sink: Sink, mode: str) -> None:
    """What a rule sends away is told when a group is finished, and such a sink sees groups that are not."""
    waiting, seen = [sink.input], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting += frames.graph.inputs(name)
        step = frames.pipeline.steps.get(name)
        if step is None or not any(rule.otherwise == "route" for rule in step.expect):
            continue
        if is_grouped(frames.frame(name)):
            what = f"sink `{sink.name}` has the mode {mode}, and a rule of the step `{name}`, which groups, routes rows"
            fix = "Let the mode be append, or let the rule drop or fail: of a group only the last row can be routed"
            raise PipelineInvalid([Problem(sink.place, what, fix)])


def _spark_error() -> type[Exception]:
    from pyspark.errors import PySparkException

    return PySparkException


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
