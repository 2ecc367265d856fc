"""A streaming read, as Spark drives it: a thin face over `stream_progress`, which decides.

Spark keeps one of these in a worker beside the driver and pickles another for the tasks, so it holds options only and
makes the rest when it is first asked. Offsets are laid out as Spark's own Kafka connector has them, so that
checkpoints carry over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ottla.spark import planning
from ottla.spark.batch_reader import input_partitions, read_partition
from ottla.spark.errors import InvalidOption
from ottla.spark.offsets import (
    LATEST_MARK,
    ByTimestamp,
    Exactly,
    Latest,
    Offsets,
    OffsetSpecification,
    RelativeRecords,
    RelativeTime,
    from_json,
    to_json,
)
from ottla.spark.options import ReadOptions
from ottla.spark.planning import OffsetRange
from ottla.spark.prefetching import Prefetcher
from ottla.spark.stream_progress import StreamProgress
from ottla.spark.topics import PartitionWatch, watch

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        # Before Spark 4.2 there were neither limits nor AvailableNow for Python sources.
        SupportsTriggerAvailableNow = object

HAS_LIMITS = SupportsTriggerAvailableNow is not object
CHECKPOINT = "offsets in the checkpoint"
TO_BE_PINNED = "startingOffsets"
"""With a text behind it the one name in a start that the first batch is to write down; no offsets look like that."""
PINNED = "(start)"
"""With an empty object behind it: these offsets are a start that was written down. No topic can have this name, and
Spark's own connector takes it for one without partitions."""
NO_LIMIT = 2**63 - 1
HELD_PAUSE_MS = 100
"""A query that is held asks again at once; so it does not take a core, and can be stopped without delay."""

