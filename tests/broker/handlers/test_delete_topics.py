"""DeleteTopics: by name and by id, an error per topic, and nothing left behind."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.error_codes import ErrorCode
from ottla.metadata.internal_topics import TRANSACTION_STATE
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.stage import DATA, Stage, creation, fetch_topic
from tests.storage.workbench import batch


def codes(stage: Stage, *topics: DeleteTopicState) -> list[ErrorCode]:
    response = stage.call(DeleteTopicsRequest(topics=topics, timeout_ms=1_000))
    return [ErrorCode(result.error_code) for result in response.responses]


def named(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)


def identified(topic_id: UUID) -> DeleteTopicState:
    return DeleteTopicState(topic_id=topic_id.bytes)


def test_a_topic_is_deleted_with_its_files(stage: Stage) -> None:
    stage.create("a", 2)
    stage.produce("a")
    assert codes(stage, named("a")) == [ErrorCode.NONE]
    assert not [path for path in stage.disk.files() if path.startswith(f"{DATA}/a-")]
    assert stage.produce("a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_was_made_again_begins_at_offset_0_with_another_id(stage: Stage) -> None:
    first = stage.create("a")
    stage.produce("a", 0, batch(b"1"), batch(b"2"))
    codes(stage, named("a"))
    assert stage.create("a") != first
    assert stage.produce("a", 0, batch(b"3")).base_offset == 0
    assert stage.values("a") == [b"3"]


def test_each_topic_succeeds_or_fails_for_itself(stage: Stage) -> None:
    stage.create("a")
    unknown = UUID(int=5)
    assert codes(stage, named("missing"), named("a"), identified(unknown)) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


def test_an_answer_by_id_tells_the_name_and_one_by_name_the_id(stage: Stage) -> None:
    ids = [stage.create("a"), stage.create("b")]
    request = DeleteTopicsRequest(topics=[identified(ids[0]), named("b")])
    results = stage.call(request).responses
    assert [(result.name, result.topic_id) for result in results] == [("a", ids[0].bytes), ("b", ids[1].bytes)]


def test_an_unknown_id_is_answered_without_a_name(stage: Stage) -> None:
    result = stage.call(DeleteTopicsRequest(topics=[identified(UUID(int=5))])).responses[0]
    assert (result.name, result.topic_id) == (None, UUID(int=5).bytes)


def test_the_id_of_an_earlier_topic_does_not_delete_its_successor(stage: Stage) -> None:
    first = stage.create("a")
    codes(stage, named("a"))
    stage.create("a")
    assert codes(stage, identified(first)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert "a" in stage.broker.services.catalog.image.topics


def test_a_topic_named_twice_or_by_name_and_id_is_left_alone(stage: Stage) -> None:
    a, b = stage.create("a"), stage.create("b")
    both = DeleteTopicState(name="b", topic_id=b.bytes)
    assert codes(stage, named("a"), identified(a), both, DeleteTopicState()) == [ErrorCode.INVALID_REQUEST] * 4
    assert set(stage.broker.services.catalog.image.topics) == {"a", "b"}


def test_with_deletion_switched_off_nothing_is_deleted() -> None:
    stage = Stage({"delete.topic.enable": "false"})
    stage.create("a")
    assert codes(stage, named("a")) == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert stage.produce("a").error_code == ErrorCode.NONE


def test_a_consumer_that_waits_is_told_when_the_topic_goes(stage: Stage) -> None:
    stage.create("a")
    waiting = stage.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[fetch_topic("a")]), 12)
    stage.scheduler.run()
    assert not waiting.is_answered
    codes(stage, named("a"))
    assert waiting.response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_files_of_a_deleted_topic_go_also_when_the_power_does() -> None:
    stage = Stage(held=True)
    stage.send(creation("a"))
    stage.scheduler.run()
    stage.jobs.finish()
    sent = stage.send(DeleteTopicsRequest(topics=[named("a")]))
    stage.scheduler.run()
    assert sent.response.responses[0].error_code == ErrorCode.NONE
    assert f"{DATA}/a-0/partition.metadata" in stage.disk.files()
    stage.crash()
    assert not [path for path in stage.disk.files() if path.startswith(f"{DATA}/a-")]
    assert not stage.broker.services.catalog.image.unfinished


@pytest.mark.parametrize("version", range(1, 7))
def test_a_missing_topic_is_the_same_error_in_every_version(stage: Stage, version: int) -> None:
    fields = {"topics": [named("a")]} if version >= 6 else {"topic_names": ["a"]}
    result = stage.call(DeleteTopicsRequest(**fields), version).responses[0]
    assert (result.name, result.error_code) == ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_the_topic_that_holds_open_transactions_is_not_deleted() -> None:
    stage = Stage({"transaction.state.log.num.partitions": "1"})
    stage.call(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1_000))

    assert codes(stage, named(TRANSACTION_STATE)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert TRANSACTION_STATE in stage.broker.services.catalog.image.topics
