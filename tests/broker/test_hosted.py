"""The partitions of a broker: opened when they are used, each failing alone, following the metadata."""

from __future__ import annotations

import errno

import pytest

from ottla.error_codes import ErrorCode
from ottla.errors import PartitionOffline
from ottla.partitions.hosted import PlaceJob, RemoveJob
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.storage.log import Log
from tests.broker.stage import DATA, Stage, creation, produce_request
from tests.storage.workbench import batch, sequenced


def opened(stage: Stage) -> set[tuple[str, int]]:
    return {key for key, _ in stage.broker.services.partitions}


def removal(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1_000)


# --- opening -----------------------------------------------------------------------------------------------


def test_after_a_clean_stop_nothing_is_opened_before_it_is_used(stage: Stage) -> None:
    stage.create("a", 3)
    for index in range(3):
        stage.produce("a", index)
    stage.restart()
    assert opened(stage) == set()
    assert stage.values("a", 1) == [b"v"]
    assert opened(stage) == {("a", 1)}


def test_after_an_unclean_stop_everything_is_recovered_before_the_first_request(stage: Stage) -> None:
    stage.create("a", 3)
    stage.produce("a", 1)
    stage.crash()
    assert opened(stage) == {("a", 0), ("a", 1), ("a", 2)}
    assert stage.values("a", 1) == [b"v"]


def test_a_clean_stop_leaves_its_mark_once(stage: Stage) -> None:
    stage.create("a")
    stage.restart()
    assert f"{DATA}/ottla.clean" not in stage.disk.files()
    stage.crash()
    assert opened(stage) == {("a", 0)}


