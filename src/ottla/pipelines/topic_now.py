"""A topic as a table that is read anew for each batch of a stream: from its start to its end as it is at that moment.

Spark plans a table once, when the query starts, so that the offsets in such a plan would stay those of the start. Here
the plan only says how the partitions are shared out; each task looks up its offsets when it runs. Made for Spark
to find and to pickle; reads as the batch source does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from ottla.spark.options import ReadOptions
    from ottla.spark.planning import OffsetRange

NAME = "ottla_topic_now"
RECORDS_OF_A_TASK = 100_000
"""A topic of so few records is read by one task, and its table is small enough to be sent to every other one."""


def is_small(options: Mapping[str, str]) -> bool:
    """Whether the topic has few records now. Asks the broker."""
    from ottla.spark.batch_reader import planned
    from ottla.spark.options import read_options
    from ottla.spark.topics import watch

    checked = read_options(options, streaming=False)
    watched = watch(checked)
    try:
        ranges, _ = planned(checked, watched)
    finally:
        watched.close()
    return record_count(ranges) <= RECORDS_OF_A_TASK


def record_count(ranges: Sequence[OffsetRange]) -> int:
    """Offsets in the ranges: as many records, or fewer where some were taken away."""
    return sum(each.end - each.start for each in ranges)


class TopicNow(DataSource):
    """Takes the options of `format("ottla")` for batches."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def _options(self) -> ReadOptions:
        from ottla.spark.options import read_options

        return read_options(self.options, streaming=False)

    def schema(self) -> StructType:
        from ottla.spark.schema import spark_schema

        return spark_schema(columns=self._options().column_names)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        return TopicNowReader(options, options.column_names)


class TopicNowReader(DataSourceReader):
    """Each task has its share of the partitions, whichever there are when it runs."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        from ottla.spark.batch_reader import planned
        from ottla.spark.parallelism import task_count
        from ottla.spark.topics import watch

        watched = watch(self._options)
        try:
            ranges, _ = planned(self._options, watched)
        finally:
            watched.close()
        wanted = task_count(asked=self._options.tasks, range_count=len(ranges))
        # What one task has read needs no exchange before it is grouped by key.
        tasks = 1 if record_count(ranges) <= RECORDS_OF_A_TASK else max(1, min(len(ranges), wanted))
        return [InputPartition((number, tasks)) for number in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        from ottla.spark.batch_reader import planned
        from ottla.spark.range_reader import read_ranges
        from ottla.spark.topics import watch

        number, tasks = partition.value
        watched = watch(self._options)
        try:
            ranges, _ = planned(self._options, watched)
        finally:
            watched.close()
        mine = tuple(each for each in ranges if each.partition % tasks == number)
        return iter(read_ranges(mine, self._options, self._columns) if mine else ())
