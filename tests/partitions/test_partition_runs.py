"""Several batches that a partition appends with one write, and when it leaves them to be appended one by one."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.errors import PartitionOffline, TopicNotFound
from ottla.partitions.partition import Partition
from ottla.partitions.unsynced import UnsyncedBytes
from ottla.records.batch import TimestampType
from tests.partitions.test_partition import DEFAULTS, OS, Stage, Told, put
from tests.records.samples import run_of
from tests.storage.workbench import NOW_MS, batch

RUN = [batch(b"a"), batch(b"b", b"c"), batch(b"d")]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def _warm(partition: Partition) -> Partition:
    """The first batches of a segment are looked at one by one."""
    for _ in range(2):
        put(partition, batch(b"before"))
    return partition


def _run(partition: Partition, batches: Sequence[bytes] = RUN) -> int | None:
    run = run_of(batches)
    return run.offsets[0] if partition.append_run(run, now_ms=NOW_MS) else None


def test_a_run_is_visible_once_it_is_durable(stage: Stage) -> None:
    partition = _warm(stage.partition())
    assert _run(partition) == 2
    assert partition.high_watermark == 0
    stage.settle()
    assert partition.high_watermark == 6


def test_with_the_page_cache_policy_a_run_is_visible_at_once_and_readers_are_woken(stage: Stage) -> None:
    partition = _warm(stage.partition(OS))
    told = Told()
    partition.watchers.add((told, 0))
    assert _run(partition) == 2
    assert (partition.high_watermark, told.woken) == (6, 1)


def test_the_bytes_of_a_run_count_as_unsynced_until_they_are_not() -> None:
    stage = Stage(unsynced=UnsyncedBytes())
    partition = _warm(stage.partition())
    before = stage.unsynced.total
    _run(partition)
    assert stage.unsynced.total == before + sum(map(len, RUN))
    stage.settle()
    assert stage.unsynced.total == 0


@pytest.mark.parametrize(
    "odd",
    [
        batch(b"x" * 2_000),
        batch(timestamp_ms=NOW_MS + 60_001),
        batch(timestamp_ms=NOW_MS - 60_001),
        batch(timestamp_ms=-1),
    ],
    ids=["size", "ahead", "behind", "none"],
)
def test_a_run_with_a_batch_that_the_topic_may_refuse_is_left_alone(stage: Stage, odd: bytes) -> None:
    config = replace(DEFAULTS, max_message_bytes=1_000, timestamp_before_max_ms=60_000, timestamp_after_max_ms=60_000)
    partition = _warm(stage.partition(config))
    assert _run(partition, [*RUN, odd]) is None
    assert partition.log.end_offset == 2
    assert _run(partition) == 2


def test_a_limit_for_timestamps_that_is_none_is_no_obstacle(stage: Stage) -> None:
    # Kafka's own default for a long time, and more than fits beside the time of day into 64 bits.
    partition = _warm(
        stage.partition(replace(DEFAULTS, timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1))
    )
    assert _run(partition) == 2


def test_a_topic_that_stamps_records_takes_no_run(stage: Stage) -> None:
    partition = _warm(stage.partition())
    partition.configure(replace(DEFAULTS, timestamp_type=TimestampType.LOG_APPEND_TIME))
    put(partition, batch())
    assert _run(partition) is None
    assert partition.log.end_offset == 3


def test_a_deleted_topic_takes_no_run(stage: Stage) -> None:
    partition = _warm(stage.partition())
    partition.retire(TopicNotFound("topic"))
    assert _run(partition) is None
    assert partition.log.end_offset == 2


def test_a_full_disk_refuses_a_run_and_the_partition_stays(stage: Stage) -> None:
    partition = _warm(stage.partition())
    stage.disk.capacity_bytes = stage.disk.used_bytes() + len(RUN[0])
    unsynced_bytes = stage.unsynced.total
    with pytest.raises(PartitionOffline, match="nothing of the batch was kept"):
        _run(partition)
    assert (partition.offline, partition.log.end_offset, stage.unsynced.total) == (None, 2, unsynced_bytes)
    stage.disk.heal()
    assert _run(partition) == 2


def test_a_disk_that_fails_under_a_run_takes_the_partition_offline(stage: Stage) -> None:
    partition = _warm(stage.partition())
    stage.disk.fail_next("append", ".log", errno.EIO)
    with pytest.raises(PartitionOffline):
        _run(partition)
    assert partition.offline is not None
    assert _run(partition) is None
