"""Offsets of transactions that have not ended: what is recorded of them, by producer and by group.

Changed by `replay` only, like the committed ones, which are in `offsets`. When the transaction ends its pending offsets
are committed or forgotten, see `offsets_transaction`.

Plain commits and transactions may store offsets of the same partition. As in Kafka the one that was stored last stays,
whichever transaction ends last. So a pending offset is `overtaken` by a plain commit that comes after it, and by the
commit of a transaction that stored its own offset later; an overtaken one is never committed. Kafka compares where the
records stand in the log. Here pending offsets are numbered as they are stored, and a committed one keeps its number,
so that this comes out the same after a restart and after a compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.coordinators.groups.offsets import tombstone_bytes
from ottla.coordinators.groups.offsets_limits import offset_bytes
from ottla.coordinators.groups.records import (
    NO_ORDER,
    OffsetCommitKey,
    OffsetCommitValue,
    PendingOffsetKey,
    PendingOffsetValue,
)
from ottla.coordinators.outcome import Outcome

PRODUCER_ID_BYTES = 8

Producers = dict[int, PendingOffsetValue]
_NONE: Mapping[str, Mapping[int, Producers]] = {}
_NOBODY: Producers = {}


class Pending(NamedTuple):
    """One pending offset."""

    key: PendingOffsetKey
    value: PendingOffsetValue

    @property
    def topic(self) -> str:
        return self.key.topic

    @property
    def topic_id(self) -> bytes:
        return self.value.topic_id

    @property
    def committed_key(self) -> OffsetCommitKey:
        """The key that it is committed under."""
        return OffsetCommitKey(group=self.key.group, topic=self.key.topic, partition=self.key.partition)

    @property
    def committed_value(self) -> OffsetCommitValue:
        """What is committed. It is as old as it was when it was stored, as in Kafka."""
        value = self.value
        return OffsetCommitValue(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp,
            topic_id=value.topic_id,
            order=value.order,
        )


def forgetting_bytes(group_id: str, topic: str) -> int:
    """What the tombstone of a pending offset takes in a batch."""
    return tombstone_bytes(group_id, topic) + PRODUCER_ID_BYTES


def storing_bytes(key: PendingOffsetKey, value: PendingOffsetValue) -> int:
    """What a pending offset takes in a batch."""
    return offset_bytes(key.group, key.topic, value.metadata) + PRODUCER_ID_BYTES


def ending_bytes(key: PendingOffsetKey, value: PendingOffsetValue) -> int:
    """What it takes to commit a pending offset."""
    return offset_bytes(key.group, key.topic, value.metadata) + forgetting_bytes(key.group, key.topic)


def deleting_bytes(group_id: str, topic: str) -> int:
    """What a pending offset adds to the deletion of its group: it may be committed by then, and one may be pending."""
    return tombstone_bytes(group_id, topic) + forgetting_bytes(group_id, topic)


class PendingOffsets:
    """The pending offsets of one shard."""

    __slots__ = ("_by_group", "_by_producer", "_deleting_bytes", "_ending_bytes", "_last_order", "_overtaken")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[PendingOffsetKey, PendingOffsetValue]] = {}
        self._by_group: dict[str, dict[str, dict[int, Producers]]] = {}
        self._overtaken: set[PendingOffsetKey] = set()
        self._ending_bytes: dict[int, int] = {}
        self._deleting_bytes: dict[str, int] = {}
        self._last_order = NO_ORDER

    # --- following the records ---------------------------------------------------------------------------

    def replay(self, key: PendingOffsetKey, value: PendingOffsetValue | None) -> None:
        """Follow a record; a tombstone takes the offset away."""
        self._forget(key)
        if value is None:
            return
        self._last_order = max(self._last_order, value.order)
        self._by_producer.setdefault(key.producer_id, {})[key] = value
        producers = self._by_group.setdefault(key.group, {}).setdefault(key.topic, {}).setdefault(key.partition, {})
        producers[key.producer_id] = value
        self._add_bytes(key, value, 1)

    def replay_committed(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Follow the record of a committed offset: what was stored before it is overtaken."""
        self._last_order = max(self._last_order, value.order)
        for producer_id, pending in self._at(key.group, key.topic, key.partition).items():
            if value.order == NO_ORDER or pending.order < value.order:
                self._overtaken.add(
                    PendingOffsetKey(producer_id=producer_id, group=key.group, topic=key.topic, partition=key.partition)
                )

    def _forget(self, key: PendingOffsetKey) -> None:
        of_producer = self._by_producer.get(key.producer_id, {})
        value = of_producer.pop(key, None)
        if value is None:
            return
        self._overtaken.discard(key)
        self._add_bytes(key, value, -1)
        if not of_producer:
            del self._by_producer[key.producer_id], self._ending_bytes[key.producer_id]
        topics = self._by_group[key.group]
        partitions = topics[key.topic]
        producers = partitions[key.partition]
        del producers[key.producer_id]
        if not producers:
            del partitions[key.partition]
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group], self._deleting_bytes[key.group]

    def _add_bytes(self, key: PendingOffsetKey, value: PendingOffsetValue, sign: int) -> None:
        ending = self._ending_bytes.get(key.producer_id, 0) + sign * ending_bytes(key, value)
        self._ending_bytes[key.producer_id] = ending
        deleting = self._deleting_bytes.get(key.group, 0) + sign * deleting_bytes(key.group, key.topic)
        self._deleting_bytes[key.group] = deleting

    # --- questions ---------------------------------------------------------------------------------------

    @property
    def next_order(self) -> int:
        """The number of the next one that is stored."""
        return self._last_order + 1

    def of_producer(self, producer_id: int) -> list[Pending]:
        return [Pending(key, value) for key, value in self._by_producer.get(producer_id, {}).items()]

    def get(self, key: PendingOffsetKey) -> PendingOffsetValue | None:
        return self._by_producer.get(key.producer_id, {}).get(key)

    def is_overtaken(self, key: PendingOffsetKey) -> bool:
        """Whether something newer has been committed there: then it is not committed any more."""
        return key in self._overtaken

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Producers]]:
        """By topic and partition, those of each producer; empty for a group that has none."""
        return self._by_group.get(group_id, _NONE)

    def is_any_at(self, group_id: str, topic: str, partition: int) -> bool:
        return bool(self._at(group_id, topic, partition))

    def has_group(self, group_id: str) -> bool:
        """Whether there is one of this group: that alone makes it a group."""
        return group_id in self._by_group

    def group_ids(self) -> tuple[str, ...]:
        return tuple(self._by_group)

    def ending_bytes(self, producer_id: int) -> int:
        """What it takes to commit all of a producer's in one batch."""
        return self._ending_bytes.get(producer_id, 0)

    def deleting_bytes(self, group_id: str) -> int:
        """What they add to the deletion of a group."""
        return self._deleting_bytes.get(group_id, 0)

    def _at(self, group_id: str, topic: str, partition: int) -> Producers:
        return self.of_group(group_id).get(topic, {}).get(partition, _NOBODY)

    def walk(self, *, entries_max: int, bytes_max: int) -> Iterator[list[Pending]]:
        """All of them in pieces, as `Offsets.walk`."""
        piece: list[Pending] = []
        piece_bytes = 0
        for producer_id in tuple(self._by_producer):
            for key in tuple(self._by_producer.get(producer_id, ())):
                value = self.get(key)
                if value is None:
                    continue
                piece.append(Pending(key, value))
                piece_bytes += forgetting_bytes(key.group, key.topic)
                if len(piece) >= entries_max or piece_bytes >= bytes_max:
                    yield piece
                    piece, piece_bytes = [], 0
        yield piece

    def __len__(self) -> int:
        return sum(len(of_producer) for of_producer in self._by_producer.values())

    # --- deciding ----------------------------------------------------------------------------------------

    def delete_group(self, group_id: str, outcome: Outcome) -> None:
        """Write the tombstones of all of a group's."""
        for topic, partitions in tuple(self.of_group(group_id).items()):
            for partition in tuple(partitions):
                self.delete_at(group_id, topic, partition, outcome)

    def delete_at(self, group_id: str, topic: str, partition: int, outcome: Outcome) -> None:
        """Write the tombstones of all that are pending there, of whatever producer."""
        for producer_id in tuple(self._at(group_id, topic, partition)):
            key = PendingOffsetKey(producer_id=producer_id, group=group_id, topic=topic, partition=partition)
            outcome.write(key, None)
