"""Committed offsets: what is recorded of them, by group, topic and partition.

Changed by `replay` only. Who may commit is decided in `offsets_commit`, when an offset has outlived its time in
`offsets_expiry`. Offsets that a transaction commits are not there yet: they will wait beside these until the
transaction ends, and make a fetch with requireStable wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.coordinators.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.outcome import Outcome

_NONE: Mapping[str, Mapping[int, OffsetCommitValue]] = {}


class Committed(NamedTuple):
    """One committed offset."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue

    @property
    def key(self) -> OffsetCommitKey:
        return OffsetCommitKey(group=self.group_id, topic=self.topic, partition=self.partition)


class Offsets:
    """The offsets of all groups of one shard."""

    __slots__ = ("_by_group",)

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Follow a record; a tombstone takes the offset away, and the last one of a group its place here."""
        if value is not None:
            self._by_group.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = value
            return
        topics = self._by_group.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._by_group.pop(key.group, None)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """By topic and partition; empty for a group that has none."""
        return self._by_group.get(group_id, _NONE)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def has_group(self, group_id: str) -> bool:
        """Whether there is an offset of this group: that alone makes it a group."""
        return group_id in self._by_group

    def group_ids(self) -> tuple[str, ...]:
        return tuple(self._by_group)

    def __iter__(self) -> Iterator[Committed]:
        """All of them. Nothing may be replayed meanwhile."""
        for group_id, topics in self._by_group.items():
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    yield Committed(group_id, topic, partition, value)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def delete_group(self, group_id: str, outcome: Outcome) -> None:
        """Write the tombstones of all of a group's offsets."""
        keys = [
            OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]
        for key in keys:
            outcome.write(key, None)
