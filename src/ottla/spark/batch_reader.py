"""A batch read: the offsets between a start and an end, planned on the driver and read by tasks.

Made for Spark to pickle: holds options only. What the driver learns goes into the partitions that tasks get.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.client.snapshot_taking import ends_as_of
from ottla.client.transport import run_now
from ottla.client.values import TopicPartition
from ottla.clock import SystemClock
from ottla.errors import OttlaError
from ottla.spark import planning
from ottla.spark.as_of import AS_OF, SnapshotEnd, missing_of, moment_of_end, part_of, refuse_others
from ottla.spark.errors import DataLost, InvalidOption
from ottla.spark.news import sampled_sizes
from ottla.spark.offsets import Earliest, Exactly, Latest, Offsets, RelativeRecords, listed
from ottla.spark.options import Assigned, Pattern, ReadOptions
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
    if isinstance(options.end, SnapshotEnd):
        keys = _of_snapshot(options.end, keys, options, watched)
    ends = _ends(options, keys, watched)
    starts = _starts(options, keys, ends, watched)
    _refuse_backwards(starts, ends, options)
    ranges = planning.ranges(starts, ends)
    return ranges, weighed(ranges, watched)


def fixed(options: ReadOptions) -> ReadOptions:
    """The same with the offsets that the end stands for now, for a table that is looked at more than once."""
    if isinstance(options.end, Exactly):
        return options
    watched = watch(options)
    try:
        keys = watched.existing()
        starts, ends = watched.earliest(keys), _ends(options, keys, watched)
        return replace(options, end=SnapshotEnd(ends, AS_OF, starts, watched.topic_ids()))
    finally:
        watched.close()


def _of_snapshot(
    end: SnapshotEnd, keys: tuple[TopicPartition, ...], options: ReadOptions, watched: PartitionWatch
) -> tuple[TopicPartition, ...]:
    """The partitions that are read of a snapshot, after a look at what is left of them."""
    found = part_of(
        end,
        keys,
        all_partitions=not isinstance(options.topics, Assigned),
        all_topics=not isinstance(options.topics, Pattern),
    )
    refuse_others(end, watched.topic_ids())
    if isinstance(options.start, Earliest) and (lost := missing_of(end, watched.earliest(found))):
        if options.fail_on_data_loss:
            raise DataLost(planning.described(lost))
        _logger.warning("%s: %s", AS_OF, planning.described(lost))
    return found


def _ends(options: ReadOptions, keys: tuple[TopicPartition, ...], watched: PartitionWatch) -> Offsets:
    moment = moment_of_end(options.end)
    if moment is not None:
        now_ms = SystemClock().now_ms()
        return run_now(ends_as_of(watched.cluster, keys, moment, isolation=watched.isolation, now_ms=now_ms))
    if isinstance(options.end, SnapshotEnd):
        return _within({key: options.end.offsets[key] for key in keys}, options, watched)
    return _within(watched.resolved(options.end, keys, is_end=True), options, watched)


def _starts(options: ReadOptions, keys: tuple[TopicPartition, ...], ends: Offsets, watched: PartitionWatch) -> Offsets:
    ends_there = isinstance(options.end, Latest | SnapshotEnd) or moment_of_end(options.end) is not None
    if isinstance(options.start, RelativeRecords) and ends_there:
        # Counted from the end that is read up to, not from one that has moved on.
        begins = watched.earliest(keys)
        return {key: max(begins[key], ends[key] - options.start.count) for key in keys}
    return watched.resolved(options.start, keys)


def _within(ends: Offsets, options: ReadOptions, watched: PartitionWatch) -> Offsets:
    """Ends that there are: a task would wait in vain for records beyond."""
    if not isinstance(options.end, Exactly):
        return ends
    there = watched.latest(ends)
    beyond = [key for key, end in ends.items() if end > there[key]]
    if beyond:
        problem = f"there is nothing that far yet in {listed(beyond)}; the first of them ends at {there[min(beyond)]}"
        if options.fail_on_data_loss:
            instead = "now" if options.end.option == AS_OF else "latest or -1"
            fix = f"Use {instead}, or set failOnDataLoss to false to read what is there"
            raise InvalidOption(options.end.option, problem, fix=fix)
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
