"""A batch read: the offsets between a start and an end, planned on the driver and read by tasks.

Made for Spark to pickle: holds options only. What the driver learns goes into the partitions that tasks get.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.client.transport import run_now
from ottla.client.values import TopicPartition
from ottla.errors import OttlaError
from ottla.spark import planning
from ottla.spark.errors import InvalidOption
from ottla.spark.news import sampled_sizes
from ottla.spark.offsets import Exactly, Offsets, listed
from ottla.spark.options import ReadOptions
from ottla.spark.parallelism import task_count
from ottla.spark.planning import OffsetRange
from ottla.spark.topics import PartitionWatch, watch

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_logger = logging.getLogger(__name__)


class OttlaBatchReader(DataSourceReader):
    """Reads topics from a start to an end that are fixed when the query is planned."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """The ranges of each task; without any, Spark makes up a task, which then reads nothing."""
        watched = watch(self._options)
        try:
            return input_partitions(*planned(self._options, watched), self._options)
        finally:
            watched.close()

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_partition(partition, self._options, self._columns)


def planned(options: ReadOptions, watched: PartitionWatch) -> tuple[list[OffsetRange], dict[TopicPartition, float]]:
    """What a batch reads, and what a record of it weighs, as far as that was found out."""
    keys = watched.existing()
    starts = watched.resolved(options.start, keys)
    ends = _within(watched.resolved(options.end, keys, is_end=True), options, watched)
    _refuse_backwards(starts, ends, options)
    ranges = planning.ranges(starts, ends)
    return ranges, weighed(ranges, watched)


def _within(ends: Offsets, options: ReadOptions, watched: PartitionWatch) -> Offsets:
    """Ends that there are: a task would wait in vain for records beyond."""
    if not isinstance(options.end, Exactly):
        return ends
    there = watched.latest(ends)
    beyond = [key for key, end in ends.items() if end > there[key]]
    if beyond:
        problem = f"there is nothing that far yet in {listed(beyond)}; the first of them ends at {there[min(beyond)]}"
        if options.fail_on_data_loss:
            raise InvalidOption(
                options.end.option,
                problem,
                fix="Use latest or -1, or set failOnDataLoss to false to read what is there",
            )
        _logger.warning("%s: %s; read up to the end", options.end.option, problem)
    return {key: min(end, there[key]) for key, end in ends.items()}


def _refuse_backwards(starts: Offsets, ends: Offsets, options: ReadOptions) -> None:
    """An offset that was named as the start and lies behind the end is a mistake, or belongs to another topic."""
    if not isinstance(options.start, Exactly):
        return
    for key in sorted(options.start.offsets.keys() & starts.keys() & ends.keys()):
        if starts[key] > ends[key] and options.start.offsets[key] >= 0:
            raise InvalidOption(
                options.start.option,
                f"{listed([key])} starts at offset {starts[key]}, behind its end at {ends[key]}",
                fix="Name an offset that is not behind the end, or -2 for earliest",
            )


def weighed(ranges: list[OffsetRange], watched: PartitionWatch) -> dict[TopicPartition, float]:
    """Bytes of a record in each partition, from a small sample; only for sharing out, so a failure means little."""
    places = {TopicPartition(each.topic, each.partition): each.start for each in ranges[:SAMPLED_MAX]}
    if not places:
        return {}
    try:
        return run_now(sampled_sizes(watched.cluster, places, isolation=watched.isolation))
    except OttlaError as e:
        _logger.debug("no sample could be had: %s", e)
        return {}


SAMPLED_MAX = 64
"""Partitions whose records are weighed at a time."""


def input_partitions(
    ranges: list[OffsetRange], bytes_per_record: Mapping[TopicPartition, float], options: ReadOptions
) -> list[InputPartition]:
    """Ranges shared out among about as many tasks as can run at once."""
    groups = planning.packed(
        ranges,
        tasks=task_count(asked=options.tasks, range_count=len(ranges)),
        min_partitions=options.min_partitions,
        records_per_partition_max=options.records_per_partition_max,
        bytes_per_record=bytes_per_record,
    )
    return [InputPartition(group) for group in groups]


def read_partition(partition: InputPartition, options: ReadOptions, columns: tuple[str, ...]) -> Iterator[RecordBatch]:
    """What a task reads. Spark's own stand-in for an empty list of partitions holds None."""
    from ottla.spark.range_reader import read_ranges

    ranges: tuple[OffsetRange, ...] | None = partition.value
    return iter(read_ranges(ranges, options, columns) if ranges else ())
