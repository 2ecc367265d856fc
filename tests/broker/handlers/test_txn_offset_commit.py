"""TxnOffsetCommit: offsets that count when their transaction commits."""

from __future__ import annotations

import pytest

from ottla.broker.pending import Pending
from ottla.error_codes import ErrorCode
from ottla.errors import StorageFault
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.handlers.group_requests import commit, fetched
from tests.broker.stage import Stage
from tests.broker.transactional_producer import TIMEOUT_MS, TransactionalProducer, held_producer, settle


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    stage.create("t", 3)
    return TransactionalProducer(stage).init()


@pytest.fixture
def old(stage: Stage) -> TransactionalProducer:
    """One that does not know the second version of transactions."""
    stage.create("t", 3)
    return TransactionalProducer(stage, second=False).init()


def offset(stage: Stage, group: str = "g") -> int:
    return fetched(stage, [("t", 0)], group=group)["t", 0]


def test_the_group_joins_the_transaction_by_its_offsets_since_version_5(producer: TransactionalProducer) -> None:
    assert producer.commit_offset(5) == ErrorCode.NONE
    assert [topic.topic for topic in producer.state().topics] == ["__consumer_offsets"]
    assert offset(producer.stage) == -1
    assert producer.end() == ErrorCode.NONE
    assert offset(producer.stage) == 5


@pytest.mark.parametrize("version", range(5))
def test_before_the_group_must_have_been_added(old: TransactionalProducer, version: int) -> None:
    code = ErrorCode.TRANSACTION_ABORTABLE if version == 4 else ErrorCode.INVALID_TXN_STATE
    response = old.stage.call(old.offsets_request(5), version)
    assert response.topics[0].partitions[0].error_code == code
    old.add_offsets("g")
    response = old.stage.call(old.offsets_request(5), version)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    old.end()
    assert offset(old.stage) == 5


def test_an_abort_leaves_the_offset_that_was_there(producer: TransactionalProducer) -> None:
    commit(producer.stage, {("t", 0): 2}, group="g")
    producer.commit_offset(5)
    producer.end(committed=False)
    assert offset(producer.stage) == 2


def test_a_transaction_that_takes_too_long_takes_its_offsets_with_it(producer: TransactionalProducer) -> None:
    producer.commit_offset(5)
    producer.stage.scheduler.advance(TIMEOUT_MS)
    assert producer.state().transaction_state == "CompleteAbort"
    assert offset(producer.stage) == -1


def test_offsets_and_their_transaction_survive_a_crash(producer: TransactionalProducer) -> None:
    producer.commit_offset(5)
    producer.stage.crash()
    assert producer.end() == ErrorCode.NONE
    assert offset(producer.stage) == 5


def test_a_zombie_stores_nothing(producer: TransactionalProducer) -> None:
    TransactionalProducer(producer.stage).init()
    assert producer.commit_offset(5) == ErrorCode.INVALID_PRODUCER_EPOCH
    producer.init().end(committed=False)
    assert offset(producer.stage) == -1


def test_offsets_that_come_after_the_end_are_refused(producer: TransactionalProducer) -> None:
    producer.commit_offset(5)
    late = producer.offsets_request(9)
    producer.end()
    response = producer.stage.call(late, 5)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert offset(producer.stage) == 5


def test_offsets_that_come_after_the_end_are_refused_in_the_first_version_too(old: TransactionalProducer) -> None:
    old.add_offsets("g")
    old.commit_offset(5)
    old.end()
    assert old.commit_offset(9) == ErrorCode.INVALID_TXN_STATE
    assert offset(old.stage) == 5


def test_a_transaction_that_ends_while_its_offsets_wait_refuses_them() -> None:
    producer = held_producer()
    stage = producer.stage
    first = stage.send(producer.offsets_request(5), 5)
    settle(stage)
    assert first.response.topics[0].partitions[0].error_code == ErrorCode.NONE
    # The group joins for the second time, and its answer waits for the disk; meanwhile the transaction is ended.
    stage.send(producer.add_request(("t", 1)), 3)
    late = stage.send(producer.offsets_request(9), 5)
    stage.scheduler.run()
    ending = stage.send(producer.end_request(), 5)
    settle(stage)
    assert ending.response.error_code == ErrorCode.NONE
    assert late.response.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    found = stage.send(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
                )
            ]
        ),
        9,
    )
    settle(stage)
    assert found.response.groups[0].topics[0].partitions[0].committed_offset == 5


@pytest.mark.parametrize("version", [7, 9])
def test_whoever_asks_for_stable_offsets_is_told_to_wait_for_the_end(
    producer: TransactionalProducer, version: int
) -> None:
    stage = producer.stage
    producer.commit_offset(5)

    def code() -> int:
        if version < 8:
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
            return int(stage.call(request, version).topics[0].partitions[0].error_code)
        asked = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id="g", topics=asked)]
        request = OffsetFetchRequest(groups=groups, require_stable=True)
        return int(stage.call(request, version).groups[0].topics[0].partitions[0].error_code)

    assert code() == ErrorCode.UNSTABLE_OFFSET_COMMIT
    producer.end()
    assert code() == ErrorCode.NONE


@pytest.mark.parametrize(
    ("transactional_id", "group", "code"),
    [("", "g", ErrorCode.INVALID_REQUEST), ("id", "", ErrorCode.INVALID_GROUP_ID)],
    ids=["no transactional id", "no group"],
)
def test_what_names_nobody_is_refused(
    producer: TransactionalProducer, transactional_id: str, group: str, code: ErrorCode
) -> None:
    producer.transactional_id = transactional_id
    assert producer.commit_offset(5, group=group) == code


def test_an_id_that_nobody_knows_is_refused(stage: Stage) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage, producer_id=5, epoch=0)
    assert producer.commit_offset(5) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert "__transaction_state" not in stage.broker.services.catalog.image.topics


def test_a_broker_that_stops_lets_nobody_wait(producer: TransactionalProducer) -> None:
    stage = producer.stage
    producer.produce(b"a")
    stage.partition("t").fail(StorageFault("/data/t-0", "test"))
    producer.end()
    # It waits for the end of the transaction before, which waits for the disk.
    sent = stage.send(producer.offsets_request(5), 5)
    stage.scheduler.run()
    assert isinstance(sent.outcome, Pending)
    sent.outcome.hurry()
    assert sent.response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_nobody_waits_for_any_more_is_not_stored(producer: TransactionalProducer) -> None:
    stage = producer.stage
    producer.produce(b"a")
    stage.partition("t").fail(StorageFault("/data/t-0", "test"))
    producer.end()
    sent = stage.send(producer.offsets_request(5), 5)
    stage.scheduler.run()
    assert isinstance(sent.outcome, Pending)
    sent.outcome.cancel()
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(1_000)
    producer.end()
    assert offset(stage) == -1
