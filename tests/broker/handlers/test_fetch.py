"""Fetch: what is found, how much of it, and how long a fetch waits."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.broker.file_range import INLINE_BYTES_MAX
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.records.batch import walk
from ottla.records.control import MarkerType
from ottla.records.reader import read_batch
from tests.broker.stage import CALLER, Stage, fetch_topic, produce_request
from tests.storage.workbench import batch, marker, sequenced


def one(response: Any) -> Any:
    return response.responses[0].partitions[0]


def bases(data: Any) -> list[int]:
    """The base offsets of the batches in a partition's answer."""
    return [header.base_offset for _, header in walk(bytes(data.records))]


def waiting(offset: int = 0, *, min_bytes: int = 1, max_wait_ms: int = 500, topic: str = "a") -> FetchRequest:
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[fetch_topic(topic, offset=offset)])


@pytest.fixture
def three(stage: Stage) -> Stage:
    """A topic with three batches of two records."""
    stage.create("a")
    stage.produce("a", 0, *(batch(b"%d" % n, b"%d'" % n) for n in range(3)))
    return stage


# --- what is found ---------------------------------------------------------------------------------------


def test_an_offset_inside_a_batch_gives_the_whole_batch(three: Stage) -> None:
    data = three.fetch("a", offset=3)
    assert bases(data) == [2, 4]
    assert read_batch(bytes(data.records or b""))[0].offset == 2


def test_at_the_end_there_are_empty_records_and_not_null(three: Stage) -> None:
    data = three.fetch("a", offset=6)
    assert (data.error_code, data.records) == (ErrorCode.NONE, b"")
    assert (data.high_watermark, data.log_start_offset) == (6, 0)


@pytest.mark.parametrize("offset", [7, -1, 2**62])
def test_an_offset_outside_the_log_is_out_of_range(three: Stage, offset: int) -> None:
    data = three.fetch("a", offset=offset)
    assert (data.error_code, data.high_watermark, data.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, b"")


def test_what_is_not_on_disk_yet_is_not_found_and_not_out_of_range(stage: Stage) -> None:
    stage.create("a")
    stage.send(produce_request("a", 0, batch(b"1"), acks=1), 12)
    data = stage.fetch("a", offset=1)
    assert (data.error_code, data.high_watermark, data.records) == (ErrorCode.NONE, 0, b"")


