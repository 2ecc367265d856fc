"""Produce: what each kind of acknowledgement promises, and which batches are refused."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.error_codes import ErrorCode
from ottla.partitions.partition import UNWATCHED_SYNC_MS
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import HEADER_SIZE, TimestampType, pack_header, peek, restamp_append_time, seal
from ottla.records.compression import Codec
from ottla.records.control import MarkerType
from tests.broker.stage import Stage, creation, produce_request
from tests.storage.workbench import NOW_MS, batch, keyed, marker, sequenced


def answer(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def code(stage: Stage, data: bytes | None, version: int = 12, topic: str = "a") -> ErrorCode:
    return ErrorCode(answer(stage.call(produce_request(topic, 0, data), version)).error_code)


# --- acknowledgements --------------------------------------------------------------------------------------


@pytest.fixture
def held() -> Stage:
    """A broker with a topic, whose disk waits to be told."""
    stage = Stage(held=True)
    stage.send(creation("a", 2))
    stage.scheduler.run()
    stage.jobs.finish()
    return stage


def test_acks_all_is_answered_when_the_batch_is_on_disk(held: Stage) -> None:
    sent = held.send(produce_request("a", 0, batch(b"1")), 12)
    held.scheduler.run()
    assert not sent.is_answered
    held.jobs.finish()
    assert answer(sent.response).base_offset == 0


def test_acks_1_is_answered_at_once_and_nobody_sees_the_batch_before_it_is_on_disk(held: Stage) -> None:
    sent = held.send(produce_request("a", 0, batch(b"1"), acks=1), 12)
    assert answer(sent.response).error_code == ErrorCode.NONE
    held.scheduler.advance(10)
    assert held.values("a") == []
    held.jobs.finish()
    assert held.values("a") == [b"1"]


def test_acks_0_gets_no_answer_and_is_written(stage: Stage) -> None:
    stage.create("a")
    assert stage.call(produce_request("a", 0, batch(b"1"), acks=0), 12) is None
    stage.scheduler.advance(UNWATCHED_SYNC_MS)
    assert stage.values("a") == [b"1"]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_any_other_number_of_acknowledgements_is_refused_and_nothing_written(stage: Stage, acks: int) -> None:
    stage.create("a")
    told = answer(stage.call(produce_request("a", 0, batch(b"1"), acks=acks), 12))
    assert (told.error_code, told.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    stage.scheduler.advance(10)
    assert stage.values("a") == []


def test_with_flush_messages_1_acks_1_waits_for_the_disk_too(held: Stage) -> None:
    held.send(creation("b", 1, flush_messages="1"))
    held.scheduler.run()
    held.jobs.finish()
    sent = held.send(produce_request("b", 0, batch(b"1"), acks=1), 12)
    held.scheduler.run()
    assert not sent.is_answered
    held.jobs.finish()
    assert answer(sent.response).error_code == ErrorCode.NONE


def test_with_the_page_cache_policy_acks_all_is_answered_at_once(held: Stage) -> None:
    held.send(creation("b", 1, ottla_acks_all="os"))
    held.scheduler.run()
    held.jobs.finish()
    sent = held.send(produce_request("b", 0, batch(b"1")), 12)
    assert answer(sent.response).error_code == ErrorCode.NONE
    assert held.values("b") == [b"1"]


def test_a_retry_is_answered_only_when_the_original_is_on_disk(held: Stage) -> None:
    first = held.send(produce_request("a", 0, sequenced(7, 0)), 12)
    retry = held.send(produce_request("a", 0, sequenced(7, 0)), 12)
    held.scheduler.run()
    assert not first.is_answered
    assert not retry.is_answered
    held.jobs.finish()
    assert answer(first.response).base_offset == answer(retry.response).base_offset == 0


def test_a_request_waits_for_all_of_its_partitions(held: Stage) -> None:
    data = [PartitionProduceData(index=index, records=batch(b"1")) for index in (0, 1)]
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name="a", partition_data=data)])
    sent = held.send(request, 12)
    held.scheduler.run()
    held.jobs.finish()
    assert not sent.is_answered
    held.jobs.finish()
    assert [each.error_code for each in sent.response.responses[0].partition_responses] == [ErrorCode.NONE] * 2


def test_after_its_timeout_a_request_is_told_so_and_the_batch_may_still_come(held: Stage) -> None:
    sent = held.send(produce_request("a", 0, batch(b"1")), 12)
    held.scheduler.advance(1_500)
    told = answer(sent.response)
    assert (told.error_code, told.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    held.jobs.finish()
    assert held.values("a") == [b"1"]


def test_a_sync_that_fails_fails_every_acknowledgement_that_waits_for_it(stage: Stage) -> None:
    stage.create("a")
    stage.disk.fail_next("sync", ".log", errno.EIO)
    sent = [stage.send(produce_request("a", 0, batch(b"1")), 12) for _ in range(3)]
    stage.scheduler.run()
    assert {answer(each.response).error_code for each in sent} == {ErrorCode.KAFKA_STORAGE_ERROR}


def test_after_a_failed_sync_the_partition_comes_back_by_itself(stage: Stage) -> None:
    stage.create("a")
    stage.produce("a", 0, batch(b"safe"))
    stage.disk.fail_next("sync", ".log", errno.EIO)
    stage.produce("a", 0, batch(b"lost"))
    assert code(stage, batch(b"refused")) == ErrorCode.KAFKA_STORAGE_ERROR
    stage.scheduler.advance(10_000)
    assert code(stage, batch(b"later")) == ErrorCode.NONE
    assert stage.values("a")[0] == b"safe"
    assert stage.values("a")[-1] == b"later"
    assert stage.partition("a").leader_epoch > 0


def test_a_full_disk_refuses_the_batch_and_goes_on_when_there_is_room(stage: Stage) -> None:
    stage.create("a")
    stage.produce("a", 0, batch(b"1"))
    stage.disk.capacity_bytes = stage.disk.used_bytes()
    assert code(stage, batch(b"2")) == ErrorCode.KAFKA_STORAGE_ERROR
    stage.disk.heal()
    assert code(stage, batch(b"3")) == ErrorCode.NONE
    assert stage.values("a") == [b"1", b"3"]


# --- finding the partition -----------------------------------------------------------------------------------


def test_each_partition_is_answered_for_itself(stage: Stage) -> None:
    stage.create("a")
    data = [PartitionProduceData(index=index, records=batch(b"1")) for index in (5, 0)]
    topics = [TopicProduceData(name=name, partition_data=data) for name in ("a", "missing")]
    response = stage.call(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics), 12)
    told = [
        (topic.name, each.index, each.error_code) for topic in response.responses for each in topic.partition_responses
    ]
    assert told == [
        ("a", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 0, ErrorCode.NONE),
        ("missing", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_id_of_no_topic_is_an_error_of_its_own(stage: Stage) -> None:
    stage.create("a")
    told = stage.call(produce_request("", 0, batch(b"1"), topic_id=bytes(range(16))), 13)
    assert told.responses[0].topic_id == bytes(range(16))
    assert answer(told).error_code == ErrorCode.UNKNOWN_TOPIC_ID


# --- batches that are refused --------------------------------------------------------------------------------


def stamped(data: bytes) -> bytes:
    changed = bytearray(data)
    restamp_append_time(changed, timestamp_ms=NOW_MS)
    return bytes(changed)


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (damaged(batch(b"1")), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"1")[:40], ErrorCode.CORRUPT_MESSAGE),
        (batch(b"1") + batch(b"2"), ErrorCode.CORRUPT_MESSAGE),
        (marker(7, MarkerType.COMMIT), ErrorCode.INVALID_RECORD),
        (sequenced(7, 0, transactional=True), ErrorCode.INVALID_TXN_STATE),
        (stamped(batch(b"1")), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"1", timestamp_ms=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["null", "empty", "damaged", "cut", "two", "control", "transactional", "stamped", "ahead", "large"],
)
def test_a_batch_that_cannot_be_taken_is_refused_and_nothing_written(
    stage: Stage, data: bytes | None, expected: ErrorCode
) -> None:
    stage.create("a")
    assert code(stage, data) == expected
    stage.scheduler.advance(10)
    assert stage.values("a") == []


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_stored_as_it_came(stage: Stage, codec: Codec) -> None:
    stage.create("a")
    data = batch(b"x" * 1_000, b"y" * 1_000, codec=codec)
    assert code(stage, data) == ErrorCode.NONE
    # The first 16 bytes are the broker's: base offset, length, leader epoch.
    assert bytes(stage.fetch("a").records or b"")[16:] == data[16:]


@pytest.mark.parametrize("version", [3, 6])
def test_zstd_is_refused_where_the_version_is_too_old_for_it(stage: Stage, version: int) -> None:
    stage.create("a")
    assert code(stage, batch(b"1", codec=Codec.ZSTD), version) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code(stage, batch(b"1", codec=Codec.ZSTD), 7) == ErrorCode.NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_compacted_topic_takes_no_record_without_a_key(stage: Stage, codec: Codec) -> None:
    stage.create("a", cleanup_policy="compact")
    assert code(stage, batch(b"1", key=None, codec=codec)) == ErrorCode.INVALID_RECORD
    assert code(stage, keyed([(b"k", b"1"), (None, b"2")])) == ErrorCode.INVALID_RECORD
    assert code(stage, keyed([(b"k", b"1"), (b"l", None)])) == ErrorCode.NONE


def test_a_batch_that_claims_more_records_than_its_bytes_can_hold_is_refused(stage: Stage) -> None:
    stage.create("a")
    forged = bytearray(batch(b"1"))
    header = replace(peek(forged), record_count=1_000, last_offset_delta=999)
    forged[:HEADER_SIZE] = pack_header(header)
    seal(forged)
    assert code(stage, bytes(forged)) == ErrorCode.INVALID_RECORD


def test_what_ottla_keeps_for_itself_is_not_written_by_clients(stage: Stage) -> None:
    stage.create("__consumer_offsets")
    refused = stage.produce("__consumer_offsets", 0, keyed([(b"k", b"v")]))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_gap_in_a_producers_sequence_is_refused(stage: Stage) -> None:
    stage.create("a")
    assert code(stage, sequenced(7, 0)) == ErrorCode.NONE
    assert code(stage, sequenced(7, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(stage, sequenced(7, 1)) == ErrorCode.NONE


def test_an_older_epoch_of_a_producer_is_refused(stage: Stage) -> None:
    stage.create("a")
    assert code(stage, sequenced(7, 0, epoch=3)) == ErrorCode.NONE
    assert code(stage, sequenced(7, 0, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producers_last_five_batches_are_known_after_a_power_loss(stage: Stage) -> None:
    stage.create("a")
    for sequence in range(5):
        stage.produce("a", 0, sequenced(7, sequence))
    stage.crash()
    for sequence in range(5):
        assert stage.produce("a", 0, sequenced(7, sequence)).base_offset == sequence
    assert len(stage.values("a")) == 5


def test_a_topic_with_log_append_time_stamps_records_itself(stage: Stage) -> None:
    stage.create("a", message_timestamp_type="LogAppendTime")
    told = stage.produce("a", 0, batch(b"1", timestamp_ms=5))
    assert told.log_append_time_ms == NOW_MS
    assert stage.partition("a").config.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert stage.values("a") == [b"1"]


def test_a_refusal_says_why_from_version_8_on(stage: Stage) -> None:
    stage.create("a", max_message_bytes="100")
    refused = produce_request("a", 0, batch(b"x" * 200))
    assert "max.message.bytes is 100" in answer(stage.call(refused, 8)).error_message
    assert answer(stage.call(refused, 7)).error_message is None


def test_a_missing_topic_is_made_by_a_produce_where_that_is_allowed(stage: Stage) -> None:
    assert stage.produce("new").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.produce("new").error_code == ErrorCode.NONE
