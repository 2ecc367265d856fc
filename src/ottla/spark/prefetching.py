"""A small batch is read beside the driver while Spark plans it, and handed over with the plan.

A task in Python costs Spark many times what it takes to read a hundred records. Spark has a shorter way for what it
calls simple readers: the worker that plans a batch sends the rows along, and Spark keeps them as a block for the task.
We take that way for small batches. A task that does not find the block reads the ranges itself, as it would have.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.values import TopicPartition
from ottla.errors import OttlaError
from ottla.spark.options import ReadOptions
from ottla.spark.planning import OffsetRange

if TYPE_CHECKING:
    from pyarrow import RecordBatch

RECORDS_MAX = 2_000
BYTES_MAX = 1024 * 1024
"""What Spark takes on this way it takes row by row; of more than this a task is the quicker reader."""
PATIENCE_MS = 1_000
"""How long a plan may be held up. What takes longer, or fails, is left to a task, which can be repeated."""

_logger = logging.getLogger(__name__)

Ranges = Sequence[OffsetRange]


class _UnderWay(NamedTuple):
    ranges: tuple[OffsetRange, ...]
    rows: Future[list[RecordBatch] | None]


class Prefetcher:
    """Reads at most one batch ahead, in a thread of its own."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._columns = columns
        # Where records are lost the task says so, or goes on without them.
        self._options = replace(
            options, poll_timeout_ms=min(options.poll_timeout_ms, PATIENCE_MS), fail_on_data_loss=True
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-prefetch")
        self._under_way: _UnderWay | None = None

    def begin(self, ranges: Ranges, bytes_per_record: Mapping[TopicPartition, float]) -> None:
        """These will be wanted next, unless Spark decides otherwise."""
        self._under_way = None
        if is_small(ranges, bytes_per_record):
            wanted = tuple(ranges)
            self._under_way = _UnderWay(wanted, self._thread.submit(self._read, wanted))

    def rows(self, ranges: Ranges) -> list[RecordBatch] | None:
        """The records of these ranges; None where they were not begun, or did not come."""
        under_way, self._under_way = self._under_way, None
        if under_way is None or under_way.ranges != tuple(ranges):
            return None
        return under_way.rows.result()

    def _read(self, ranges: tuple[OffsetRange, ...]) -> list[RecordBatch] | None:
        from ottla.spark.range_reader import read_ranges

        try:
            return list(read_ranges(ranges, self._options, self._columns))
        except OttlaError as e:
            _logger.debug("left to a task: %s", e)
            return None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def is_small(ranges: Ranges, bytes_per_record: Mapping[TopicPartition, float]) -> bool:
    """Whether it is worth it; what was never weighed may be anything."""
    records, size = 0, 0.0
    for each in ranges:
        weight = bytes_per_record.get(TopicPartition(each.topic, each.partition))
        if weight is None:
            return False
        records += each.size
        size += each.size * weight
    return 0 < records <= RECORDS_MAX and size <= BYTES_MAX
