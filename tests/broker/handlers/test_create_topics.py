"""CreateTopics: an error per topic, defaults, validation only, and an answer when the topic can be used."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.schema import NO_UUID
from tests.broker.stage import Stage


def topic(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def codes(stage: Stage, *topics: CreatableTopic, **fields: Any) -> list[ErrorCode]:
    response = stage.call(CreateTopicsRequest(topics=topics, **fields))
    assert [result.name for result in response.topics] == [each.name for each in topics]
    return [ErrorCode(result.error_code) for result in response.topics]


def test_each_topic_succeeds_or_fails_for_itself(stage: Stage) -> None:
    assert codes(stage, topic("a"), topic("b", partitions=0), topic("c", replicas=3), topic("d")) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.NONE,
    ]
    assert set(stage.broker.services.catalog.image.topics) == {"a", "d"}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a" * 250, "ä"])
def test_a_name_that_no_topic_may_have_is_refused(stage: Stage, name: str) -> None:
    assert codes(stage, topic(name)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_name_of_249_characters_is_taken(stage: Stage) -> None:
    assert codes(stage, topic("a" * 249)) == [ErrorCode.NONE]
    assert stage.produce("a" * 249).error_code == ErrorCode.NONE


def test_a_topic_that_is_there_already_is_an_error(stage: Stage) -> None:
    stage.create("a")
    assert codes(stage, topic("a")) == [ErrorCode.TOPIC_ALREADY_EXISTS]


def test_names_that_differ_in_dots_and_underscores_only_collide(stage: Stage) -> None:
    stage.create("a.b")
    assert codes(stage, topic("a_b")) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_topic_that_stands_twice_in_a_request_is_not_made(stage: Stage) -> None:
    assert codes(stage, topic("a"), topic("b"), topic("a", partitions=2)) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert set(stage.broker.services.catalog.image.topics) == {"b"}


@pytest.mark.parametrize("version", range(2, 8))
def test_minus_one_means_the_brokers_defaults_in_every_version(version: int) -> None:
    stage = Stage({"num.partitions": "3"})
    response = stage.call(CreateTopicsRequest(topics=[topic("a", -1, -1)]), version)
    assert response.topics[0].error_code == ErrorCode.NONE
    assert len(stage.broker.services.catalog.image.topic("a").partitions) == 3


def test_validation_alone_creates_nothing_and_tells_what_would_be(stage: Stage) -> None:
    request = CreateTopicsRequest(topics=[topic("a", 5), topic("b", 0)], validate_only=True)
    fine, refused = stage.call(request).topics
    assert (fine.error_code, fine.num_partitions, fine.topic_id) == (ErrorCode.NONE, 5, NO_UUID)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert not stage.broker.services.catalog.image.topics


def test_an_unknown_config_or_a_wrong_value_refuses_the_topic_with_a_reason(stage: Stage) -> None:
    unknown = topic("a", configs=[CreatableTopicConfig(name="retention.mss", value="1")])
    wrong = topic("b", configs=[CreatableTopicConfig(name="retention.ms", value="soon")])
    results = stage.call(CreateTopicsRequest(topics=[unknown, wrong])).topics
    assert [result.error_code for result in results] == [ErrorCode.INVALID_CONFIG] * 2
    assert "did you mean retention.ms?" in results[0].error_message
    assert "soon" in results[1].error_message


def test_a_config_that_stands_there_twice_refuses_the_topic(stage: Stage) -> None:
    twice = [CreatableTopicConfig(name="retention.ms", value=text) for text in ("1", "2")]
    assert codes(stage, topic("a", configs=twice)) == [ErrorCode.INVALID_REQUEST]


def test_partitions_can_be_assigned_to_this_broker(stage: Stage) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in (1, 0)]
    assert codes(stage, topic("a", -1, -1, assignments=assignments)) == [ErrorCode.NONE]
    assert len(stage.broker.services.catalog.image.topic("a").partitions) == 2


@pytest.mark.parametrize(
    "assignments",
    [
        [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
        [CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
        [CreatableReplicaAssignment(partition_index=0, broker_ids=[])],
        [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2,
    ],
    ids=["another broker", "no partition 0", "nobody", "twice"],
)
def test_an_assignment_that_cannot_be_is_refused(stage: Stage, assignments: list[CreatableReplicaAssignment]) -> None:
    assert codes(stage, topic("a", -1, -1, assignments=assignments)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_assignments_and_numbers_together_contradict_each_other(stage: Stage) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    assert codes(stage, topic("a", 1, -1, assignments=assignments)) == [ErrorCode.INVALID_REQUEST]


def test_the_answer_comes_when_the_directories_are_there() -> None:
    stage = Stage(held=True)
    sent = stage.send(CreateTopicsRequest(topics=[topic("a", 2)]))
    stage.scheduler.run()
    assert not sent.is_answered
    stage.jobs.finish()
    assert sent.response.topics[0].error_code == ErrorCode.NONE
    assert stage.broker.services.partitions.by_name("a", 1).log.end_offset == 0


def test_directories_that_cannot_be_made_are_an_error_and_are_made_later(stage: Stage) -> None:
    stage.disk.fail_next("make-directory", "", errno.ENOSPC)
    assert codes(stage, topic("a")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert stage.produce("a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    stage.scheduler.advance(10_000)
    assert stage.produce("a").error_code == ErrorCode.NONE
    stage.restart()
    assert stage.values("a") == [b"v"]


def test_a_request_whose_time_is_over_is_answered_and_the_topic_may_still_come() -> None:
    stage = Stage(held=True)
    sent = stage.send(CreateTopicsRequest(topics=[topic("a")], timeout_ms=1_000))
    stage.scheduler.advance(2_000)
    assert sent.response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    stage.jobs.finish()
    assert stage.broker.services.partitions.by_name("a", 0).log.end_offset == 0


def test_a_request_without_topics_is_answered_with_none(stage: Stage) -> None:
    assert stage.call(CreateTopicsRequest()).topics == ()


def test_fifty_racing_requests_for_one_name_make_one_topic(stage: Stage) -> None:
    sent = [stage.send(CreateTopicsRequest(topics=[topic("a")])) for _ in range(50)]
    stage.scheduler.run()
    told = [each.response.topics[0].error_code for each in sent]
    assert sorted(told) == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 49
