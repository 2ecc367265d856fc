"""What a batch reads: where it starts and ends, what was lost, and how much it may take.

Pure: no network, no clock. Offsets and times come in, a decision comes out. How ranges are shared out among tasks is
in `packing`, whose names can be had from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ottla.client.values import TopicPartition
from ottla.spark.offsets import Offsets
from ottla.spark.packing import OffsetRange, packed, split

__all__ = [
    "LostRecords",
    "OffsetRange",
    "Starts",
    "described",
    "is_held_back",
    "limited",
    "limited_by_bytes",
    "limited_by_records",
    "packed",
    "ranges",
    "split",
    "starting_points",
    "unknown_beginnings",
]

RECORD_BYTES_DEFAULT = 1024.0
"""Taken for the size of a record as long as nothing was learnt about any partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """Offsets of a partition that were to be read and cannot be any more."""

    topic: str
    partition: int
    start: int
    end: int | None
    """The first offset behind them; None: unknown, since the partition itself is gone."""
    reason: str

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        if self.end is None:
            return f"{where} from offset {self.start} on ({self.reason})"
        return f"{where} offsets {self.start} to {self.end - 1} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Starts:
    """Where each partition is read on from, and what must be told about it."""

    offsets: Offsets
    lost: tuple[LostRecords, ...]


LOSSES_SHOWN_MAX = 20


def described(lost: Iterable[LostRecords]) -> str:
    """The losses as a message tells them: which partitions, which offsets, why."""
    told = [str(loss) for loss in lost]
    more = len(told) - LOSSES_SHOWN_MAX
    return "; ".join(told[:LOSSES_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")


def unknown_beginnings(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Offsets:
    """The partitions whose beginnings `starting_points` needs, with their ends: those that are new, or too short."""
    return {partition: end for partition, end in ends.items() if starts.get(partition, end + 1) > end}


def starting_points(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    beginnings: Mapping[TopicPartition, int],
    *,
    same: Collection[str] = (),
) -> Starts:
    """Where reading goes on in each partition that has an end.

    `beginnings` are the first offsets that there still are; those that `unknown_beginnings` names must be there,
    and are left out of the answer if they are not: such a partition went away in the meantime. A beginning of another
    partition may be given and then shows what was deleted before it was read. A partition that ends before it starts
    was cut off if its topic is among `same`, those known to be what they were: it goes on at its new end. Otherwise it
    may have been made anew; what it holds now has not been read then, so it starts again from its beginning.
    """
    found: Offsets = {}
    lost: list[LostRecords] = []
    for partition, end in sorted(ends.items()):
        start, beginning = starts.get(partition), beginnings.get(partition)
        if start is None and beginning is not None:
            if beginning > 0:
                lost.append(_lost(partition, 0, beginning, "deleted before this new partition was first read"))
            found[partition] = beginning
        elif start is not None and start > end and partition.topic in same:
            lost.append(_lost(partition, end, start, f"the log was cut off at {end}"))
            found[partition] = end
        elif start is not None and start > end:
            lost.append(_lost(partition, end, start, f"the partition ends at {end}: it was made anew or cut off"))
            if beginning is not None:
                found[partition] = min(beginning, end)
        elif start is not None and beginning is not None and start < beginning:
            # The end may be older than the beginning: then nothing of the range is left.
            lost.append(_lost(partition, start, beginning, f"deleted: the partition begins at {beginning}"))
            found[partition] = min(beginning, end)
        elif start is not None:
            found[partition] = start
    for partition in sorted(starts.keys() - ends.keys()):
        lost.append(_lost(partition, starts[partition], None, "the partition is gone"))
    return Starts(found, tuple(lost))


def _lost(partition: TopicPartition, start: int, end: int | None, reason: str) -> LostRecords:
    return LostRecords(topic=partition.topic, partition=partition.partition, start=start, end=end, reason=reason)


def ranges(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """What lies between, in order of topic and partition; nothing for a partition without a start, or without news."""
    return [
        OffsetRange(partition.topic, partition.partition, starts[partition], end)
        for partition, end in sorted(ends.items())
        if partition in starts and starts[partition] < end
    ]


def is_held_back(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    records_min: int | None,
    delay_max_ms: int,
    now_ms: int,
    last_trigger_ms: int | None,
) -> bool:
    """Whether a batch waits for more records; the first one of a query, and one that waited long enough, does not."""
    if records_min is None or last_trigger_ms is None or now_ms - last_trigger_ms >= delay_max_ms:
        return False
    return sum(each.size for each in ranges(starts, ends)) < records_min


def limited(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    records_max: int | None,
    bytes_max: int | None,
    bytes_per_record: Mapping[TopicPartition, float],
) -> Offsets:
    """The ends of a batch that keeps to both limits, where they are given."""
    if records_max is not None:
        ends = limited_by_records(starts, ends, records_max=records_max)
    if bytes_max is not None:
        ends = limited_by_bytes(starts, ends, bytes_max=bytes_max, bytes_per_record=bytes_per_record)
    return dict(ends)


def limited_by_records(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, records_max: int
) -> Offsets:
    """Ends that are at most so many offsets away in all, each partition in proportion to what it has.

    A partition that has anything gets at least one, or it might never come to its turn while others grow; only for
    that is the limit exceeded, where there are more such partitions than the limit has records.
    """
    sizes = {TopicPartition(each.topic, each.partition): each.size for each in ranges(starts, ends)}
    total = sum(sizes.values())
    if total <= records_max:
        return dict(ends)
    shares = {partition: max(1, records_max * size // total) for partition, size in sizes.items()}
    excess = sum(shares.values()) - records_max
    for partition in sorted(shares, key=lambda each: (-shares[each], each)):
        # What the smallest got beyond their share is taken from the largest.
        if excess <= 0:
            break
        given_up = min(excess, shares[partition] - 1)
        shares[partition] -= given_up
        excess -= given_up
    return {
        partition: starts[partition] + shares[partition] if partition in shares else end
        for partition, end in ends.items()
    }


def limited_by_bytes(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    bytes_max: int,
    bytes_per_record: Mapping[TopicPartition, float],
) -> Offsets:
    """Ends that are about so many bytes away in all, given how large a record of each partition is on average.

    Each partition gives the same part of what it has, at least one record. One without an average is taken to be like
    the others.
    """
    mean = sum(bytes_per_record.values()) / len(bytes_per_record) if bytes_per_record else RECORD_BYTES_DEFAULT
    wanted = ranges(starts, ends)
    total = sum(each.size for each in wanted)
    averages = (bytes_per_record.get(TopicPartition(each.topic, each.partition), mean) for each in wanted)
    total_bytes = sum(each.size * average for each, average in zip(wanted, averages, strict=True))
    if total_bytes <= bytes_max:
        return dict(ends)
    return limited_by_records(starts, ends, records_max=max(1, int(total * (bytes_max / total_bytes))))
