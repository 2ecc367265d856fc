"""Offsets, committed and pending, on their way into the log and back: what they need beyond Kafka's own fields.

Two things travel in tagged fields, which Kafka's tools pass over. Under which leader of its partition an offset was
committed, where the client has not said so: after a crash that took the tail of the partition, an offset that its
leader never came to is read back as the one where that leader ended. Records will be given the offsets beyond it anew,
and a consumer that went on there would never see them. Both are on the disk, so this comes out the same at every start,
however often the power goes. And the expiry of an offset that has one of its own: the one version that has a field for
it has none for the topic's id, without which the offset would fit a topic of the same name made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from ottla.coordinators.groups import records
from ottla.coordinators.groups.records import (
    NEVER,
    OffsetCommitKey,
    OffsetCommitValue,
    PendingOffsetKey,
    PendingOffsetValue,
)
from ottla.coordinators.outcome import CoordinatorRecord
from ottla.errors import Refusal
from ottla.partitions.partition import Partition
from ottla.protocol.schema import NO_UUID

LEADER_EPOCH_TAG = 10_000
EXPIRE_TIMESTAMP_TAG = 10_001
"""Far from the tags that Kafka gives out."""
NO_EPOCH = -1
WARNINGS_MAX = 10
"""How many offsets that are taken back are told of one by one."""

_EPOCH_BYTES = 4
_TIMESTAMP_BYTES = 8
_logger = logging.getLogger(__name__)

Key = OffsetCommitKey | PendingOffsetKey
V = TypeVar("V", OffsetCommitValue, PendingOffsetValue)


class OffsetRecords:
    """Writes and reads the records of `__consumer_offsets`; all but offsets as `records` does."""

    def __init__(self, partition: Callable[[bytes, int], Partition], leader_epoch: Callable[[bytes, int], int]) -> None:
        self._partition = partition
        """By the topic's id; raises a Refusal where it cannot be had."""
        self._leader_epoch = leader_epoch
        """The same, but for the epoch alone: for that a partition need not be opened."""
        self._taken_back = 0

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        key, value = record
        if isinstance(value, OffsetCommitValue):
            assert isinstance(key, OffsetCommitKey)
            value = self._with_expiry(self._with_epoch(key, value))
        elif isinstance(value, PendingOffsetValue):
            assert isinstance(key, PendingOffsetKey)
            value = self._with_epoch(key, value)
        return records.encode_key(key), None if value is None else records.encode_value(value)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        record = records.decode(key, value)
        if record is None:
            return None
        if isinstance(record.value, OffsetCommitValue):
            assert isinstance(record.key, OffsetCommitKey)
            return CoordinatorRecord(record.key, self._judged(record.key, _told_expiry(record.value)))
        if isinstance(record.value, PendingOffsetValue):
            assert isinstance(record.key, PendingOffsetKey)
            return CoordinatorRecord(record.key, self._judged(record.key, record.value))
        return record

    def _with_epoch(self, key: Key, value: V) -> V:
        epoch = NO_EPOCH if value.leader_epoch != NO_EPOCH else self._present_epoch(key, value)
        if epoch == NO_EPOCH:
            return value
        return replace(value, unknown_tags=((LEADER_EPOCH_TAG, epoch.to_bytes(_EPOCH_BYTES)),))

    def _with_expiry(self, value: OffsetCommitValue) -> OffsetCommitValue:
        if value.expire_timestamp == NEVER:
            return value
        tag = (EXPIRE_TIMESTAMP_TAG, value.expire_timestamp.to_bytes(_TIMESTAMP_BYTES, signed=True))
        return replace(value, expire_timestamp=NEVER, unknown_tags=(*value.unknown_tags, tag))

    def _present_epoch(self, key: Key, value: OffsetCommitValue | PendingOffsetValue) -> int:
        """The leader's epoch; none for an offset beyond the end: somebody has chosen it, and it stays."""
        partition = self._found(key, value)
        if partition is None or value.offset > partition.log.end_offset:
            return NO_EPOCH
        return partition.leader_epoch

    def _judged(self, key: Key, value: V) -> V:
        epoch = value.leader_epoch
        if value.unknown_tags:
            for tag, data in value.unknown_tags:
                if tag == LEADER_EPOCH_TAG:
                    epoch = int.from_bytes(data)
            value = replace(value, unknown_tags=())
        if epoch == NO_EPOCH or not self._has_ended(epoch, key, value):
            return value
        partition = self._found(key, value)
        if partition is None or epoch >= partition.leader_epoch:
            return value
        end_offset = partition.end_of_epoch(epoch).start_offset
        if not 0 <= end_offset < value.offset:
            return value
        self._tell(key, value.offset, end_offset)
        return replace(value, offset=end_offset)

    def _has_ended(self, epoch: int, key: Key, value: OffsetCommitValue | PendingOffsetValue) -> bool:
        """Whether there is another leader by now. After an unclean stop there is, and all partitions are open."""
        try:
            return epoch < self._leader_epoch(value.topic_id, key.partition)
        except Refusal:
            return False

    def _found(self, key: Key, value: OffsetCommitValue | PendingOffsetValue) -> Partition | None:
        if value.topic_id == NO_UUID:
            return None
        try:
            return self._partition(value.topic_id, key.partition)
        except Refusal:
            # Deleted, or offline.
            return None

    def _tell(self, key: Key, offset: int, end_offset: int) -> None:
        self._taken_back += 1
        if self._taken_back <= WARNINGS_MAX:
            _logger.warning(
                "group %r had read %s-%d up to %d, but what its leader wrote ends at %d since a crash: it goes on from"
                " there",
                key.group,
                key.topic,
                key.partition,
                offset,
                end_offset,
            )


def _told_expiry(value: OffsetCommitValue) -> OffsetCommitValue:
    for tag, data in value.unknown_tags:
        if tag == EXPIRE_TIMESTAMP_TAG:
            return replace(value, expire_timestamp=int.from_bytes(data, signed=True))
    return value
