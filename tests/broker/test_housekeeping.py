"""Housekeeping: what a broker does by itself, without one topic's trouble becoming another's."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from ottla.broker.housekeeping import Compacted
from ottla.error_codes import ErrorCode
from ottla.errors import StorageError
from ottla.storage.compaction import compact
from ottla.storage.compaction_plan import CompactionPlan
from ottla.storage.memory_disk import MemoryDisk
from tests.broker.stage import DATA, Stage
from tests.storage.workbench import batch, keyed, sequenced

HOUR_MS = 3_600_000
RETENTION = {"log.retention.check.interval.ms": "1000"}
CLEANING = {"log.cleaner.backoff.ms": "1000"}


def log_start(stage: Stage, topic: str) -> int:
    return stage.partition(topic).log.log_start_offset


# --- retention -----------------------------------------------------------------------------------------------


def test_old_segments_go_and_the_start_moves() -> None:
    stage = Stage(RETENTION)
    stage.create("a", segment_bytes="60", retention_ms=str(HOUR_MS))
    stage.produce("a", 0, batch(b"1"), batch(b"2"))
    stage.clock.advance(HOUR_MS - 10_000)
    stage.produce("a", 0, batch(b"3", timestamp_ms=stage.clock.now_ms()))
    assert log_start(stage, "a") == 0
    stage.scheduler.advance(20_000)
    assert log_start(stage, "a") == 2
    assert stage.values("a", offset=2) == [b"3"]


def test_the_last_segment_goes_too_when_all_of_it_is_old() -> None:
    stage = Stage(RETENTION)
    stage.create("a", retention_ms=str(HOUR_MS))
    stage.produce("a", 0, batch(b"1"))
    stage.scheduler.advance(HOUR_MS + 5_000)
    assert log_start(stage, "a") == 1
    assert stage.produce("a", 0, batch(b"2", timestamp_ms=stage.clock.now_ms())).base_offset == 1


def test_a_partition_that_is_too_large_loses_its_oldest_segments() -> None:
    stage = Stage(RETENTION)
    size = len(batch(b"x" * 100))
    stage.create("a", segment_bytes=str(size), retention_bytes=str(size * 3))
    stage.produce("a", 0, *(batch(b"x" * 100) for _ in range(10)))
    stage.scheduler.advance(1_000)
    assert stage.partition("a").log.size <= size * 4
    assert log_start(stage, "a") > 0


def test_without_delete_in_its_policy_a_topic_keeps_everything() -> None:
    stage = Stage(RETENTION)
    stage.create("a", segment_bytes="60", cleanup_policy="compact", retention_ms="1")
    stage.produce("a", 0, batch(b"1"), batch(b"2"))
    stage.scheduler.advance(HOUR_MS)
    assert log_start(stage, "a") == 0


def test_a_shorter_retention_takes_effect_without_a_restart() -> None:
    stage = Stage(RETENTION)
    stage.create("a", segment_bytes="60")
    stage.produce("a", 0, batch(b"1"), batch(b"2"))
    stage.scheduler.advance(HOUR_MS)
    assert log_start(stage, "a") == 0
    stage.broker.services.catalog.alter_topic_configs("a", {"retention.ms": "1000"}, lambda error: None)
    stage.scheduler.advance(2_000)
    assert log_start(stage, "a") == 2


def test_one_partition_whose_files_cannot_be_removed_does_not_stop_the_others() -> None:
    stage = Stage(RETENTION)
    for topic in ("bad", "good"):
        stage.create(topic, segment_bytes="60", retention_ms="1000")
        stage.produce(topic, 0, batch(b"1"), batch(b"2"))
    stage.disk.fail_next("rename", ".tmp", errno.EIO)
    stage.scheduler.advance(5_000)
    assert not [path for path in stage.disk.files() if path == f"{DATA}/good-0/{0:020d}.log"]
    assert log_start(stage, "good") == 2


def test_producers_that_were_silent_for_long_are_forgotten() -> None:
    stage = Stage({**RETENTION, "producer.id.expiration.ms": str(HOUR_MS)})
    stage.create("a")
    stage.produce("a", 0, sequenced(7, 0))
    stage.scheduler.advance(HOUR_MS - 10_000)
    assert len(stage.partition("a").log.producers) == 1
    stage.scheduler.advance(20_000)
    assert len(stage.partition("a").log.producers) == 0


def test_a_broker_that_stops_begins_nothing_more() -> None:
    stage = Stage(RETENTION)
    stage.create("a", segment_bytes="60", retention_ms="1000")
    stage.produce("a", 0, batch(b"1"), batch(b"2"))
    stage.broker.stop()
    stage.scheduler.advance(HOUR_MS)
    assert log_start(stage, "a") == 0


# --- compaction ----------------------------------------------------------------------------------------------


@dataclass
class FakeCompactor:
    """Compacts here and now, or holds the work, or fails for some directories."""

    disk: MemoryDisk
    failing: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    held: list[Compacted] | None = None

    def __call__(self, directory: str, planned: CompactionPlan, done: Compacted) -> None:
        self.asked.append(directory)
        if self.held is not None:
            self.held.append(done)
        elif directory in self.failing:
            done(StorageError(f"{directory}: the process that compacts it failed"))
        else:
            done(compact(self.disk, directory, planned))


def cleaning(*topics: str) -> tuple[Stage, FakeCompactor]:
    """A broker with compacted topics that have something to compact."""
    disk = MemoryDisk(seed=1)
    compactor = FakeCompactor(disk)
    stage = Stage(CLEANING, disk=disk, compactor=compactor)
    for topic in topics:
        stage.create(topic, cleanup_policy="compact", segment_bytes="60", min_cleanable_dirty_ratio="0")
        stage.produce(topic, 0, *(keyed([(b"k", b"%d" % n)]) for n in range(4)))
    return stage, compactor


def test_only_the_last_record_of_a_key_stays_in_what_was_compacted() -> None:
    stage, _ = cleaning("a")
    stage.scheduler.advance(2_000)
    # The active segment is never compacted.
    assert stage.values("a") == [b"2", b"3"]


def test_a_topic_whose_compaction_fails_does_not_stop_the_others() -> None:
    stage, compactor = cleaning("bad", "good", "worse")
    compactor.failing = {f"{DATA}/bad-0", f"{DATA}/worse-0"}
    stage.scheduler.advance(2_000)
    assert stage.values("good") == [b"2", b"3"]
    assert stage.values("bad") == [b"0", b"1", b"2", b"3"]
    compactor.failing.clear()
    stage.scheduler.advance(2_000)
    assert stage.values("bad") == stage.values("worse") == [b"2", b"3"]


def test_one_compaction_runs_at_a_time() -> None:
    stage, compactor = cleaning("a", "b")
    compactor.held = []
    stage.scheduler.advance(10_000)
    assert compactor.asked == [f"{DATA}/a-0"]
    compactor.held.pop()(StorageError("it failed"))
    assert compactor.asked == [f"{DATA}/a-0", f"{DATA}/b-0"]


def test_a_swap_that_fails_takes_its_partition_offline_and_no_other() -> None:
    stage, _ = cleaning("a", "b")
    stage.disk.fail_next("rename", ".seal.cleaned", errno.EIO)
    stage.scheduler.advance(2_000)
    assert stage.fetch("a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.values("b") == [b"2", b"3"]
    stage.scheduler.advance(10_000)
    assert stage.values("a")[-1] == b"3"


def test_a_topic_deleted_while_it_is_compacted_is_left_alone() -> None:
    stage, compactor = cleaning("a")
    compactor.held = []
    stage.scheduler.advance(2_000)
    stage.broker.services.catalog.delete_topic("a", lambda outcome: None)
    stage.scheduler.run()
    compactor.held.pop()(StorageError("its directory is gone"))
    stage.scheduler.advance(2_000)
    assert "a" not in stage.broker.services.catalog.image.topics


def test_compaction_can_be_switched_off() -> None:
    disk = MemoryDisk(seed=1)
    compactor = FakeCompactor(disk)
    stage = Stage({**CLEANING, "log.cleaner.enable": "false"}, disk=disk, compactor=compactor)
    stage.create("a", cleanup_policy="compact", segment_bytes="60", min_cleanable_dirty_ratio="0")
    stage.produce("a", 0, *(keyed([(b"k", b"%d" % n)]) for n in range(4)))
    stage.scheduler.advance(10_000)
    assert compactor.asked == []
