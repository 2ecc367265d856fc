"""The streaming queries of a pipeline: one for each sink, and one for each source or step that sends records away.

`planned` says which there are, without Spark; `start` starts one. How often and when is the runner's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.errors import OttlaError
from ottla.pipelines import formats
from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.frames import Frames, path_of, sends_away
from ottla.pipelines.graph import Graph
from ottla.pipelines.names import SIDE_ENDING
from ottla.pipelines.spark_errors import problem_of
from ottla.pipelines.spec import OutputMode, Pipeline, Place, Sink, TableSink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

AVAILABLE_NOW = "available-now"
QUERY_ID = "sql.streaming.queryId"
"""The property of Spark's threads that says which query they work for."""


class QueryUnknown(OttlaError):
    """A batch that cannot be told from those of other queries, so that it cannot be written exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """A query that is to run."""

    name: str
    node: str
    """The source or step whose rows it writes."""
    place: Place
    checkpoint: str
    sink: Sink | None
    """None: it writes what the node sends away, each record to its own topic."""
    topics: tuple[str, ...]
    """Where it writes to, as far as these are topics."""


def planned(pipeline: Pipeline, graph: Graph) -> tuple[QueryPlan, ...]:
    """The queries of a pipeline: those of its sinks, in the order of the file, then those of what is sent away."""
    found = [
        QueryPlan(
            name=sink.name,
            node=sink.input,
            place=sink.place,
            checkpoint=_checkpoint(pipeline, sink.name),
            sink=sink,
            topics=(sink.topic,) if isinstance(sink, TopicSink) else (),
        )
        for sink in pipeline.sinks.values()
    ]
    for name in graph.order:
        node = pipeline.sources[name] if name in pipeline.sources else pipeline.steps[name]
        if sends_away(node):
            bad = getattr(node, "bad", None)
            topics = [bad, *(rule.topic for rule in node.expect)]
            found.append(
                QueryPlan(
                    name=name + SIDE_ENDING,
                    node=name,
                    place=node.place,
                    checkpoint=_checkpoint(pipeline, name + SIDE_ENDING),
                    sink=None,
                    topics=tuple(dict.fromkeys(topic for topic in topics if topic is not None)),
                )
            )
    return tuple(found)


def _checkpoint(pipeline: Pipeline, query: str) -> str:
    return f"{path_of(pipeline, pipeline.checkpoints).rstrip('/')}/{query}"


def start(plan: QueryPlan, frames: Frames, *, trigger: str | None, hold_file: str | None = None) -> StreamingQuery:
    """Start a query. `trigger` is `available-now`, an interval, or None: as soon as there is news.

    While `hold_file` exists, the query's topics say that there is no news, so that it comes to rest after a batch.
    """
    from pyspark.errors import PySparkException

    held = frames.held_by(hold_file) if hold_file is not None else frames
    try:
        writer = _writer(plan, held).queryName(plan.name).option("checkpointLocation", plan.checkpoint)
        return writer.trigger(**trigger_of(trigger)).start()
    except PySparkException as e:
        what = f"sink `{plan.name}`" if plan.sink is not None else f"what `{plan.node}` sends away"
        raise PipelineInvalid([problem_of(e, plan.place, what=what, in_text=False)]) from e


def trigger_of(trigger: str | None) -> dict[str, Any]:
    """As `DataStreamWriter.trigger` takes it."""
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"processingTime": trigger or "0 seconds"}


def _writer(plan: QueryPlan, frames: Frames) -> DataStreamWriter:
    sink = plan.sink
    if sink is None:
        side = frames.side_frame(plan.node)
        assert side is not None, "it was planned because there is one"
        return side.writeStream.format("ottla").option("kafka.bootstrap.servers", frames.bootstrap)
    frame = frames.frame(sink.input)
    refuse_connect(sink, frame)
    if isinstance(sink, TopicSink):
        return _topic_writer(sink, frame, frames)
    if isinstance(sink, TableSink):
        batches = TableBatches(sink, path_of(frames.pipeline, sink.path))
        return frame.writeStream.outputMode(table_mode(sink, frame)).foreachBatch(batches)
    options = dict(sink.options)
    for name, value in sink.options.items():
        if name.lower() == "path":
            options[name] = path_of(frames.pipeline, value)
    return frame.writeStream.format(sink.format).outputMode(sink.mode).options(**options)


# --- topics -------------------------------------------------------------------------------------------


def records_of(sink: TopicSink, frame: DataFrame) -> DataFrame:
    """Rows as the records of a topic: key, where the sink has one, and value."""
    value = formats.as_json(formats.public_columns(frame)) if sink.value is None else formats.as_text(frame, sink.value)
    columns = [value.alias("value")]
    if sink.key is not None:
        columns.insert(0, formats.as_text(frame, sink.key).alias("key"))
    return frame.select(*columns)


def _topic_writer(sink: TopicSink, frame: DataFrame, frames: Frames) -> DataStreamWriter:
    options = {"kafka.bootstrap.servers": frames.bootstrap, **sink.options, "topic": sink.topic}
    writer = records_of(sink, frame).writeStream.outputMode(sink.mode)
    if sink.mode == "append":
        return writer.format("ottla").options(**options)
    return writer.foreachBatch(TopicBatches(options))


class TopicBatches:
    """Writes each batch to a topic once, for what a sink of Spark's Python API is refused: update mode."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        from ottla.spark import exactly_once_batches

        exactly_once_batches(application_of(batch), self._options)(batch, batch_id)


# --- tables -------------------------------------------------------------------------------------------


class TableBatches:
    """Writes each batch to a table once."""

    def __init__(self, sink: TableSink, path: str) -> None:
        from ottla.pipelines.tables import open_table

        self._table = open_table(
            path,
            partition_by=sink.partition_by,
            keys=sink.keys,
            deleted=sink.deleted,
            order=sink.order,
            file_bytes_min=sink.file_bytes_min,
        )

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self._table.write_batch(batch, application=application_of(batch), batch_id=batch_id)


def refuse_connect(sink: Sink, frame: DataFrame) -> None:
    """Raise for a sink whose batches have to be told apart, where Spark does not say which query they are of."""
    in_batches = isinstance(sink, TableSink) or (isinstance(sink, TopicSink) and sink.mode != "append")
    if in_batches and getattr(frame, "_jdf", None) is None:
        what = f"sink `{sink.name}`: tables, and topics in update or complete mode, cannot be written by Spark Connect"
        raise PipelineInvalid(
            [Problem(sink.place, what, "Run it on a Spark master, or let the topic's mode be append")]
        )


def application_of(batch: DataFrame) -> str:
    """What the batches of this query are known by: the query's id, which lives in its checkpoint."""
    context = getattr(batch.sparkSession, "_sc", None)
    found = None if context is None else context.getLocalProperty(QUERY_ID)
    if not found:
        raise QueryUnknown(
            "Spark does not say here which query this batch is of: tables, and topics in update or complete mode, "
            "need a Spark session of the program's own; Spark Connect has none"
        )
    return str(found)


def table_mode(sink: TableSink, frame: DataFrame) -> OutputMode:
    """A table by keys takes rows of windows that are still open, since later ones replace them."""
    return "update" if sink.keys and _has_aggregate(frame) else "append"


def _has_aggregate(frame: DataFrame) -> bool:
    """Whether rows of the stream are grouped: only then does update mode differ, and joins refuse it."""
    plan = getattr(frame, "_jdf", None)
    # Spark marks what is a stream in its plans by a tilde.
    return plan is not None and "~Aggregate" in str(plan.queryExecution().analyzed().toString())
