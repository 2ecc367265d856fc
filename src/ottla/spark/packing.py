"""How ranges of offsets are shared out among tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappush, heapreplace
from typing import NamedTuple

from ottla.client.values import TopicPartition

RECORDS_WORTH_A_TASK = 10_000
"""A Python task costs 35 ms before it has read anything, and 10,000 records are read in less: below that, one task
is quicker than two."""
BYTES_WORTH_A_TASK = 8 * 1024 * 1024
"""The same for few but large records."""


class OffsetRange(NamedTuple):
    """Offsets of one partition that are to be read; the end is not read any more."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many records there are at most: compaction and transactions leave gaps."""
        return self.end - self.start


def packed(
    ranges: Sequence[OffsetRange],
    *,
    tasks: int,
    min_partitions: int | None,
    records_per_partition_max: int | None,
    bytes_per_record: Mapping[TopicPartition, float] | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task, the largest task first, and in each task in order of topic, partition and offset.

    A range is cut only where the user asked for it (minPartitions, maxRecordsPerPartition). There are `tasks` tasks, or
    fewer where there is too little to read, or more where the user's settings want that.
    """
    pieces = split(ranges, min_partitions=min_partitions, records_per_partition_max=records_per_partition_max)
    worth = _tasks_worth(pieces, bytes_per_record or {})
    count = min(len(pieces), max(min(tasks, worth), min_partitions or 1))
    groups = _balanced(pieces, count=count, records_max=records_per_partition_max)
    joined = [tuple(_joined(group)) for group in groups]
    return sorted(joined, key=lambda group: (-_total(group), group))


def _tasks_worth(pieces: Iterable[OffsetRange], bytes_per_record: Mapping[TopicPartition, float]) -> int:
    """How many tasks have enough to do to be worth starting."""
    records, bytes_expected = 0, 0.0
    for piece in pieces:
        records += piece.size
        bytes_expected += piece.size * bytes_per_record.get(TopicPartition(piece.topic, piece.partition), 0.0)
    return max(1, records // RECORDS_WORTH_A_TASK, int(bytes_expected // BYTES_WORTH_A_TASK))


def _balanced(pieces: Sequence[OffsetRange], *, count: int, records_max: int | None) -> list[list[OffsetRange]]:
    """The largest piece first, each to whoever has least: never a third more than the best there is.

    Where no group has room for a piece, a new one is opened for it.
    """
    groups: list[list[OffsetRange]] = [[] for _ in range(count)]
    # A list in order is a heap already.
    least = [(0, index) for index in range(count)]
    for piece in sorted(pieces, key=lambda each: (-each.size, each)):
        load, index = least[0]
        if load and records_max is not None and load + piece.size > records_max:
            groups.append([piece])
            heappush(least, (piece.size, len(groups) - 1))
        else:
            groups[index].append(piece)
            heapreplace(least, (load + piece.size, index))
    return [group for group in groups if group]


def _joined(group: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The pieces in order; those that follow each other are one again."""
    found: list[OffsetRange] = []
    for piece in sorted(group):
        last = found[-1] if found else None
        if last is not None and last[:2] == piece[:2] and last.end == piece.start:
            found[-1] = last._replace(end=piece.end)
        else:
            found.append(piece)
    return found


def _total(group: Iterable[OffsetRange]) -> int:
    return sum(each.size for each in group)


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, records_per_partition_max: int | None
) -> list[OffsetRange]:
    """The ranges, cut as Spark's own connector cuts them: first to the largest size allowed, then, where that makes
    fewer than are wanted, the large ones in proportion to their size. Empty ranges fall away."""
    pieces = [each for each in ranges if each.size > 0]
    if records_per_partition_max is not None:
        pieces = [piece for each in pieces for piece in _cut(each, parts=-(-each.size // records_per_partition_max))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = _total(pieces)
    small = {each for each in pieces if _parts(each.size, total=total, wanted=min_partitions) == 1}
    # What stays whole takes no part in the sharing out of the rest.
    rest = total - _total(small)
    wanted = max(1, min_partitions - len(small))
    return [
        piece
        for each in pieces
        for piece in _cut(each, parts=1 if each in small else _parts(each.size, total=rest, wanted=wanted))
    ]


def _parts(size: int, *, total: int, wanted: int) -> int:
    # Rounded half up in whole numbers, since offsets can be larger than a float is exact.
    return max(1, (2 * size * wanted + total) // (2 * total))


def _cut(whole: OffsetRange, *, parts: int) -> list[OffsetRange]:
    """So many pieces of almost the same size, fewer where a piece would be empty."""
    pieces = []
    start = whole.start
    for part in range(parts, 0, -1):
        end = start + (whole.end - start) // part
        if end > start:
            pieces.append(whole._replace(start=start, end=end))
        start = end
    return pieces