def test_the_mark_of_a_clean_stop_is_no_stranger_in_the_data_directory(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.create("a")
    stage.restart()
    assert "does not belong" not in caplog.text


def test_an_unclean_stop_raises_the_epoch_of_what_was_written_to(stage: Stage) -> None:
    stage.create("a", 2)
    stage.produce("a", 0)
    stage.restart()
    stage.produce("a", 0)
    stage.crash()
    assert stage.partition("a", 0).leader_epoch == 1
    assert stage.broker.services.catalog.image.partition("a", 0).leader_epoch == 1


def test_a_clean_stop_raises_no_epoch(stage: Stage) -> None:
    stage.create("a")
    stage.produce("a")
    for _ in range(3):
        stage.restart()
    assert stage.partition("a").leader_epoch == 0


def test_a_new_topic_begins_at_epoch_0(stage: Stage) -> None:
    stage.create("a")
    assert stage.partition("a").leader_epoch == 0


def test_an_epoch_is_raised_by_every_unclean_stop(stage: Stage) -> None:
    stage.create("a")
    for epoch in range(1, 4):
        stage.produce("a")
        stage.crash()
        assert stage.partition("a").leader_epoch == epoch


def test_a_new_epoch_is_not_forgotten_when_the_broker_stops_before_the_metadata_have_it(stage: Stage) -> None:
    stage.create("a")
    stage.produce("a")
    before = stage.store
    stage.crash()
    assert stage.partition("a").leader_epoch == 1
    stage.broker.stop()
    stage.broker.close()
    # As if the last life's wish to raise the epoch had never been written.
    stage.store = before.crash()
    stage.start()
    assert stage.partition("a").log.recovery.clean
    assert stage.partition("a").leader_epoch == 1


def test_a_new_epoch_is_on_the_disk_before_anything_is_written_under_it(stage: Stage) -> None:
    stage.create("a")
    stage.produce("a")
    stage.crash()
    stage.disk.crash()
    log = stage.partition("a").log
    again = Log.open(stage.disk, log.directory, config=log.config, clock=stage.clock)
    assert again.epochs.latest == 1


def test_an_epoch_that_only_the_log_knows_is_told_to_the_metadata(stage: Stage) -> None:
    stage.create("a")
    stage.partition("a").log.begin_epoch(3)
    stage.restart()
    assert stage.partition("a").leader_epoch == 3
    stage.scheduler.run()
    assert stage.broker.services.catalog.image.partition("a", 0).leader_epoch == 3


def test_a_closed_broker_opens_nothing_any_more(stage: Stage) -> None:
    stage.create("a", 2)
    stage.restart()
    stage.partition("a", 0)
    partitions = stage.broker.services.partitions
    stage.broker.stop()
    stage.broker.close()
    for index in range(2):
        with pytest.raises(PartitionOffline, match="the broker is closed"):
            partitions.by_name("a", index)


# --- failing -----------------------------------------------------------------------------------------------


def damage(stage: Stage, topic: str) -> None:
    """Stop the broker, and let its disk fail where this topic's first partition is read."""
    stage.broker.stop()
    stage.broker.close()
    stage.store = stage.store.crash()
    stage.disk.fail_next("names", f"{topic}-0", errno.EIO, times=1_000)
    stage.start()


def test_a_partition_that_cannot_be_opened_is_offline_by_itself(stage: Stage) -> None:
    for topic in ("bad", "good"):
        stage.create(topic)
        stage.produce(topic)
    damage(stage, "bad")
    assert stage.fetch("bad").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.produce("bad").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.values("good") == [b"v"]
    reason = stage.broker.services.partitions.offline_reason("bad", 0)
    assert reason is not None
    assert "bad-0" in reason


def test_a_partition_that_could_not_be_opened_is_tried_again(stage: Stage) -> None:
    stage.create("a")
    stage.produce("a")
    damage(stage, "a")
    with pytest.raises(PartitionOffline):
        stage.partition("a")
    stage.disk.heal()
    with pytest.raises(PartitionOffline):
        stage.partition("a")
    stage.scheduler.advance(10_000)
    assert stage.values("a") == [b"v"]


def test_a_partition_that_fails_again_when_it_is_reopened_does_not_end_the_reopening(stage: Stage) -> None:
    stage.create("bad", segment_bytes="1048576")
    stage.create("good")
    stage.produce("bad", 0, batch(b"x" * 900_000))
    stage.produce("good")
    stage.disk.fail_next("open", ".log", errno.EIO)
    assert stage.produce("bad", 0, batch(b"y" * 900_000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    stage.disk.fail_next("sync", "good-0/00000000000000000000.log", errno.EIO)
    assert stage.produce("good").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    stage.disk.fail_next("sync", "bad-0/00000000000000000000.log", errno.EIO, times=1_000)
    stage.disk.fail_next("open", ".seal.tmp", errno.EIO, times=1_000)
    stage.scheduler.advance(10_000)
    stage.disk.heal()
    stage.scheduler.advance(10_000)
    assert stage.produce("bad").error_code == ErrorCode.NONE
    assert stage.produce("good").error_code == ErrorCode.NONE


def test_at_an_unclean_start_one_bad_partition_does_not_keep_the_others_from_coming_up(stage: Stage) -> None:
    for topic in ("bad", "good"):
        stage.create(topic)
        stage.produce(topic)
    stage.disk.fail_next("names", "bad-0", errno.EIO, times=1_000)
    stage.crash()
    assert opened(stage) == {("good", 0)}
    stage.disk.heal()
    stage.scheduler.advance(10_000)
    assert stage.values("bad") == [b"v"]


def test_a_topic_whose_directory_is_gone_is_offline_and_says_what_to_do(stage: Stage) -> None:
    for topic in ("gone", "good"):
        stage.create(topic)
    stage.broker.stop()
    stage.broker.close()
    stage.store = stage.store.crash()
    stage.disk.remove_directory(f"{DATA}/gone-0")
    stage.start()
    with pytest.raises(PartitionOffline, match="bring it back, or delete the topic"):
        stage.partition("gone")
    assert stage.produce("good").error_code == ErrorCode.NONE
    assert stage.call(removal("gone")).responses[0].error_code == ErrorCode.NONE
    stage.create("gone")
    assert stage.produce("gone").error_code == ErrorCode.NONE


# --- deleting and making again -----------------------------------------------------------------------------


def test_a_topic_may_be_deleted_and_made_again_at_once(stage: Stage) -> None:
    stage.create("a", 2)
    stage.produce("a", 1, batch(b"old"))
    sent = [stage.send(removal("a")), stage.send(creation("a", 3)), stage.send(removal("a")), stage.send(creation("a"))]
    stage.scheduler.run()
    assert [each.response.responses[0].error_code for each in sent[::2]] == [ErrorCode.NONE] * 2
    assert [each.response.topics[0].error_code for each in sent[1::2]] == [ErrorCode.NONE] * 2
    assert stage.produce("a", 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.produce("a", 0, batch(b"new")).base_offset == 0
    stage.crash()
    assert stage.values("a") == [b"new"]
    assert not stage.broker.services.catalog.offline


def test_old_directories_are_gone_before_new_ones_of_the_same_name_are_made() -> None:
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    stage.jobs.finish()
    stage.send(removal("a"))
    stage.send(creation("a"))
    stage.scheduler.run()
    assert [type(job) for job, _ in stage.jobs.waiting] == [RemoveJob]
    stage.jobs.finish()
    assert [type(job) for job, _ in stage.jobs.waiting] == [PlaceJob]


def test_a_directory_is_not_taken_away_under_a_sync() -> None:
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    stage.jobs.finish()
    stage.send(produce_request("a", 0, sequenced(7, 0)), 12)
    stage.scheduler.run()
    stage.send(removal("a"))
    stage.send(creation("a"))
    stage.scheduler.run()
    # Only the sync: it would write its files into the directory of the new topic.
    assert not any(isinstance(job, RemoveJob | PlaceJob) for job, _ in stage.jobs.waiting)
    for _ in range(3):
        stage.jobs.finish()
    assert sorted(path for path in stage.disk.files() if "/a-0/" in path) == [f"{DATA}/a-0/partition.metadata"]


def test_a_topic_deleted_while_it_is_made_leaves_nothing_behind() -> None:
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    stage.send(removal("a"))
    stage.scheduler.run()
    stage.jobs.finish()
    # The directories were made, and are still to be removed: a crash here must not forget that.
    stage.crash()
    assert not [path for path in stage.disk.files() if "/a-0/" in path]
    assert not stage.broker.services.catalog.offline
    created = stage.send(CreateTopicsRequest(topics=creation("a").topics))
    stage.scheduler.run()
    stage.jobs.finish()
    assert created.response.topics[0].error_code == ErrorCode.NONE


def test_a_partition_that_is_being_made_is_not_led_by_anybody_yet() -> None:
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    told = stage.call(produce_request("a", 0, batch(b"1")), 12)
    assert told.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_waits_for_a_topic_that_is_deleted_is_told() -> None:
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    stage.jobs.finish()
    sent = stage.send(produce_request("a", 0, batch(b"1")), 12)
    stage.scheduler.run()
    stage.send(removal("a"))
    stage.scheduler.run()
    assert sent.response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_topics_leave_no_unsynced_bytes_in_the_books(stage: Stage) -> None:
    stage.create("a")
    stage.send(produce_request("a", 0, batch(b"x" * 1_000), acks=1), 12)
    assert stage.broker.services.partitions.unsynced.total > 0
    stage.call(removal("a"))
    assert stage.broker.services.partitions.unsynced.total == 0
