"""ListOffsets: offsets by time, the special times, and a client that finds its own writes."""

from __future__ import annotations

import pytest
from msgspec import structs

from ottla.broker.deadlines import BUCKET_MS
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.stage import Stage, creation, produce_request
from tests.storage.workbench import NOW_MS, batch

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6


def question(timestamp: int, *, topic: str = "a", partition: int = 0, epoch: int = -1) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def look_up(stage: Stage, timestamp: int, *, version: int = 11, epoch: int = -1) -> tuple[ErrorCode, int, int]:
    result = stage.call(question(timestamp, epoch=epoch), version).topics[0].partitions[0]
    return ErrorCode(result.error_code), result.offset, result.timestamp


@pytest.fixture
def timed(stage: Stage) -> Stage:
    """Records at 100, 300, 200 and 300 ms after the beginning, each in a segment of its own."""
    stage.create("a", segment_bytes="60")
    for after_ms in (100, 300, 200, 300):
        stage.produce("a", 0, batch(b"v", timestamp_ms=NOW_MS + after_ms))
    return stage


@pytest.mark.parametrize(
    ("after_ms", "offset", "found_ms"), [(0, 0, 100), (100, 0, 100), (101, 1, 300), (250, 1, 300), (300, 1, 300)]
)
def test_a_time_means_the_first_record_at_or_after_it(timed: Stage, after_ms: int, offset: int, found_ms: int) -> None:
    assert look_up(timed, NOW_MS + after_ms) == (ErrorCode.NONE, offset, NOW_MS + found_ms)


def test_a_time_after_the_last_record_finds_nothing(timed: Stage) -> None:
    assert look_up(timed, NOW_MS + 301) == (ErrorCode.NONE, -1, -1)


def test_time_0_finds_the_first_record(timed: Stage) -> None:
    assert look_up(timed, 0)[1] == 0


@pytest.mark.parametrize(
    ("special", "offset", "found_ms"),
    [
        (LATEST, 4, None),
        (EARLIEST, 0, None),
        (MAX_TIMESTAMP, 1, 300),
        (EARLIEST_LOCAL, 0, None),
        (LATEST_TIERED, -1, None),
        (EARLIEST_PENDING, -1, None),
    ],
)
def test_special_times_mean_what_kafka_means_by_them(
    timed: Stage, special: int, offset: int, found_ms: int | None
) -> None:
    assert look_up(timed, special) == (ErrorCode.NONE, offset, -1 if found_ms is None else NOW_MS + found_ms)


@pytest.mark.parametrize(
    ("special", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING, 10)]
)
def test_a_special_time_is_refused_before_the_version_that_brought_it(timed: Stage, special: int, version: int) -> None:
    assert look_up(timed, special, version=version)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert look_up(timed, special, version=version + 1)[0] == ErrorCode.NONE


def test_a_time_that_means_nothing_is_refused(timed: Stage) -> None:
    assert look_up(timed, -7)[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("special", [MAX_TIMESTAMP, NOW_MS])
def test_an_empty_partition_has_no_offset_for_a_time(stage: Stage, special: int) -> None:
    stage.create("a")
    assert look_up(stage, special) == (ErrorCode.NONE, -1, -1)


def test_an_empty_partition_begins_and_ends_at_0(stage: Stage) -> None:
    stage.create("a")
    assert look_up(stage, LATEST)[1] == look_up(stage, EARLIEST)[1] == 0


def test_the_earliest_offset_follows_deleted_records(timed: Stage) -> None:
    wanted = DeleteRecordsTopic(name="a", partitions=[DeleteRecordsPartition(offset=2)])
    timed.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=1_000))
    assert look_up(timed, EARLIEST)[1] == 2
    assert look_up(timed, NOW_MS + 100)[1] == 2


def test_whoever_asks_for_the_end_after_an_acknowledgement_finds_their_own_write(stage: Stage) -> None:
    stage.create("a")
    stage.send(produce_request("a", 0, batch(b"1"), acks=1), 12)
    sent = stage.send(question(LATEST))
    assert not sent.is_answered
    stage.scheduler.run()
    assert sent.response.topics[0].partitions[0].offset == 1


def test_the_epoch_of_the_record_that_was_found_is_told(timed: Stage) -> None:
    timed.crash()
    timed.produce("a", 0, batch(b"new", timestamp_ms=NOW_MS + 400))
    old, new, end = (
        timed.call(question(timestamp)).topics[0].partitions[0].leader_epoch
        for timestamp in (NOW_MS + 100, NOW_MS + 400, LATEST)
    )
    assert (old, new, end) == (0, 1, 1)


@pytest.mark.parametrize(("epoch", "code"), [(1, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE)])
def test_a_client_that_heard_of_a_newer_leader_is_refused(timed: Stage, epoch: int, code: ErrorCode) -> None:
    assert look_up(timed, LATEST, epoch=epoch)[0] == code


def test_a_client_with_an_older_leader_in_mind_is_refused(timed: Stage) -> None:
    timed.crash()
    assert look_up(timed, LATEST, epoch=0)[0] == ErrorCode.FENCED_LEADER_EPOCH


def test_a_partition_that_is_missing_is_an_error_of_its_own(timed: Stage) -> None:
    for topic, partition in (("missing", 0), ("a", 5)):
        result = timed.call(question(LATEST, topic=topic, partition=partition)).topics[0].partitions[0]
        assert (result.error_code, result.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize(("version", "timeout_ms", "waits_ms"), [(11, 2_000, 2_000), (11, 0, 30_000), (9, 0, 30_000)])
def test_a_sync_that_never_ends_does_not_keep_the_answer_for_ever(version: int, timeout_ms: int, waits_ms: int) -> None:
    stage = held_topic()
    stage.send(produce_request("a", 0, batch(b"v"), acks=1), 12)
    sent = stage.send(structs.replace(question(LATEST), timeout_ms=timeout_ms), version)
    stage.scheduler.advance(waits_ms - 1)
    assert not sent.is_answered
    stage.scheduler.advance(1 + 2 * BUCKET_MS)
    assert sent.response.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_sync_that_ends_after_the_answer_changes_nothing() -> None:
    stage = held_topic()
    stage.send(produce_request("a", 0, batch(b"v"), acks=1), 12)
    sent = stage.send(question(LATEST), 11)
    stage.scheduler.advance(60_000)
    stage.jobs.finish()
    assert sent.response.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert look_up(stage, LATEST) == (ErrorCode.NONE, 1, -1)


def held_topic() -> Stage:
    """A broker with a topic, whose jobs wait."""
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    while stage.jobs.waiting:
        stage.jobs.finish()
    return stage
