"""Runs a query that writes several outputs: each batch is read and parsed once, kept, and written to one after another.

Each output knows the batches that it has, so that a batch which Spark repeats after a crash is written where it is
missing and nowhere twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from ottla.pipelines.frames import BatchFrames, Frames, path_of
from ottla.pipelines.queries import QueryPlan, application_of, opened_table, records_of, topic_sink_options
from ottla.pipelines.rows_out import Counting, RowsOut
from ottla.pipelines.sharing import JOINED_BY, SharedPlan
from ottla.pipelines.spec import TableSink, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.pipelines.tables.table import LoggedTable

SIDES = f"{JOINED_BY}side"
"""What all records that are sent away in a batch are known by: as no sink can be called."""
BATCH_BYTES_MAX = "maxBytesPerTrigger"
LIMITS = ("maxoffsetspertrigger", BATCH_BYTES_MAX.lower())
KEPT_BYTES_MAX = "256m"
"""Of a batch, unless the source says otherwise: it is kept until all outputs have it."""


def shared_writer(plan: SharedPlan, frames: Frames, rows_out: RowsOut) -> DataStreamWriter:
    """The query, ready for its name, its checkpoint and its trigger."""
    source = frames.pipeline.sources[plan.source]
    assert isinstance(source, TopicSource), "only topics are shared"
    if not any(name.lower() in LIMITS for name in source.options):
        source = replace(source, options={**source.options, BATCH_BYTES_MAX: KEPT_BYTES_MAX})
    rows = frames.source_rows(source, streaming=True, headers=any(output.sink is None for output in plan.outputs))
    return rows.writeStream.outputMode("append").foreachBatch(SharedBatches(plan, frames, rows_out))


class SharedBatches:
    """Writes each batch to all outputs, once."""

    def __init__(self, plan: SharedPlan, frames: Frames, rows_out: RowsOut) -> None:
        self._plan = plan
        self._frames = frames
        self._rows_out = rows_out
        self._tables: dict[str, LoggedTable[DataFrame]] = {}
        for output in plan.outputs:
            if isinstance(output.sink, TableSink):
                self._tables[output.name] = opened_table(output.sink, path_of(frames.pipeline, output.sink.path))

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        kept = batch.persist()
        try:
            writing = _Writing(BatchFrames(self._frames, self._plan.source, kept), application_of(batch), batch_id)
            for output in self._plan.outputs:
                if isinstance(output.sink, TableSink):
                    writing.to_table(output, self._tables[output.name])
                elif isinstance(output.sink, TopicSink):
                    writing.to_topic(output, output.sink)
            writing.away([output.node for output in self._plan.outputs if output.sink is None])
            writing.counting.tell(self._rows_out, batch_id)
        finally:
            kept.unpersist()


class _Writing:
    """One batch on its way to the outputs."""

    def __init__(self, frames: BatchFrames, query: str, batch_id: int) -> None:
        self._frames = frames
        self._query = query
        self._batch_id = batch_id
        self.counting = Counting()

    def to_table(self, output: QueryPlan, table: LoggedTable[DataFrame]) -> None:
        rows = self.counting.counted(self._frames.frame(output.node))
        table.write_batch(rows, application=f"{self._query}.{output.name}", batch_id=self._batch_id)

    def to_topic(self, output: QueryPlan, sink: TopicSink) -> None:
        records = records_of(sink, self._frames.frame(output.node))
        self._send(records, output.name, topic_sink_options(sink, self._frames))

    def away(self, nodes: Sequence[str]) -> None:
        """All that is sent away in one go: for most batches that is little."""
        sides = [self._frames.side_frame(node) for node in nodes]
        records = [side for side in sides if side is not None]
        if records:
            together = reduce(lambda one, other: one.unionByName(other), records)
            self._send(together, SIDES, {"kafka.bootstrap.servers": self._frames.bootstrap})

    def _send(self, records: DataFrame, name: str, options: Mapping[str, str]) -> None:
        from ottla.spark import exactly_once_batches

        exactly_once_batches(f"{self._query}.{name}", options)(self.counting.counted(records), self._batch_id)
