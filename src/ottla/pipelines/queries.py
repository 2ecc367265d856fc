"""The outputs of a pipeline as streaming queries: each sink, and each source or step that sends records away.

`planned` says which there are, without Spark; `query_writer` makes a query for one of them. Which of them share one is
not known here, nor is when they are started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ottla.errors import OttlaError
from ottla.pipelines import formats
from ottla.pipelines.checkpoint_files import METADATA, query_id
from ottla.pipelines.frames import Frames, path_of, sends_away
from ottla.pipelines.graph import Graph
from ottla.pipelines.names import SIDE_ENDING
from ottla.pipelines.rows_out import RowsOut, counted
from ottla.pipelines.spec import OutputMode, Pipeline, Place, Sink, TableSink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.pipelines.tables.table import LoggedTable

QUERY_ID = "sql.streaming.queryId"
"""The property of Spark's threads that says which query they work for."""
ANALYSED = "== Analyzed Logical Plan =="
OPTIMISED = "== Optimized Logical Plan =="
"""What comes before and after the plan that counts, where Spark explains all of them."""


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
    if isinstance(sink, TopicSink):
        return _topic_writer(plan, sink, frames, rows_out)
    if isinstance(sink, TableSink):
        table = TableTarget(sink, path_of(frames.pipeline, sink.path))
        each = EachBatchOnce(table, plan.checkpoint, rows_out)
        return frame.writeStream.outputMode(table_mode(sink, frame)).foreachBatch(each)
    options = dict(sink.options)
    for name, value in sink.options.items():
        if name.lower() == "path":
            options[name] = path_of(frames.pipeline, value)
    return frame.writeStream.format(sink.format).outputMode(sink.mode).options(**options)


# --- batch by batch -----------------------------------------------------------------------------------


class Target(Protocol):
    """What batches are written to. Plain data when it is pickled."""

    def write(self, rows: DataFrame, *, application: str, batch_id: int) -> None:
        """Write a batch whole, or not at all; and once, however often it is given."""


class EachBatchOnce:
    """A function for `foreachBatch`. Runs in this process, or is sent by Spark Connect to one beside the server.

    There it cannot tell how many rows it wrote: what it is sent as knows nobody to tell.
    """

    def __init__(self, target: Target, checkpoint: str, rows_out: RowsOut | None = None) -> None:
        self._target = target
        self._checkpoint = checkpoint
        self._rows_out = rows_out
        self._application: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return EachBatchOnce, (self._target, self._checkpoint)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if self._application is None:
            self._application = application_of(batch, checkpoint=self._checkpoint)
        with counted(batch, batch_id, self._rows_out) as rows:
            self._target.write(rows, application=self._application, batch_id=batch_id)


def application_of(batch: DataFrame, *, checkpoint: str | None = None) -> str:
    """What the batches of this query are known by: the query's id, which lives in its checkpoint.

    Spark tells it to its own threads. Spark Connect has a batch written in another process, which looks it up.
    """
    context = getattr(batch.sparkSession, "_sc", None)
    if context is not None:
        found = context.getLocalProperty(QUERY_ID)
    else:
        found = None if checkpoint is None else query_id(batch.sparkSession, checkpoint)
    if found:
        return str(found)
    where = "Spark" if context is not None or checkpoint is None else f"{checkpoint}/{METADATA}"
    raise QueryUnknown(
        f"{where} does not say which query this batch is of, so that nobody could tell if it has been written before. "
        "Restore the checkpoint, or remove the pipeline's checkpoints to begin anew"
    )


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


def _topic_writer(plan: QueryPlan, sink: TopicSink, frames: Frames, rows_out: RowsOut) -> DataStreamWriter:
    options = topic_sink_options(sink, frames)
    writer = records_of(sink, frames.frame(sink.input)).writeStream.outputMode(sink.mode)
    if sink.mode == "append":
        return writer.format("ottla").options(**options)
    # A sink of Spark's Python API is refused any other mode.
    return writer.foreachBatch(EachBatchOnce(TopicTarget(options), plan.checkpoint, rows_out))


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """A topic, with the options of the sink."""

    options: Mapping[str, str]

    def write(self, rows: DataFrame, *, application: str, batch_id: int) -> None:
        from ottla.spark import exactly_once_batches

        exactly_once_batches(application, self.options)(rows, batch_id)


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


class TableTarget:
    """A table, opened where it is written: its path means the disk there."""

    def __init__(self, sink: TableSink, path: str) -> None:
        self._sink = sink
        self._path = path
        self._table = opened_table(sink, path)

    def __reduce__(self) -> tuple[Any, ...]:
        return TableTarget, (self._sink, self._path)

    def write(self, rows: DataFrame, *, application: str, batch_id: int) -> None:
        self._table.write_batch(rows, application=application, batch_id=batch_id)


def table_mode(sink: TableSink, frame: DataFrame) -> OutputMode:
    """A table by keys takes rows of windows that are still open, since later ones replace them."""
    return "update" if sink.keys and is_grouped(frame) else "append"


def is_grouped(frame: DataFrame) -> bool:
    """Whether rows of the stream are grouped: only then does update mode differ, and joins refuse it."""
    # Spark marks what is a stream in its plans by a tilde.
    return "~Aggregate" in _analysed_plan(frame)


def _analysed_plan(frame: Any) -> str:
    """The plan of a frame, before Spark makes it better."""
    classic = getattr(frame, "_jdf", None)
    if classic is not None:
        return str(classic.queryExecution().analyzed().toString())
    # Spark Connect shows no plan but in the text that explains a frame.
    explained = str(frame._explain_string(extended=True))
    _, begins, plans = explained.partition(ANALYSED)
    assert begins, "Spark explains a plan by what it was at first, and then"
    return plans.partition(OPTIMISED)[0]
