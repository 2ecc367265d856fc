"""Positions of consumer groups, carried from a topic to its copy by the map of offsets.

A group is put, in each new partition, on the first record that it has not read. So it misses nothing; but records that
it has read may lie behind that one, and those it reads again: at least once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.pipelines.transfer import topics
from ottla.pipelines.transfer.errors import TransferRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.client.blocking.admin import Admin


class Move(NamedTuple):
    """Where a group is put."""

    group: str
    offsets: Mapping[int, int]
    """By new partition."""
    repeated: int
    """Records that it will read again."""


def groups_of(admin: Admin, topic: str) -> list[str]:
    """The groups that have a position in a topic."""
    listed = [each.group for each in admin.list_groups()]
    return [group for group in listed if any(key.topic == topic for key in admin.group_offsets(group))]


def committed(admin: Admin, group: str, topic: str) -> dict[int, int]:
    """A group's positions in a topic."""
    return {key.partition: place.offset for key, place in admin.group_offsets(group).items() if key.topic == topic}


def moved(offset_map: DataFrame, group: str, positions: Mapping[int, int], new_ends: Mapping[int, int]) -> Move:
    """Where a group with these positions belongs in the new topic.

    In an old partition without a position it has read nothing. Where it has read all, it is put on the end.
    """
    from pyspark.sql import functions as fn

    spark = offset_map.sparkSession
    places = spark.createDataFrame(sorted(positions.items()), "old_partition INT, position BIGINT")
    marked = offset_map.join(fn.broadcast(places), "old_partition", "left").withColumn(
        "unread", fn.col("old_offset") >= fn.coalesce("position", fn.lit(0))
    )
    firsts = marked.where("unread").groupBy("new_partition").agg(fn.min("new_offset").alias("first"))
    found = {row["new_partition"]: row["first"] for row in firsts.collect()}
    offsets = {partition: found.get(partition, end) for partition, end in sorted(new_ends.items())}
    starts = spark.createDataFrame(sorted(offsets.items()), "new_partition INT, first BIGINT")
    again = marked.where("NOT unread").join(fn.broadcast(starts), "new_partition").where("new_offset >= first")
    return Move(group, offsets, again.count())


def move_group(
    admin: Admin, offset_map: DataFrame, group: str, *, old: str, new: str, new_ends: Mapping[int, int]
) -> Move:
    """Put a group where it belongs in the new topic; its positions in the old one stay.

    Refused (NON_EMPTY_GROUP) while it has members, who would not notice.
    """
    before = committed(admin, group, old)
    if not before:
        raise TransferRefused(f"it has no position in topic {old!r}")
    move = moved(offset_map, group, before, new_ends)
    # What the new topic's own retention has taken is no place: readers who do not find it may go on at the end.
    starts = topics.starts(admin, new, tuple(new_ends))
    move = move._replace(offsets={each: max(offset, starts.get(each, 0)) for each, offset in move.offsets.items()})
    admin.alter_group_offsets(group, {(new, partition): offset for partition, offset in move.offsets.items()})
    return move
