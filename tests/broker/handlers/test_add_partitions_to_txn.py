"""AddPartitionsToTxn and AddOffsetsToTxn: what becomes part of a transaction, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.broker.stage import Stage
from tests.broker.transactional_producer import TransactionalProducer, held_producer, markers, settle


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    stage.create("t", 3)
    return TransactionalProducer(stage, second=False).init()


def partitions(producer: TransactionalProducer) -> list[tuple[str, list[int]]]:
    return [(topic.topic, list(topic.partitions)) for topic in producer.state().topics]


def wanted(producer: TransactionalProducer, *places: tuple[str, int], **fields: Any) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        **{
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "topics": [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in places],
            **fields,
        }
    )


def told(response: Any) -> list[tuple[str, list[int]]]:
    """The codes of each transaction of a request for several."""
    return [
        (
            result.transactional_id,
            [each.partition_error_code for topic in result.topic_results for each in topic.results_by_partition],
        )
        for result in response.results_by_transaction
    ]


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_one_request_after_the_other(producer: TransactionalProducer, version: int) -> None:
    assert producer.add(("t", 2), version=version) == [ErrorCode.NONE]
    assert producer.add(("t", 0), ("t", 2), version=version) == [ErrorCode.NONE, ErrorCode.NONE]
    assert partitions(producer) == [("t", [0, 2])]
    assert producer.state().transaction_state == "Ongoing"


def test_what_is_added_is_there_after_a_crash(producer: TransactionalProducer) -> None:
    producer.add(("t", 2))
    producer.stage.crash()
    assert partitions(producer) == [("t", [2])]


def test_an_add_is_answered_when_it_is_durable() -> None:
    producer = held_producer(second=False)
    sent = producer.stage.send(producer.add_request(("t", 1)), 3)
    producer.stage.scheduler.run()
    assert not sent.is_answered
    settle(producer.stage)
    assert sent.is_answered


def test_one_partition_that_is_not_there_keeps_the_others_out(producer: TransactionalProducer) -> None:
    codes = producer.add(("t", 0), ("t", 3), ("missing", 0), ("t", -1))
    assert codes == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert producer.state().transaction_state == "Empty"


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_not_for_producers(producer: TransactionalProducer, topic: str) -> None:
    producer.add_offsets()
    producer.end(committed=False)
    assert producer.add((topic, 0), ("t", 0)) == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ]
    assert producer.state().transaction_state == "CompleteAbort"


def test_a_request_that_names_no_partition_begins_nothing(producer: TransactionalProducer) -> None:
    assert producer.add() == []
    assert producer.state().transaction_state == "Empty"


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, ErrorCode.PRODUCER_FENCED),
        (3, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_fenced_producer_is_told_so_in_the_words_of_its_version(
    producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    TransactionalProducer(producer.stage).init()
    assert producer.add(("t", 0), ("t", 1), version=version) == [code, code]


def test_a_producer_id_that_the_id_does_not_have_is_refused(producer: TransactionalProducer) -> None:
    producer.producer_id += 1
    assert producer.add(("t", 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_an_empty_transactional_id_is_refused(producer: TransactionalProducer) -> None:
    producer.transactional_id = ""
    assert producer.add(("t", 0)) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_are_answered_each_for_itself(producer: TransactionalProducer, version: int) -> None:
    other = TransactionalProducer(producer.stage, "other").init()
    request = AddPartitionsToTxnRequest(
        transactions=[
            wanted(producer, ("t", 0), ("t", 1)),
            wanted(other, ("t", 9), ("t", 1)),
            wanted(other, ("t", 2)),
            wanted(other, ("t", 2), producer_epoch=7),
            wanted(other, ("t", 2), transactional_id=""),
        ]
    )
    assert told(producer.stage.call(request, version)) == [
        ("id", [ErrorCode.NONE, ErrorCode.NONE]),
        ("other", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED]),
        ("other", [ErrorCode.NONE]),
        ("other", [ErrorCode.PRODUCER_FENCED]),
        ("", [ErrorCode.INVALID_REQUEST]),
    ]
    assert partitions(producer) == [("t", [0, 1])]
    assert partitions(other) == [("t", [2])]


@pytest.mark.parametrize(("version", "code"), [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)])
def test_to_ask_whether_partitions_are_added_adds_none(
    producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    producer.add(("t", 0))
    request = AddPartitionsToTxnRequest(transactions=[wanted(producer, ("t", 0), ("t", 1), verify_only=True)])
    assert told(producer.stage.call(request, version)) == [("id", [ErrorCode.NONE, code])]
    assert partitions(producer) == [("t", [0])]


def test_nothing_is_part_of_a_transaction_that_is_not_open(producer: TransactionalProducer) -> None:
    request = AddPartitionsToTxnRequest(transactions=[wanted(producer, ("t", 0), verify_only=True)])
    assert told(producer.stage.call(request, 5)) == [("id", [ErrorCode.TRANSACTION_ABORTABLE])]


# --- offsets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_a_group_is_added_by_the_partition_that_keeps_it(producer: TransactionalProducer, version: int) -> None:
    assert producer.add_offsets("g", version=version) == ErrorCode.NONE
    ((topic, (partition,)),) = partitions(producer)
    assert topic == "__consumer_offsets"
    assert partition == producer.stage.broker.services.groups.partition_of("g")
    assert producer.end() == ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_cannot_add_a_group(producer: TransactionalProducer, version: int, code: ErrorCode) -> None:
    TransactionalProducer(producer.stage).init()
    assert producer.add_offsets(version=version) == code


def test_a_group_needs_a_name(producer: TransactionalProducer) -> None:
    assert producer.add_offsets("") == ErrorCode.INVALID_GROUP_ID


def test_a_group_of_an_empty_transactional_id_is_refused(producer: TransactionalProducer) -> None:
    producer.transactional_id = ""
    assert producer.add_offsets("g") == ErrorCode.INVALID_REQUEST


def test_no_marker_of_a_transaction_stands_among_the_groups_records(producer: TransactionalProducer) -> None:
    producer.add_offsets("g")
    partition = producer.stage.broker.services.groups.partition_of("g")
    producer.end()
    assert markers(producer.stage, "__consumer_offsets", partition) == []
