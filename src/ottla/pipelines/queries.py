"""The outputs of a pipeline as streaming queries: each sink, and each source or step that sends records away.

`planned` says which there are, without Spark; `query_writer` makes a query for one of them. Which of them share one is
not known here, nor is when they are started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.pipelines import formats
from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.frames import Frames, path_of, sends_away
from ottla.pipelines.graph import Graph
from ottla.pipelines.names import SIDE_ENDING
from ottla.pipelines.rows_out import Counting, RowsOut
from ottla.pipelines.spec import OutputMode, Pipeline, Place, Sink, TableSink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.pipelines.tables.table import LoggedTable

QUERY_ID = "sql.streaming.queryId"
"""The property of Spark's threads that says which query they work for."""


class QueryUnknown(OttlaError):
    """A batch that cannot be told from those of other queries, so that it cannot be written exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """An output of a pipeline, and the query that would write it alone."""

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
    """The outputs of a pipeline: its sinks, in the order of the file, then what is sent away."""
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
    return f"{checkpoints_of(pipeline)}/{query}"


def checkpoints_of(pipeline: Pipeline) -> str:
    """Where the queries of a pipeline remember how far they are."""
    return path_of(pipeline, pipeline.checkpoints).rstrip("/")


def query_writer(plan: QueryPlan, frames: Frames, rows_out: RowsOut) -> DataStreamWriter:
    """The query, ready for its name, its checkpoint and its trigger."""
    sink = plan.sink
    if sink is None:
        side = frames.side_frame(plan.node)
        assert side is not None, "it was planned because there is one"
        return side.writeStream.format("ottla").option("kafka.bootstrap.servers", frames.bootstrap)
    frame = frames.frame(sink.input)
    refuse_connect(sink, frame)
    if isinstance(sink, TopicSink):
        return _topic_writer(sink, frame, frames, rows_out)
    if isinstance(sink, TableSink):
        batches = TableBatches(sink, path_of(frames.pipeline, sink.path), rows_out)
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


def topic_sink_options(sink: TopicSink, frames: Frames) -> dict[str, str]:
    """As `format("ottla")` takes them for writing."""
    return {"kafka.bootstrap.servers": frames.bootstrap, **sink.options, "topic": sink.topic}


def _topic_writer(sink: TopicSink, frame: DataFrame, frames: Frames, rows_out: RowsOut) -> DataStreamWriter:
    options = topic_sink_options(sink, frames)
    writer = records_of(sink, frame).writeStream.outputMode(sink.mode)
    if sink.mode == "append":
        return writer.format("ottla").options(**options)
    return writer.foreachBatch(TopicBatches(options, rows_out))


class TopicBatches:
    """Writes each batch to a topic once, for what a sink of Spark's Python API is refused: update mode."""

    def __init__(self, options: Mapping[str, str], rows_out: RowsOut) -> None:
        self._options = dict(options)
        self._rows_out = rows_out

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        from ottla.spark import exactly_once_batches

        counting = Counting()
        exactly_once_batches(application_of(batch), self._options)(counting.counted(batch), batch_id)
        counting.tell(self._rows_out, batch_id)


# --- tables -------------------------------------------------------------------------------------------


def opened_table(sink: TableSink, path: str) -> LoggedTable[DataFrame]:
    """The table that a sink writes."""
    from ottla.pipelines.tables import open_table

    return open_table(
        path,
        partition_by=sink.partition_by,
        keys=sink.keys,
        deleted=sink.deleted,
        order=sink.order,
        file_bytes_min=sink.file_bytes_min,
    )


class TableBatches:
    """Writes each batch to a table once."""

    def __init__(self, sink: TableSink, path: str, rows_out: RowsOut) -> None:
        self._table = opened_table(sink, path)
        self._rows_out = rows_out

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        counting = Counting()
        self._table.write_batch(counting.counted(batch), application=application_of(batch), batch_id=batch_id)
        counting.tell(self._rows_out, batch_id)


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
    return "update" if sink.keys and is_grouped(frame) else "append"


def is_grouped(frame: DataFrame) -> bool:
    """Whether rows of the stream are grouped: only then does update mode differ, and joins refuse it."""
    plan = getattr(frame, "_jdf", None)
    # Spark marks what is a stream in its plans by a tilde.
    return plan is not None and "~Aggregate" in str(plan.queryExecution().analyzed().toString())
