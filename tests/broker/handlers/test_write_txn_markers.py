"""WriteTxnMarkers: an admin ends what hangs, and tears nothing apart."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinators.runtime import shard_index
from ottla.error_codes import ErrorCode
from ottla.errors import StorageFault
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.records.batch import peek
from tests.broker.handlers.group_requests import fetched
from tests.broker.stage import Stage
from tests.broker.transactional_producer import (
    TransactionalProducer,
    committed_values,
    end_offset,
    held_producer,
    markers,
    settle,
)
from tests.storage.workbench import sequenced

HANGING = 4_242


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    stage.create("t", 3)
    return TransactionalProducer(stage).init()


def request(
    producer_id: int, *places: tuple[str, int], epoch: int = 0, committed: bool = False, **fields: Any
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=committed,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index]) for topic, index in places],
                **fields,
            )
        ]
    )


def codes(response: Any) -> list[int]:
    return [each.error_code for marker in response.markers for topic in marker.topics for each in topic.partitions]


def hang(stage: Stage, partition: int = 0, *, epoch: int = 0) -> None:
    """A transaction that nobody coordinates."""
    data = sequenced(HANGING, 0, epoch=epoch, transactional=True)
    stage.partition("t", partition).append(data, peek(data))


# --- producers that nobody knows ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_transaction_that_hangs_is_ended_as_asked(stage: Stage, version: int, *, committed: bool) -> None:
    stage.create("t")
    hang(stage)
    assert end_offset(stage) == 0
    assert codes(stage.call(request(HANGING, ("t", 0), committed=committed), version)) == [ErrorCode.NONE]
    assert committed_values(stage) == ([b"4242/0"] if committed else [])
    assert end_offset(stage) == 2


def test_a_marker_is_answered_when_it_is_durable() -> None:
    stage = held_producer().stage
    hang(stage)
    settle(stage)
    sent = stage.send(request(HANGING, ("t", 0)))
    stage.scheduler.run()
    assert not sent.is_answered
    settle(stage)
    assert codes(sent.response) == [ErrorCode.NONE]


def test_an_older_epoch_or_coordinator_than_the_partition_has_seen_is_refused(stage: Stage) -> None:
    stage.create("t", 2)
    hang(stage, 0, epoch=3)
    hang(stage, 1, epoch=3)
    assert codes(stage.call(request(HANGING, ("t", 0), epoch=2))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert codes(stage.call(request(HANGING, ("t", 1), epoch=3, coordinator_epoch=5))) == [ErrorCode.NONE]
    assert codes(stage.call(request(HANGING, ("t", 1), epoch=3, coordinator_epoch=4))) == [
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    ]


def test_the_rule_of_the_second_version_asks_for_a_higher_epoch(stage: Stage) -> None:
    stage.create("t")
    hang(stage, epoch=3)
    same = request(HANGING, ("t", 0), epoch=3, transaction_version=2)
    assert codes(stage.call(same, 2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    higher = request(HANGING, ("t", 0), epoch=4, transaction_version=2)
    assert codes(stage.call(higher, 2)) == [ErrorCode.NONE]


def test_each_partition_is_answered_for_itself(stage: Stage) -> None:
    stage.create("t", 3)
    hang(stage, 0)
    stage.partition("t", 1).fail(StorageFault("/data/t-1", "test"))
    places = [("t", 0), ("t", 1), ("t", 9), ("missing", 0), ("__transaction_state", 0), ("__consumer_offsets", 0)]
    assert codes(stage.call(request(HANGING, *places))) == [
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
def test_a_marker_without_a_producer_is_refused(stage: Stage, producer_id: int, epoch: int) -> None:
    stage.create("t")
    assert codes(stage.call(request(producer_id, ("t", 0), epoch=epoch))) == [ErrorCode.INVALID_REQUEST]
    assert stage.partition("t").log.end_offset == 0


def test_several_markers_are_answered_in_their_order(stage: Stage) -> None:
    stage.create("t", 2)
    hang(stage, 0)
    first = request(HANGING, ("t", 0)).markers
    second = request(HANGING + 1, ("t", 5), ("t", 1)).markers
    response = stage.call(WriteTxnMarkersRequest(markers=[*first, *second]))
    assert [marker.producer_id for marker in response.markers] == [HANGING, HANGING + 1]
    assert codes(response) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


# --- transactions that are known ---------------------------------------------------------------------------


def test_the_abort_of_an_open_transaction_aborts_all_of_it(producer: TransactionalProducer) -> None:
    stage = producer.stage
    producer.produce(b"a")
    producer.produce(b"b", partition=1)
    producer.commit_offset(5)
    response = stage.call(request(producer.producer_id, ("t", 0), epoch=producer.epoch))
    assert codes(response) == [ErrorCode.NONE]
    assert producer.state().transaction_state == "CompleteAbort"
    for partition in (0, 1):
        assert markers(stage, "t", partition) == [(producer.producer_id, producer.epoch + 1, "ABORT")]
    assert fetched(stage, [("t", 0)], group="g")["t", 0] == -1
    assert producer.end() == ErrorCode.PRODUCER_FENCED


def test_the_abort_is_answered_when_all_markers_are_written() -> None:
    producer = held_producer()
    stage = producer.stage
    producer.send(b"a")
    settle(stage)
    sent = stage.send(request(producer.producer_id, ("t", 0), epoch=producer.epoch))
    stage.scheduler.run()
    stage.jobs.finish()
    assert not sent.is_answered
    settle(stage)
    assert codes(sent.response) == [ErrorCode.NONE]


def test_what_hangs_beside_the_open_transaction_is_ended_too(producer: TransactionalProducer) -> None:
    stage = producer.stage
    producer.produce(b"a")
    stray = sequenced(producer.producer_id, 0, epoch=producer.epoch, transactional=True)
    stage.partition("t", 2).append(stray, peek(stray))
    places = [("t", 0), ("t", 2), ("t", 7)]
    response = stage.call(request(producer.producer_id, *places, epoch=producer.epoch))
    assert codes(response) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert end_offset(stage, partition=2) == 2


def test_an_open_transaction_cannot_be_committed_by_somebody_else(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    response = producer.stage.call(request(producer.producer_id, ("t", 0), epoch=producer.epoch, committed=True))
    assert codes(response) == [ErrorCode.INVALID_TXN_STATE]
    assert producer.end(committed=False) == ErrorCode.NONE
    assert committed_values(producer.stage) == []


def test_an_epoch_that_is_gone_does_not_abort_the_transaction_of_the_present_one(
    producer: TransactionalProducer,
) -> None:
    producer.produce(b"a")
    producer.end()
    producer.produce(b"b")
    response = producer.stage.call(request(producer.producer_id, ("t", 0), epoch=producer.epoch - 1))
    assert codes(response) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end() == ErrorCode.NONE
    assert committed_values(producer.stage) == [b"a", b"b"]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_what_has_been_decided_is_not_undone(producer: TransactionalProducer, *, committed: bool) -> None:
    stage = producer.stage
    producer.produce(b"a")
    stage.partition("t").fail(StorageFault("/data/t-0", "test"))
    assert producer.end() == ErrorCode.NONE
    places = [("t", 0), ("t", 1)]
    response = stage.call(request(producer.producer_id, *places, epoch=producer.epoch, committed=committed))
    assert codes(response) == [ErrorCode.INVALID_TXN_STATE] * 2
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(1_000)
    assert committed_values(stage) == [b"a"]
    assert stage.partition("t", 1).log.end_offset == 0


def test_an_abort_of_what_is_being_aborted_waits_for_its_end(producer: TransactionalProducer) -> None:
    stage = producer.stage
    producer.produce(b"a")
    stage.partition("t").fail(StorageFault("/data/t-0", "test"))
    producer.end(committed=False)
    sent = stage.send(request(producer.producer_id, ("t", 0), epoch=producer.epoch))
    stage.scheduler.run()
    assert not sent.is_answered
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(1_000)
    assert codes(sent.response) == [ErrorCode.NONE]


def test_a_known_producer_without_an_open_transaction_may_hang_all_the_same(producer: TransactionalProducer) -> None:
    stage = producer.stage
    producer.produce(b"a")
    producer.end()
    stray = sequenced(producer.producer_id, 0, epoch=producer.epoch, transactional=True)
    stage.partition("t", 2).append(stray, peek(stray))
    response = stage.call(request(producer.producer_id, ("t", 2), epoch=producer.epoch))
    assert codes(response) == [ErrorCode.NONE]
    assert producer.state().transaction_state == "CompleteCommit"
    assert end_offset(stage, partition=2) == 2


def test_while_it_is_not_known_who_coordinates_a_producer_the_admin_tries_again(
    producer: TransactionalProducer,
) -> None:
    stage = producer.stage
    producer.produce(b"a")
    other = TransactionalProducer(stage, "other")
    stage.partition("__transaction_state", shard_index("other", 50)).fail(StorageFault("/data", "test"))
    # The shard finds out when it is next used.
    assert stage.call(other.init_request()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    response = stage.call(request(HANGING, ("t", 1)))
    assert codes(response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert stage.partition("t", 1).log.end_offset == 0


def test_offsets_that_hang_in_a_group_are_ended_too(producer: TransactionalProducer) -> None:
    stage = producer.stage
    producer.commit_offset(5)
    group = stage.broker.services.groups.partition_of("g")
    # What was known of the transaction is gone.
    stage.broker.services.catalog.delete_topic("__transaction_state", lambda outcome: None)
    stage.scheduler.run()
    place = ("__consumer_offsets", group)
    response = stage.call(request(producer.producer_id, place, epoch=producer.epoch, committed=True))
    assert codes(response) == [ErrorCode.NONE]
    assert fetched(stage, [("t", 0)], group="g")["t", 0] == 5
