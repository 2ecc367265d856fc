"""Committed offsets: what is recorded of them, by group, topic and partition.

Changed by `replay` only. Who may commit is decided in `offsets_commit`, when an offset has outlived its time in
`offsets_expiry`. Offsets of a transaction are not among these before it is committed: see `offsets_pending`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.coordinators.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.outcome import Outcome

RECORD_BYTES = 32
"""What a tombstone takes beside the names in it, and a little more."""

_NONE: Mapping[str, Mapping[int, OffsetCommitValue]] = {}


class Committed(NamedTuple):
    """One committed offset."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue

    @property
    def topic_id(self) -> bytes:
        return self.value.topic_id

    @property
    def key(self) -> OffsetCommitKey:
        return OffsetCommitKey(group=self.group_id, topic=self.topic, partition=self.partition)


def text_bytes(text: str) -> int:
    """What a string takes in a record."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def tombstone_bytes(group_id: str, topic: str) -> int:
    """What the tombstone of an offset takes in a batch: the group's name stands in every key."""
    return text_bytes(group_id) + text_bytes(topic) + RECORD_BYTES


class Offsets:
    """The offsets of all groups of one shard."""

    __slots__ = ("_by_group", "_tombstones_bytes")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self._tombstones_bytes: dict[str, int] = {}

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Follow a record; a tombstone takes the offset away, and the last one of a group its place here."""
        if value is not None:
            partitions = self._by_group.setdefault(key.group, {}).setdefault(key.topic, {})
            if key.partition not in partitions:
                size = tombstone_bytes(key.group, key.topic)
                self._tombstones_bytes[key.group] = self._tombstones_bytes.get(key.group, 0) + size
            partitions[key.partition] = value
            return
        topics = self._by_group.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        self._tombstones_bytes[key.group] -= tombstone_bytes(key.group, key.topic)
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group]
            del self._tombstones_bytes[key.group]

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

    def tombstones_bytes(self, group_id: str) -> int:
        """What it takes to delete all offsets of a group in one batch."""
        return self._tombstones_bytes.get(group_id, 0)

    def walk(self, *, entries_max: int, bytes_max: int) -> Iterator[list[Committed]]:
        """All of them in pieces, each as it is when its piece is asked for. Between pieces anything may be replayed.

        A piece has at most so many, whose tombstones take about so much; what is committed meanwhile may be left out.
        """
        piece: list[Committed] = []
        piece_bytes = 0
        for group_id in self.group_ids():
            for topic in tuple(self.of_group(group_id)):
                size = tombstone_bytes(group_id, topic)
                for partition in tuple(self.of_group(group_id).get(topic, ())):
                    value = self.get(group_id, topic, partition)
                    if value is None:
                        continue
                    piece.append(Committed(group_id, topic, partition, value))
                    piece_bytes += size
                    if len(piece) >= entries_max or piece_bytes >= bytes_max:
                        yield piece
                        piece, piece_bytes = [], 0
        yield piece

    def __iter__(self) -> Iterator[Committed]:
        """All of them. Nothing may be replayed meanwhile."""
        for group_id, topics in self._by_group.items():
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    yield Committed(group_id, topic, partition, value)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def delete_group(self, group_id: str, outcome: Outcome) -> None:
        """Write the tombstones of all of a group's offsets. Commits see to it that they fit into one batch."""
        keys = [
            OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]
        for key in keys:
            outcome.write(key, None)