def test_partitions_and_topics_that_are_missing_are_errors_of_their_own(three: Stage) -> None:
    request = FetchRequest(topics=[fetch_topic("a", 0, 9), fetch_topic("missing")])
    response = three.call(request, 12)
    told = [
        (topic.topic, each.partition_index, each.error_code)
        for topic in response.responses
        for each in topic.partitions
    ]
    assert told == [
        ("a", 0, ErrorCode.NONE),
        ("a", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_id_of_no_topic_is_an_error_of_its_own(three: Stage) -> None:
    response = three.call(FetchRequest(topics=[fetch_topic("", topic_id=bytes(range(16)))]))
    assert response.error_code == ErrorCode.NONE
    assert (response.responses[0].topic_id, one(response).error_code) == (
        bytes(range(16)),
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


@pytest.mark.parametrize(("epoch", "code"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_client_with_another_idea_of_the_leader_is_refused(three: Stage, epoch: int, code: ErrorCode) -> None:
    three.crash()
    asked = FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=1_000)
    response = three.call(FetchRequest(topics=[FetchTopic(topic="a", partitions=[asked])]), 12)
    assert one(response).error_code == code


def test_a_partition_whose_disk_failed_is_an_error_of_its_own(three: Stage) -> None:
    three.disk.fail_next("sync", ".log", errno.EIO)
    three.produce("a")
    assert three.fetch("a").error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_records_of_an_open_transaction_are_kept_from_readers_of_committed_ones(stage: Stage) -> None:
    stage.create("a")
    partition = stage.partition("a")
    for data in (batch(b"0"), sequenced(7, 0, transactional=True), batch(b"2")):
        partition.log.append(data, leader_epoch=0)
    partition.ask_sync()
    stage.scheduler.run()
    request = FetchRequest(isolation_level=1, topics=[fetch_topic("a")])
    data = one(stage.call(request, 12))
    assert (data.high_watermark, data.last_stable_offset, bases(data)) == (3, 1, [0])
    assert data.aborted_transactions == ()
    assert bases(stage.fetch("a")) == [0, 1, 2]


def test_aborted_transactions_are_told_in_the_order_of_their_first_offsets(stage: Stage) -> None:
    stage.create("a")
    log = stage.partition("a").log
    for producer in (9, 7):
        log.append(sequenced(producer, 0, transactional=True), leader_epoch=0)
    for producer in (7, 9):
        log.append(marker(producer, MarkerType.ABORT), leader_epoch=0)
    stage.partition("a").ask_sync()
    stage.scheduler.run()
    data = one(stage.call(FetchRequest(isolation_level=1, topics=[fetch_topic("a")]), 12))
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions] == [(9, 0), (7, 1)]
    assert stage.fetch("a").aborted_transactions is None


# --- how much of it --------------------------------------------------------------------------------------


def test_a_batch_larger_than_every_limit_is_given_whole(stage: Stage) -> None:
    stage.create("a")
    stage.produce("a", 0, batch(b"x" * 10_000), batch(b"y"))
    request = FetchRequest(max_bytes=1, topics=[fetch_topic("a", bytes_max=1)])
    assert bases(one(stage.call(request, 12))) == [0]


def test_a_partitions_limit_ends_its_answer_at_a_batch_or_within_one(three: Stage) -> None:
    size = len(batch(b"0", b"0'"))
    request = FetchRequest(topics=[fetch_topic("a", bytes_max=size * 2)])
    assert bases(one(three.call(request, 12))) == [0, 2]


def test_only_the_first_partition_may_go_beyond_the_limit_of_the_request(stage: Stage) -> None:
    stage.create("a", 3)
    for index in range(3):
        stage.produce("a", index, batch(b"x" * 1_000))
    response = stage.call(FetchRequest(max_bytes=1, topics=[fetch_topic("a", 0, 1, 2)]), 12)
    assert [len(each.records) > 0 for each in response.responses[0].partitions] == [True, False, False]
    assert [each.high_watermark for each in response.responses[0].partitions] == [1, 1, 1]


def test_the_limit_of_a_request_is_shared_by_its_partitions(stage: Stage) -> None:
    stage.create("a", 3)
    size = len(batch(b"x" * 1_000))
    for index in range(3):
        stage.produce("a", index, batch(b"x" * 1_000))
    response = stage.call(FetchRequest(max_bytes=size * 2, topics=[fetch_topic("a", 0, 1, 2)]), 12)
    assert [len(each.records) for each in response.responses[0].partitions] == [size, size, 0]


def test_a_batch_that_does_not_fit_beside_another_waits_for_the_next_fetch(stage: Stage) -> None:
    stage.create("a", 2)
    size = len(batch(b"x" * 1_000))
    for index in range(2):
        stage.produce("a", index, batch(b"x" * 1_000))
    response = stage.call(FetchRequest(max_bytes=size * 2 - 1, topics=[fetch_topic("a", 0, 1)]), 12)
    assert [len(each.records) for each in response.responses[0].partitions] == [size, 0]


def test_the_broker_has_a_limit_of_its_own() -> None:
    stage = Stage({"fetch.max.bytes": "1024"})
    stage.create("a", 2)
    for index in range(2):
        stage.produce("a", index, batch(b"x" * 1_000))
    response = stage.call(FetchRequest(topics=[fetch_topic("a", 0, 1)]), 12)
    assert [len(each.records) > 0 for each in response.responses[0].partitions] == [True, False]


@pytest.mark.parametrize("size", [10, INLINE_BYTES_MAX * 3])
def test_a_caller_that_takes_ranges_of_files_gets_the_same_bytes(stage: Stage, size: int) -> None:
    stage.create("a")
    stage.produce("a", 0, batch(b"x" * size))
    request = FetchRequest(topics=[fetch_topic("a")])
    plain = stage.call(request, 12)
    ranged = stage.call(request, 12, caller=CALLER._replace(takes_ranges=True))
    assert bytes(one(ranged).records) == bytes(one(plain).records)


# --- waiting ---------------------------------------------------------------------------------------------


def test_a_fetch_waits_for_records_and_is_answered_when_they_are_on_disk(three: Stage) -> None:
    sent = three.send(waiting(6), 12)
    three.scheduler.run()
    assert not sent.is_answered
    three.produce("a", 0, batch(b"new"))
    assert bases(one(sent.response)) == [6]


def test_a_fetch_that_found_nothing_is_answered_when_its_time_is_over(three: Stage) -> None:
    sent = three.send(waiting(6), 12)
    three.scheduler.advance(499)
    assert not sent.is_answered
    three.scheduler.advance(1)
    assert one(sent.response).records == b""


def test_a_fetch_waits_until_there_are_enough_bytes(three: Stage) -> None:
    size = len(batch(b"n"))
    sent = three.send(waiting(6, min_bytes=size * 2), 12)
    three.produce("a", 0, batch(b"n"))
    assert not sent.is_answered
    three.produce("a", 0, batch(b"n"))
    assert bases(one(sent.response)) == [6, 7]


def test_too_few_bytes_are_given_when_the_time_is_over(three: Stage) -> None:
    sent = three.send(waiting(6, min_bytes=10_000), 12)
    three.produce("a", 0, batch(b"n"))
    three.scheduler.advance(500)
    assert bases(one(sent.response)) == [6]


@pytest.mark.parametrize("request_", [waiting(6, max_wait_ms=0), waiting(6, min_bytes=0)], ids=["no time", "no bytes"])
def test_a_fetch_that_does_not_want_to_wait_does_not(three: Stage, request_: FetchRequest) -> None:
    assert three.send(request_, 12).is_answered


def test_a_fetch_with_an_error_does_not_wait(three: Stage) -> None:
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[fetch_topic("a", offset=6), fetch_topic("missing")])
    assert three.send(request, 12).is_answered


def test_a_fetch_for_nothing_does_not_wait(stage: Stage) -> None:
    assert stage.send(FetchRequest(max_wait_ms=500, min_bytes=1), 12).is_answered


def test_one_write_answers_everybody_who_waits_for_it(three: Stage) -> None:
    sent = [three.send(waiting(6), 12) for _ in range(20)]
    three.produce("a", 0, batch(b"new"))
    assert all(bases(one(each.response)) == [6] for each in sent)


def test_a_fetch_over_many_partitions_is_answered_by_any_of_them(stage: Stage) -> None:
    stage.create("a", 3)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[fetch_topic("a", 0, 1, 2)])
    sent = stage.send(request, 12)
    stage.produce("a", 2)
    assert [len(each.records) > 0 for each in sent.response.responses[0].partitions] == [False, False, True]


def test_only_the_partitions_that_moved_are_looked_at_again(three: Stage) -> None:
    three.create("b")
    more_than_there_is = 3 * len(batch(b"0", b"0'")) + 1
    topics = [fetch_topic("a"), fetch_topic("b")]
    sent = three.send(FetchRequest(max_wait_ms=500, min_bytes=more_than_there_is, topics=topics), 12)
    # Whoever read the first topic again would meet this, and the answer would tell of it.
    three.disk.fail_next("read", "a-0/00000000000000000000.log", errno.EIO)
    three.produce("b", 0, batch(b"new"))
    first, second = (topic.partitions[0] for topic in sent.response.responses)
    assert (bases(first), bases(second)) == ([0, 2, 4], [0])


def test_a_fetch_gathers_what_partitions_bring_one_after_the_other(stage: Stage) -> None:
    stage.create("a", 3)
    size = len(batch(b"new"))
    request = FetchRequest(max_wait_ms=500, min_bytes=3 * size, topics=[fetch_topic("a", 0, 1, 2)])
    sent = stage.send(request, 12)
    for partition in (1, 2):
        stage.produce("a", partition, batch(b"new"))
        stage.scheduler.advance(10)
        assert not sent.is_answered
    stage.produce("a", 1, batch(b"new"))
    found = sent.response.responses[0].partitions
    assert [[*bases(each)] for each in found] == [[], [0, 1], [0]]
    assert [each.high_watermark for each in found] == [0, 2, 1]


def test_a_fetch_that_names_a_partition_twice_gets_it_twice(stage: Stage) -> None:
    stage.create("a", 2)
    sent = stage.send(FetchRequest(max_wait_ms=500, min_bytes=1, topics=[fetch_topic("a", 0, 1, 0)]), 12)
    stage.produce("a", 0, batch(b"new"))
    assert [bases(each) for each in sent.response.responses[0].partitions] == [[0], [], [0]]


def test_a_fetch_whose_time_is_over_tells_of_every_partition_as_it_is_then(stage: Stage) -> None:
    stage.create("a", 2)
    stage.produce("a", 0, batch(b"1"))
    topics = [
        FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=1), FetchPartition(partition=1)])
    ]
    sent = stage.send(FetchRequest(max_wait_ms=500, min_bytes=1 << 20, topics=topics), 12)
    stage.partition("a").delete_records(1, lambda fault: None)
    stage.scheduler.advance(500)
    assert [each.log_start_offset for each in sent.response.responses[0].partitions] == [1, 0]


def test_a_fetch_whose_client_went_away_is_forgotten(three: Stage) -> None:
    sent = three.send(waiting(6), 12)
    assert len(three.partition("a").watchers) == 1
    sent.outcome.cancel()  # type: ignore[union-attr]
    assert len(three.partition("a").watchers) == 0
    three.produce("a")
    three.scheduler.advance(1_000)
    assert not sent.is_answered


def test_nobody_is_watched_for_after_an_answer(three: Stage) -> None:
    sent = three.send(waiting(6), 12)
    three.scheduler.advance(500)
    assert sent.is_answered
    assert len(three.partition("a").watchers) == 0


def test_a_fetch_that_waits_hurries_a_write_that_nobody_else_waits_for(three: Stage) -> None:
    three.send(produce_request("a", 0, batch(b"new"), acks=1), 12)
    sent = three.send(waiting(6), 12)
    three.scheduler.run()
    assert bases(one(sent.response)) == [6]
