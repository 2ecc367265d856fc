"""Offsets on their way into the log and back: those that a crash has left without their records."""

from __future__ import annotations

import pytest

from ottla.coordinators.groups.offsets_record import OffsetRecords
from ottla.coordinators.groups.records import OffsetCommitKey, OffsetCommitValue, PendingOffsetKey, PendingOffsetValue
from ottla.coordinators.outcome import CoordinatorRecord
from ottla.partitions.partition import Partition
from ottla.records.batch import check
from tests.partitions.test_partition import Stage
from tests.storage.workbench import batch

TOPIC_ID = bytes(range(16))
COMMITTED = CoordinatorRecord(
    OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=3, topic_id=TOPIC_ID)
)
PENDING = CoordinatorRecord(
    PendingOffsetKey(producer_id=7, group="g", topic="t", partition=0),
    PendingOffsetValue(offset=3, order=1, topic_id=TOPIC_ID),
)


class Lives:
    """A partition that loses its tail, and comes back under another leader."""

    def __init__(self) -> None:
        self._stage = Stage()
        self.partition: Partition = self._stage.partition()
        self.records = OffsetRecords(lambda topic_id, index: self.partition, lambda topic_id, index: self.epoch)
        for value in (b"1", b"2", b"3"):
            data = batch(value)
            self.partition.append(data, check(data))
            if value == b"1":
                self._stage.settle()

    @property
    def epoch(self) -> int:
        return self.partition.leader_epoch

    def lose_tail(self) -> None:
        self._stage.disk.crash()
        self.partition = self._stage.partition()
        self.partition.leader_epoch = 1


@pytest.mark.parametrize("record", [COMMITTED, PENDING], ids=["committed", "pending"])
@pytest.mark.parametrize("told_epoch", [-1, 0], ids=["epoch not told", "epoch told"])
def test_an_offset_beyond_a_lost_tail_is_read_back_as_its_end(record: CoordinatorRecord, told_epoch: int) -> None:
    lives = Lives()
    assert isinstance(record.value, OffsetCommitValue | PendingOffsetValue)
    fields = {name: getattr(record.value, name) for name in type(record.value).__struct_fields__}
    value = type(record.value)(**fields | {"leader_epoch": told_epoch})
    data = lives.records.encode(CoordinatorRecord(record.key, value))
    lives.lose_tail()
    decoded = lives.records.decode(*data)
    assert decoded is not None
    assert isinstance(decoded.value, OffsetCommitValue | PendingOffsetValue)
    assert decoded.value.offset == lives.partition.log.end_offset < 3


@pytest.mark.parametrize("record", [COMMITTED, PENDING], ids=["committed", "pending"])
def test_an_offset_whose_records_are_there_is_read_back_as_it_was(record: CoordinatorRecord) -> None:
    lives = Lives()
    assert lives.records.decode(*lives.records.encode(record)) == record
