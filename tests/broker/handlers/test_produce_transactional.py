"""Transactional batches on their way into partitions: only while their transaction is open, and in their order."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ottla.broker.markers import RETRY_MS_MAX
from ottla.broker.pending import Pending
from ottla.coordinators.runtime import shard_index
from ottla.coordinators.transactions.transactions import PARK_MS_MAX
from ottla.error_codes import ErrorCode
from ottla.errors import RefusedUnanswered, StorageFault
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Message
from ottla.records.reader import read_batch
from tests.broker.stage import CALLER, Stage, produce_request
from tests.broker.transactional_producer import (
    TransactionalProducer,
    code_of,
    codes_of,
    committed_data,
    committed_values,
    end_offset,
    held_producer,
    markers,
    settle,
)
from tests.storage.workbench import sequenced


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    stage.create("t", 3)
    return TransactionalProducer(stage).init()


@pytest.fixture(params=[True, False], ids=["second", "first"])
def either(request: pytest.FixtureRequest, stage: Stage) -> TransactionalProducer:
    """A producer of either version of transactions."""
    stage.create("t", 3)
    return TransactionalProducer(stage, second=request.param).init()


# --- what readers see --------------------------------------------------------------------------------------


def test_a_committed_transaction_is_seen_by_everybody(either: TransactionalProducer) -> None:
    assert either.produce(b"a", b"b") == ErrorCode.NONE
    assert either.produce(b"c", partition=1) == ErrorCode.NONE
    assert either.end() == ErrorCode.NONE
    assert committed_values(either.stage) == [b"a", b"b"]
    assert committed_values(either.stage, partition=1) == [b"c"]


def test_an_aborted_transaction_is_skipped_by_those_who_read_committed(either: TransactionalProducer) -> None:
    either.produce(b"a")
    assert either.end(committed=False) == ErrorCode.NONE
    assert committed_values(either.stage) == []
    assert [found.producer_id for found in committed_data(either.stage).aborted_transactions or ()] == [
        either.producer_id
    ]


def test_an_open_transaction_ends_what_is_stable(either: TransactionalProducer) -> None:
    either.stage.produce("t", 0, sequenced(900, 0))
    either.produce(b"a")
    either.stage.produce("t", 0, sequenced(900, 1))
    assert end_offset(either.stage) == 1
    assert end_offset(either.stage, committed=False) == 3
    assert committed_data(either.stage).last_stable_offset == 1
    assert committed_values(either.stage) == [b"900/0"]


def test_the_end_of_a_transaction_makes_what_is_behind_it_stable(either: TransactionalProducer) -> None:
    either.produce(b"a")
    either.stage.produce("t", 0, sequenced(900, 0))
    either.end()
    assert end_offset(either.stage) == end_offset(either.stage, committed=False) == 3
    assert committed_values(either.stage) == [b"a", b"900/0"]


def test_one_transaction_follows_the_other(either: TransactionalProducer) -> None:
    for value in (b"a", b"b", b"c"):
        assert either.produce(value) == ErrorCode.NONE
        assert either.end(committed=value != b"b") == ErrorCode.NONE
    assert committed_values(either.stage) == [b"a", b"c"]


def test_the_markers_of_the_second_version_carry_the_next_epoch(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    producer.end()
    assert producer.epoch == 1
    assert markers(producer.stage) == [(producer.producer_id, 1, "COMMIT")]


def test_the_markers_of_the_first_version_carry_the_same_epoch(stage: Stage) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage, second=False).init()
    producer.produce(b"a")
    producer.end()
    assert markers(stage) == [(producer.producer_id, 0, "COMMIT")]


# --- who may write -----------------------------------------------------------------------------------------


def test_a_partition_joins_the_transaction_by_its_first_batch(producer: TransactionalProducer) -> None:
    assert producer.state().transaction_state == "Empty"
    producer.produce(b"a", partition=2)
    state = producer.state()
    assert state.transaction_state == "Ongoing"
    assert [(topic.topic, list(topic.partitions)) for topic in state.topics] == [("t", [2])]


def test_a_transaction_begins_on_the_disk_before_its_first_batch_is_in_a_partition() -> None:
    producer = held_producer()
    stage = producer.stage
    sent = producer.send(b"a")
    stage.scheduler.run()
    assert stage.partition("t").log.end_offset == 0
    stage.jobs.finish()
    assert stage.partition("t").log.end_offset == 1
    assert not sent.is_answered
    settle(stage)
    assert code_of(sent) == ErrorCode.NONE


def test_a_batch_for_a_partition_that_was_not_added_is_refused_in_the_first_version(stage: Stage) -> None:
    stage.create("t", 2)
    producer = TransactionalProducer(stage, second=False).init()
    producer.add(("t", 0))
    assert producer.produce(b"a", partition=1, version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert stage.partition("t", 1).log.end_offset == 0


@pytest.mark.parametrize("version", [3, 8, 10])
def test_before_version_11_that_is_an_invalid_state(stage: Stage, version: int) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage, second=False).init()
    assert producer.produce(b"a", version=version) == ErrorCode.INVALID_TXN_STATE
    assert stage.partition("t").log.end_offset == 0


def test_a_transactional_batch_without_a_transactional_id_is_refused(producer: TransactionalProducer) -> None:
    response = producer.stage.call(produce_request("t", 0, producer.data(b"a")), 12)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert producer.stage.partition("t").log.end_offset == 0


def test_a_batch_of_another_producer_id_is_refused(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    producer.producer_id += 7
    assert producer.produce(b"b", partition=1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.stage.partition("t", 1).log.end_offset == 0


def test_a_batch_of_an_id_that_nobody_knows_is_refused(producer: TransactionalProducer) -> None:
    producer.transactional_id = "other"
    assert producer.produce(b"a") == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_on_a_broker_without_transactions_a_batch_is_refused_and_no_topic_is_made(stage: Stage) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage, producer_id=5, epoch=0)
    assert producer.produce(b"a") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert "__transaction_state" not in stage.broker.services.catalog.image.topics


@pytest.mark.parametrize("partition", [0, 1], ids=["where it has written", "where it has not"])
def test_a_zombie_is_refused_wherever_it_writes(producer: TransactionalProducer, partition: int) -> None:
    producer.produce(b"a")
    successor = TransactionalProducer(producer.stage).init()
    assert successor.epoch > producer.epoch
    ends = [producer.stage.partition("t", index).log.end_offset for index in range(3)]
    assert producer.produce(b"late", partition=partition) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert ends == [producer.stage.partition("t", index).log.end_offset for index in range(3)]
    assert committed_values(producer.stage) == []


def test_a_batch_that_comes_after_the_end_is_refused_in_the_second_version(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    late = producer.request(("t", 0, producer.data(b"late")))
    producer.end()
    sent = producer.stage.send(late, 12)
    producer.stage.scheduler.advance(10)
    assert code_of(sent) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed_values(producer.stage) == [b"a"]
    assert end_offset(producer.stage) == end_offset(producer.stage, committed=False)


def test_a_batch_that_comes_after_the_end_is_refused_in_the_first_version(stage: Stage) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage, second=False).init()
    producer.produce(b"a")
    late = producer.request(("t", 0, producer.data(b"late")))
    producer.end()
    sent = stage.send(late, 11)
    stage.scheduler.advance(10)
    assert code_of(sent) == ErrorCode.TRANSACTION_ABORTABLE
    assert committed_values(stage) == [b"a"]
    assert end_offset(stage) == end_offset(stage, committed=False)


@pytest.mark.parametrize("second", [True, False], ids=["second", "first"])
def test_between_the_decision_and_its_markers_nothing_more_gets_in(*, second: bool) -> None:
    producer = held_producer(second=second)
    stage = producer.stage
    stage.send(producer.add_request(("t", 0)), 3)
    settle(stage)
    first = producer.send(b"a")
    settle(stage)
    assert code_of(first) == ErrorCode.NONE
    stage.send(producer.end_request(), 5 if second else 3)
    late = producer.send(b"late")
    stage.scheduler.run()
    assert stage.partition("t").log.end_offset == 1
    settle(stage)
    assert code_of(late) == (ErrorCode.INVALID_PRODUCER_EPOCH if second else ErrorCode.INVALID_TXN_STATE)
    assert [batch.header.is_control for batch in stage.partition("t").log.batches(offset=0)] == [False, True]


def test_a_batch_whose_transaction_is_ended_while_it_waits_to_join_is_refused(producer: TransactionalProducer) -> None:
    held = held_producer()
    waiting = held.send(b"a")
    held.stage.scheduler.run()
    # A successor aborts the transaction before the disk has its beginning.
    held.stage.send(held.init_request())
    settle(held.stage)
    assert code_of(waiting) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert [batch.header.is_control for batch in held.stage.partition("t").log.batches(offset=0)] == [True]


# --- their order -------------------------------------------------------------------------------------------


def test_batches_that_come_while_the_first_one_waits_keep_their_order() -> None:
    producer = held_producer()
    stage = producer.stage
    sent = [producer.send(b"%d" % number) for number in range(5)]
    stage.scheduler.run()
    assert stage.partition("t").log.end_offset == 0
    settle(stage)
    assert [code_of(each) for each in sent] == [ErrorCode.NONE] * 5
    assert stage.partition("t").log.end_offset == 5


def test_a_batch_does_not_overtake_those_that_wait(producer: TransactionalProducer) -> None:
    held = held_producer()
    stage = held.stage
    first = held.send(b"a")
    # Somebody else's decision in the same shard, whose record the second batch would have to wait for.
    second = held.send(b"b")
    stage.send(TransactionalProducer(stage, "id/2").init_request())
    third = held.send(b"c")
    settle(stage)
    fourth = held.send(b"d")
    settle(stage)
    assert [code_of(each) for each in (first, second, third, fourth)] == [ErrorCode.NONE] * 4


def test_many_partitions_join_by_one_record(producer: TransactionalProducer) -> None:
    stage = producer.stage
    ends = state_end(stage)
    batches = [("t", index, producer.data(b"v", partition=index)) for index in range(3)]
    sent = stage.send(producer.request(*batches), 12)
    stage.scheduler.run()
    assert codes_of(sent) == [ErrorCode.NONE] * 3
    assert state_end(stage) == ends + 1


def test_what_waits_behind_a_batch_that_is_refused_is_refused_with_it() -> None:
    producer = held_producer(second=False)
    stage = producer.stage
    sent = [producer.send(b"a"), producer.send(b"b")]
    settle(stage)
    assert [code_of(each) for each in sent] == [ErrorCode.TRANSACTION_ABORTABLE] * 2
    assert stage.partition("t").log.end_offset == 0


def test_what_waits_behind_a_batch_that_is_to_be_sent_again_is_sent_again_too() -> None:
    producer = ending_for_long()
    sent = [producer.send(b"%d" % number, partition=1) for number in range(3)]
    producer.stage.scheduler.advance(PARK_MS_MAX)
    assert [code_of(each) for each in sent] == [ErrorCode.CONCURRENT_TRANSACTIONS] * 3


def test_a_producer_that_sends_the_next_batch_from_within_an_answer_does_not_overtake_its_own() -> None:
    producer = held_producer()
    stage = producer.stage
    first, second, third = (producer.request(("t", 0, producer.data(b"%d" % number)), acks=1) for number in range(3))
    header = RequestHeader(ApiKey.PRODUCE, 12, 1, None)
    answered = stage.broker.submit(header, first, CALLER)
    waiting = stage.send(second, 12)
    last: list[Message | Pending | None] = []
    assert isinstance(answered, Pending)
    answered.then(lambda response: last.append(stage.broker.submit(header, third, CALLER)))
    settle(stage)
    assert code_of(waiting) == ErrorCode.NONE
    assert len(last) == 1
    assert stage.partition("t").log.end_offset == 3


def test_a_batch_that_waits_does_not_rely_on_the_buffer_that_it_came_in() -> None:
    producer = held_producer()
    stage = producer.stage
    buffer = bytearray(producer.data(b"mine"))
    request = producer.request(("t", 0, memoryview(buffer)))
    header = RequestHeader(ApiKey.PRODUCE, 12, 1, None)
    stage.broker.submit(header, request, CALLER)
    buffer[:] = bytes(len(buffer))
    settle(stage)
    (found,) = stage.partition("t").log.batches(offset=0)
    assert [record.value for record in read_batch(found.data)] == [b"mine"]


def test_a_later_batch_does_not_come_in_before_an_earlier_one_that_was_refused_for_a_while() -> None:
    producer = ending_for_long()
    stage = producer.stage
    early = producer.request(("t", 1, producer.data(b"early", partition=1)))
    refused = stage.send(early, 12)
    stage.scheduler.advance(PARK_MS_MAX)
    assert code_of(refused) == ErrorCode.CONCURRENT_TRANSACTIONS
    bring_back(stage)
    later = producer.send(b"later", partition=1)
    stage.scheduler.run()
    assert code_of(later) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = stage.send(early, 12)
    stage.scheduler.run()
    assert code_of(again) == ErrorCode.NONE


# --- waiting for the end of the one before -----------------------------------------------------------------


def test_a_batch_waits_until_the_transaction_before_has_come_to_its_end() -> None:
    producer = ending_for_long()
    waiting = producer.send(b"next", partition=1)
    producer.stage.scheduler.advance(PARK_MS_MAX - 1_000)
    assert not waiting.is_answered
    bring_back(producer.stage)
    assert code_of(waiting) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.CONCURRENT_TRANSACTIONS), (11, ErrorCode.NOT_ENOUGH_REPLICAS)]
)
def test_when_that_takes_too_long_the_producer_is_told_to_try_again(version: int, code: ErrorCode) -> None:
    producer = ending_for_long()
    waiting = producer.send(b"next", partition=1, version=version)
    producer.stage.scheduler.advance(PARK_MS_MAX)
    assert code_of(waiting) == code
    assert producer.stage.partition("t", 1).log.end_offset == 0


def test_a_broker_that_stops_does_not_let_a_producer_wait() -> None:
    producer = ending_for_long()
    waiting = producer.send(b"next", partition=1)
    producer.stage.broker.stop()
    assert isinstance(waiting.outcome, Pending)
    waiting.outcome.hurry()
    assert code_of(waiting) == ErrorCode.NOT_ENOUGH_REPLICAS
    bring_back(producer.stage)
    assert producer.stage.partition("t", 1).log.end_offset == 0


def test_a_request_whose_time_is_over_says_so() -> None:
    producer = ending_for_long()
    request = replace(producer.request(("t", 1, producer.data(b"next", partition=1))), timeout_ms=500)
    waiting = producer.stage.send(request, 12)
    producer.stage.scheduler.advance(1_000)
    assert code_of(waiting) == ErrorCode.REQUEST_TIMED_OUT


def test_a_batch_of_a_client_that_has_gone_away_is_taken_all_the_same() -> None:
    producer = ending_for_long()
    waiting = producer.send(b"next", partition=1)
    assert isinstance(waiting.outcome, Pending)
    waiting.outcome.cancel()
    bring_back(producer.stage)
    assert producer.stage.partition("t", 1).log.end_offset == 1


def test_while_the_coordinator_is_being_read_back_a_producer_is_told_to_try_again() -> None:
    producer = held_producer()
    stage = producer.stage
    first = producer.send(b"a")
    settle(stage)
    stage.broker.services.partitions.by_name("__transaction_state", shard_of("id")).fail(StorageFault("/data", "test"))
    sent = [producer.send(b"b", partition=1), producer.send(b"c")]
    settle(stage)
    assert code_of(first) == ErrorCode.NONE
    assert [code_of(each) for each in sent] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    assert [stage.partition("t", index).log.end_offset for index in (0, 1)] == [1, 0]


# --- the request -------------------------------------------------------------------------------------------


def test_each_partition_of_a_request_is_answered_for_itself(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    stage = producer.stage
    broken = bytearray(producer.data(b"x", partition=2))
    broken[-1] ^= 1
    batches = [
        ("t", 0, producer.data(b"fast")),
        ("t", 1, producer.data(b"slow", partition=1)),
        ("t", 2, bytes(broken)),
        ("missing", 0, producer.data(b"x", topic="missing")),
        ("t", 9, producer.data(b"x", partition=9)),
        ("t", 1, producer.data(b"slow too", partition=1)),
    ]
    sent = stage.send(producer.request(*batches), 12)
    stage.scheduler.run()
    assert codes_of(sent) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    answers = [answer for topic in sent.response.responses for answer in topic.partition_responses]
    assert [answer.index for answer in answers] == [0, 1, 2, 0, 9, 1]
    assert [answers[place].base_offset for place in (0, 1, 5)] == [1, 0, 1]
    producer.end()
    assert committed_values(stage) == [b"a", b"fast"]
    assert committed_values(stage, partition=1) == [b"slow", b"slow too"]


def test_topics_are_named_by_their_ids_since_version_13(stage: Stage) -> None:
    topic_id = stage.create("t")
    producer = TransactionalProducer(stage).init()
    data = PartitionProduceData(index=0, records=producer.data(b"a"))
    request = ProduceRequest(
        transactional_id="id",
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(topic_id=topic_id.bytes, partition_data=[data])],
    )
    response = stage.call(request, 13)
    assert response.responses[0].topic_id == topic_id.bytes
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert [topic.topic for topic in producer.state().topics] == ["t"]
    producer.end()
    assert committed_values(stage) == [b"a"]


def test_with_acks_1_the_answer_does_not_wait_for_the_batch_to_be_on_disk() -> None:
    producer = held_producer()
    stage = producer.stage
    sent = stage.send(producer.request(("t", 0, producer.data(b"a")), acks=1), 12)
    stage.scheduler.run()
    assert not sent.is_answered
    stage.jobs.finish()
    assert code_of(sent) == ErrorCode.NONE
    assert stage.partition("t").log.synced_offset == 0


def test_with_acks_0_there_is_no_answer_and_the_batch_is_written(producer: TransactionalProducer) -> None:
    sent = producer.stage.send(producer.request(("t", 0, producer.data(b"a")), acks=0), 12)
    assert sent.response is None
    producer.stage.scheduler.run()
    producer.end()
    assert committed_values(producer.stage) == [b"a"]


def test_with_acks_0_a_refusal_that_is_known_at_once_ends_the_connection(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    TransactionalProducer(producer.stage).init()
    with pytest.raises(RefusedUnanswered):
        producer.stage.send(producer.request(("t", 0, producer.data(b"late")), acks=0), 12)


def test_with_acks_0_what_waits_for_the_coordinator_does_not_fill_the_memory() -> None:
    producer = held_producer()
    stage = producer.stage
    stage.send(producer.request(("t", 0, producer.data(b"a")), acks=0), 12)
    with pytest.raises(RefusedUnanswered):
        stage.send(producer.request(("t", 0, producer.data(b"b")), acks=0), 12)
    settle(stage)
    assert stage.partition("t").log.end_offset == 1


def test_a_plain_batch_in_a_request_with_a_transactional_id_is_a_plain_batch(producer: TransactionalProducer) -> None:
    sent = producer.stage.send(producer.request(("t", 0, sequenced(900, 0))), 12)
    producer.stage.scheduler.run()
    assert code_of(sent) == ErrorCode.NONE
    assert producer.state().transaction_state == "Empty"
    assert committed_values(producer.stage) == [b"900/0"]


def test_a_plain_batch_of_a_producer_that_has_a_transaction_open_is_refused(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    plain = sequenced(producer.producer_id, 1, epoch=producer.epoch)
    assert producer.stage.produce("t", 0, plain).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_transactional_batch_needs_a_sequence_number(producer: TransactionalProducer) -> None:
    data = producer.data(b"a", sequence=-1)
    sent = producer.stage.send(producer.request(("t", 0, data)), 12)
    assert code_of(sent) == ErrorCode.INVALID_RECORD


def test_a_batch_that_is_sent_again_is_answered_with_its_first_offset(producer: TransactionalProducer) -> None:
    request = producer.request(("t", 0, producer.data(b"a")))
    first = producer.stage.call(request, 12).responses[0].partition_responses[0]
    again = producer.stage.call(request, 12).responses[0].partition_responses[0]
    assert (first.error_code, first.base_offset) == (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    producer.end()
    assert committed_values(producer.stage) == [b"a"]


def test_nobody_may_write_to_internal_topics_in_a_transaction(producer: TransactionalProducer) -> None:
    assert producer.produce(b"a", topic="__transaction_state") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert producer.state().transaction_state == "Empty"


# --- how it comes about ------------------------------------------------------------------------------------


def ending_for_long() -> TransactionalProducer:
    """A producer whose last transaction cannot come to its end: the disk of its first partition has failed."""
    stage = Stage()
    stage.create("t", 2)
    producer = TransactionalProducer(stage).init()
    assert producer.produce(b"a") == ErrorCode.NONE
    stage.partition("t").fail(StorageFault("/data/t-0", "test"))
    assert producer.end() == ErrorCode.NONE
    assert producer.state().transaction_state == "PrepareCommit"
    return producer


def bring_back(stage: Stage) -> None:
    """The disk answers again, and what waited for it is done."""
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(RETRY_MS_MAX)


def shard_of(transactional_id: str) -> int:
    return shard_index(transactional_id, 50)


def state_end(stage: Stage) -> int:
    """The end of the partition that keeps transactional id `id`."""
    return stage.partition("__transaction_state", shard_of("id")).log.end_offset