_logger = logging.getLogger(__name__)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics from batch to batch.

    Spark writes down where a batch ends, but not where the first one starts, and asks for the start again after a
    restart. A start that moves (latest, or relative to the end) would by then be another, and what lies between would
    be lost. So the first batch of such a query is empty and ends at the start, which is thereby written down.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._made: StreamProgress | None = None
        self._watch: PartitionWatch | None = None
        self._last_end: dict[str, Any] | None = None
        self._asks_without_start = not HAS_LIMITS
        self._warned: set[str] = set()
        self._prefetcher: Prefetcher | None = None
        self._rows: list[RecordBatch] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None, "_watch": None, "_prefetcher": None, "_rows": []}

    @property
    def _partitions(self) -> PartitionWatch:
        if self._watch is None:
            self._watch = watch(self._options)
        return self._watch

    @property
    def _progress(self) -> StreamProgress:
        if self._made is None:
            self._made = StreamProgress(self._options, self._partitions)
        return self._made

    def _is_held(self) -> bool:
        """Whether the query is to take up nothing new, so that it can be stopped where a batch has ended."""
        if self._options.hold_file is None or not Path(self._options.hold_file).exists():
            return False
        self._partitions.pause(HELD_PAUSE_MS)
        return True

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        start = self._progress.initial()
        if moves(self._options.start) and not self._asks_without_start:
            return {TO_BE_PINNED: _told(self._options.start)}
        return dict(to_json(start))

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # noqa: N802
        """Before Spark 4.2 both are left out, and there are no limits."""
        if start is None:
            return self._latest_for_who_gives_no_start()
        takes_all = type(limit).__name__ == "ReadAllAvailable"
        if _is_to_be_pinned(start):
            if takes_all and not isinstance(self._options.start, Latest):
                self._warn(
                    "the first run with trigger(once=True) reads nothing, since it only writes down where this start "
                    "is; the next one reads from there. trigger(availableNow=True) does both in one run"
                )
            return dict(to_json(self._progress.first_start())) | {PINNED: {}}
        if self._is_held():
            return start
        offsets = _offsets(start)
        end = self._progress.next_end(offsets, within_limits=not takes_all)
        if end != offsets and _LOADED is not None:
            self._read_ahead(planning.ranges(offsets, end))
        # The very same where nothing is new, or Spark would take the rest of the text for news.
        return start if end == offsets else dict(to_json(end))

    def _read_ahead(self, ranges: list[OffsetRange]) -> None:
        """Spark notes the end of the batch before it asks for the plan; meanwhile a small one is read."""
        if self._prefetcher is None:
            self._prefetcher = Prefetcher(self._options, self._columns)
        self._prefetcher.begin(ranges, self._progress.weights)

    def _latest_for_who_gives_no_start(self) -> dict[str, Any]:
        """Spark before 4.2 neither says where it stands nor has limits, and asks for the start of a new query later.

        Where this process was not told of any place, the query may stand anywhere, and only the ends are safe.
        """
        self._asks_without_start = True
        options = self._options
        limits = (options.records_per_trigger_max, options.records_per_trigger_min, options.bytes_per_trigger_max)
        if any(limit is not None for limit in limits):
            self._warn("this Spark has no limits for sources in Python: maxOffsetsPerTrigger and the like do nothing")
        if self._last_end is not None and self._is_held():
            return dict(self._last_end)
        if self._last_end is None:
            # Before the ends, so that it cannot be behind them. If the query has a checkpoint, none is needed.
            with suppress(InvalidOption):
                self._progress.initial()
            end = self._progress.ends()
        else:
            end = self._progress.next_end(_offsets(self._last_end), within_limits=False)
        self._last_end = dict(to_json(end))
        return dict(self._last_end)

    def _warn(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            _logger.warning("%s", what)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Any limit of ours stands for all of them: Spark hands it back, and only then are they kept to.

        Without one it is still no ReadAllAvailable, which thereby means trigger(once=True).
        """
        from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows, ReadMinRows

        options = self._options
        if options.records_per_trigger_max is not None:
            return ReadMaxRows(options.records_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.records_per_trigger_min is not None:
            return ReadMinRows(options.records_per_trigger_min)
        return ReadMaxRows(NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._progress.fix_target()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        newest = self._progress.newest()
        return None if newest is None else dict(to_json(newest))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if self._asks_without_start and self._last_end is None:
            self._last_end = dict(end)
        if PINNED in end:
            return []
        if _is_to_be_pinned(start):
            self._refuse_unknown_start(end)
            return []
        ranges = self._progress.ranges(_offsets(start), _offsets(end))
        found = input_partitions(ranges, self._progress.record_bytes(ranges), self._options)
        if len(found) == 1 and self._prefetcher is not None:
            self._load(self._prefetcher.rows(found[0].value))
        return found

    def _load(self, rows: list[RecordBatch] | None) -> None:
        """Have the rows of the batch that is being planned sent along with the plan."""
        if rows is not None and _LOADED is not None:
            self._rows = rows
            self.__class__ = _LOADED

    def _refuse_unknown_start(self, end: dict[str, Any]) -> None:
        """A first batch that did not begin where one of this start does: with others, it would be passed over."""
        problem = (
            f"the checkpoint has a first batch that was not finished, up to {end}, and does not say where that began, "
            "since it began with another startingOffsets or in Spark's own connector"
        )
        if self._options.fail_on_data_loss:
            raise InvalidOption(
                "startingOffsets",
                problem,
                fix="Start once more with what it was, or with the offsets as JSON, until that batch is done; or set "
                "failOnDataLoss to false to pass it over, or take a new checkpoint",
            )
        self._warn(f"startingOffsets: {problem}; it is passed over, because failOnDataLoss is false")

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_partition(partition, self._options, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        if not _is_to_be_pinned(end):
            self._progress.batch_noted(_offsets(end))

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None
            self._watch = None
        if self._prefetcher is not None:
            self._prefetcher.close()
            self._prefetcher = None


def _loaded_kind() -> type[OttlaStreamReader] | None:
    """What a reader is while it has rows to send along; None where this Spark has no such way.

    Spark asks for them right after the plan, and of readers of its own kind only. At all other times that kind would
    cost us something: Spark does not ask it how far a stream is behind.
    """
    try:
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
    except ImportError:
        return None
    if not hasattr(_SimpleStreamReaderWrapper, "getCache"):
        return None

    class Loaded(OttlaStreamReader, _SimpleStreamReaderWrapper):
        """Gives its rows out and is what it was."""

        def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[RecordBatch]:  # noqa: N802
            rows, self._rows = self._rows, []
            self.__class__ = OttlaStreamReader  # type: ignore[assignment]
            return iter(rows)

    return Loaded


_LOADED = _loaded_kind() if HAS_LIMITS else None


def moves(start: OffsetSpecification) -> bool:
    """Whether a start may come to other offsets when it is asked for again later."""
    match start:
        case Latest() | RelativeTime() | RelativeRecords():
            return True
        case Exactly(offsets=offsets):
            return LATEST_MARK in offsets.values()
        case ByTimestamp(strategy=strategy):
            return strategy == "latest"
        case _:
            return False


def _told(start: OffsetSpecification) -> str:
    """For people who look at the progress of the first batch."""
    match start:
        case Latest():
            return "latest"
        case RelativeTime(back_ms=back_ms):
            return f"-{back_ms} ms"
        case RelativeRecords(count=count):
            return f"-{count} records"
        case _:
            return "as given"


def _is_to_be_pinned(offsets: dict[str, Any]) -> bool:
    return isinstance(offsets.get(TO_BE_PINNED), str)


def _offsets(document: dict[str, Any]) -> Offsets:
    return from_json(document, option=CHECKPOINT)
