"""DeleteRecords: the start of a partition moves forward, durably, and never beyond what is visible."""

from __future__ import annotations

import errno

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchRequest
from tests.broker.stage import DATA, Stage, creation, fetch_topic, produce_request
from tests.storage.workbench import batch


def deletion(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=1_000)


def delete(stage: Stage, topic: str, offset: int, partition: int = 0) -> tuple[ErrorCode, int]:
    result = stage.call(deletion(topic, offset, partition)).topics[0].partitions[0]
    return ErrorCode(result.error_code), result.low_watermark


@pytest.fixture
def ten(stage: Stage) -> Stage:
    """A broker with a topic of ten records, one in each segment."""
    stage.create("a", segment_bytes="60")
    stage.produce("a", 0, *(batch(b"%d" % n) for n in range(10)))
    return stage


def test_records_below_an_offset_are_gone(ten: Stage) -> None:
    assert delete(ten, "a", 4) == (ErrorCode.NONE, 4)
    assert ten.fetch("a", offset=3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert ten.values("a", offset=4) == [b"%d" % n for n in range(4, 10)]


def test_the_files_below_go(ten: Stage) -> None:
    delete(ten, "a", 4)
    logs = sorted(path for path in ten.disk.files() if path.startswith(f"{DATA}/a-0/") and path.endswith(".log"))
    assert logs[0] == f"{DATA}/a-0/{4:020d}.log"


def test_minus_one_means_everything_that_is_visible(ten: Stage) -> None:
    assert delete(ten, "a", -1) == (ErrorCode.NONE, 10)
    assert ten.produce("a").base_offset == 10


def test_an_offset_beyond_the_high_watermark_is_out_of_range(ten: Stage) -> None:
    assert delete(ten, "a", 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert ten.values("a")[0] == b"0"


@pytest.mark.parametrize("offset", [-2, -(2**63)])
def test_an_offset_below_minus_one_is_out_of_range(ten: Stage, offset: int) -> None:
    assert delete(ten, "a", offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_an_offset_below_the_start_changes_nothing_and_tells_the_start(ten: Stage) -> None:
    delete(ten, "a", 6)
    assert delete(ten, "a", 2) == (ErrorCode.NONE, 6)


def test_the_new_start_survives_a_power_loss(ten: Stage) -> None:
    delete(ten, "a", 4)
    ten.crash()
    assert ten.values("a", offset=4) == [b"%d" % n for n in range(4, 10)]
    assert ten.fetch("a", offset=3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_each_partition_succeeds_or_fails_for_itself(ten: Stage) -> None:
    wanted = [DeleteRecordsPartition(partition_index=index, offset=3) for index in (1, 0)]
    topics = [
        DeleteRecordsTopic(name="a", partitions=wanted),
        DeleteRecordsTopic(name="missing", partitions=wanted[:1]),
    ]
    response = ten.call(DeleteRecordsRequest(topics=topics, timeout_ms=1_000))
    told = [
        (topic.name, each.partition_index, each.error_code) for topic in response.topics for each in topic.partitions
    ]
    assert told == [
        ("a", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 0, ErrorCode.NONE),
        ("missing", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_records_of_a_compacted_topic_stay(stage: Stage) -> None:
    stage.create("a", cleanup_policy="compact")
    stage.produce("a")
    assert delete(stage, "a", 1) == (ErrorCode.POLICY_VIOLATION, -1)


def test_records_of_a_topic_that_is_compacted_and_deleted_may_go(stage: Stage) -> None:
    stage.create("a", cleanup_policy="compact,delete")
    stage.produce("a")
    assert delete(stage, "a", 1) == (ErrorCode.NONE, 1)


def test_ottlas_own_topics_keep_their_records(stage: Stage) -> None:
    stage.create("__consumer_offsets", cleanup_policy="delete")
    stage.produce("__consumer_offsets")
    assert delete(stage, "__consumer_offsets", 1) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_a_client_may_delete_what_it_just_wrote_without_waiting_for_the_disk(stage: Stage) -> None:
    stage.create("a")
    stage.send(produce_request("a", 0, batch(b"1"), acks=1), 12)
    sent = stage.send(deletion("a", 1))
    assert not sent.is_answered
    stage.scheduler.run()
    assert sent.response.topics[0].partitions[0].low_watermark == 1


def test_the_answer_comes_when_the_new_start_is_durable() -> None:
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    stage.jobs.finish()
    stage.send(produce_request("a", 0, batch(b"1")), 12)
    stage.scheduler.run()
    stage.jobs.finish()
    sent = stage.send(deletion("a", 1))
    stage.scheduler.run()
    assert not sent.is_answered
    stage.jobs.finish()
    assert sent.response.topics[0].partitions[0].low_watermark == 1


def test_two_deletions_are_done_one_after_the_other_so_that_the_later_start_stays() -> None:
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    stage.jobs.finish()
    stage.send(produce_request("a", 0, batch(b"1", b"2")), 12)
    stage.scheduler.run()
    stage.jobs.finish()
    for offset in (1, 2):
        stage.send(deletion("a", offset))
    stage.scheduler.run()
    assert len(stage.jobs.waiting) == 1
    stage.jobs.finish()
    stage.jobs.finish()
    stage.crash()
    assert stage.partition("a").log.log_start_offset == 2


def test_a_start_that_cannot_be_made_durable_is_an_error_and_a_second_try_makes_it_so(ten: Stage) -> None:
    ten.disk.fail_next("rename", ".tmp", errno.EIO)
    assert delete(ten, "a", 4)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert delete(ten, "a", 4) == (ErrorCode.NONE, 4)
    ten.crash()
    assert ten.partition("a").log.log_start_offset == 4


def test_a_consumer_that_waits_at_the_end_goes_on_waiting(ten: Stage) -> None:
    waiting = ten.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[fetch_topic("a", offset=10)]), 12)
    delete(ten, "a", -1)
    assert not waiting.is_answered
    ten.produce("a")
    assert waiting.response.responses[0].partitions[0].error_code == ErrorCode.NONE
