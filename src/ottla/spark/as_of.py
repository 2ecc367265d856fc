"""The option `asOf`: a table that ends where its topics ended at a time, or at given offsets.

Pure: texts to ends, which partitions are part of one, and what is missing of it. The offsets of a time are found where
the brokers can be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.client.errors import InvalidSetting
from ottla.client.snapshots import Ago, AtTime, Snapshot, SnapshotUnreadable, parse_as_of
from ottla.client.values import TopicPartition
from ottla.spark.errors import InvalidOption
from ottla.spark.offsets import ByTimestamp, Exactly, Latest, Offsets, OffsetSpecification, RelativeTime, listed
from ottla.spark.option_names import Given
from ottla.spark.planning import LostRecords

AS_OF = "asOf"
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


@dataclass(frozen=True, slots=True)
class SnapshotEnd(Exactly):
    """The ends that a snapshot names. Partitions that it does not name are not read."""

    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the partitions began when it was taken, as far as it tells."""
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


def as_of(options: Given) -> OffsetSpecification | None:
    """The end that `asOf` stands for; None: it is not given."""
    text = options.text(AS_OF)
    if text is None:
        return None
    if others := [name for name in ENDS if name in options]:
        raise InvalidOption(
            AS_OF, f"{' and '.join(others)} also says where the table ends", fix=f"Leave out {AS_OF} or {others[0]}"
        )
    try:
        moment = parse_as_of(text)
    except InvalidSetting as e:
        raise InvalidOption(AS_OF, str(e)) from e
    if isinstance(moment, Snapshot):
        return SnapshotEnd(moment.ends, AS_OF, moment.starts, moment.topic_ids)
    if isinstance(moment, AtTime):
        return ByTimestamp(moment.timestamp_ms, "latest", AS_OF)
    return RelativeTime(moment.back_ms) if isinstance(moment, Ago) else Latest()


def moment_of_end(end: OffsetSpecification) -> Ago | AtTime | None:
    """The time that `asOf` names; None for every other end. Only `asOf` has ends that are relative."""
    if isinstance(end, RelativeTime):
        return Ago(end.back_ms)
    if isinstance(end, ByTimestamp) and end.option == AS_OF and isinstance(end.times_ms, int):
        return AtTime(end.times_ms)
    return None


def part_of(
    end: SnapshotEnd, there: Iterable[TopicPartition], *, all_partitions: bool, all_topics: bool
) -> tuple[TopicPartition, ...]:
    """Of the partitions that a query would read, those that the snapshot names.

    `all_topics`: the query names its topics, so that none of them may be missing in the snapshot. `all_partitions`: it
    reads whole topics, so that none that the snapshot names may be missing there.
    """
    keys = set(there)
    named = set(end.offsets)
    absent = {key.topic for key in keys} - {key.topic for key in named}
    if absent and all_topics:
        raise InvalidOption(
            AS_OF, f"it says nothing of topic {', '.join(sorted(absent))}", fix="Name it there, or do not read it"
        )
    if not all_partitions and (unnamed := keys - named):
        raise InvalidOption(AS_OF, f"it says nothing of {listed(unnamed)}", fix="Name it there, or do not assign it")
    read = {key.topic for key in keys}
    if all_partitions and (missing := {key for key in named - keys if key.topic in read}):
        raise InvalidOption(AS_OF, f"there is no {listed(missing)}", fix="Name partitions that exist")
    return tuple(sorted(keys & named))


def refuse_others(end: SnapshotEnd, topic_ids: Mapping[str, bytes]) -> None:
    """Raises where a topic is not the one that the snapshot was taken of."""
    for name, topic_id in sorted(end.topic_ids.items()):
        if topic_ids.get(name, topic_id) != topic_id:
            raise SnapshotUnreadable(f"topic {name} was made anew since the snapshot was taken: its records are gone")


def missing_of(end: SnapshotEnd, beginnings: Offsets) -> list[LostRecords]:
    """What the snapshot had and the partitions have not any more, as far as it tells where they began."""
    lost = []
    for key, beginning in sorted(beginnings.items()):
        last = end.offsets[key]
        start = end.starts.get(key, 0 if beginning > last else beginning)
        if start < min(beginning, last):
            lost.append(
                LostRecords(
                    topic=key.topic,
                    partition=key.partition,
                    start=start,
                    end=min(beginning, last),
                    reason=f"deleted: the partition begins at {beginning} now",
                )
            )
    return lost
