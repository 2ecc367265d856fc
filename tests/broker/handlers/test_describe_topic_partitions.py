"""DescribeTopicPartitions: topics by name, in pages that leave nothing out and repeat nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tests.broker.stage import Stage


def page(stage: Stage, *names: str, **fields: Any) -> Any:
    return stage.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names], **fields))


def told(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions]


def every(topics: dict[str, int]) -> list[tuple[str, int]]:
    return [(name, index) for name in sorted(topics) for index in range(topics[name])]


TOPICS = {"c": 3, "a": 5, "b": 1}


@pytest.fixture
def three(stage: Stage) -> Stage:
    for name, partitions in TOPICS.items():
        stage.create(name, partitions)
    return stage


def test_all_topics_come_in_the_order_of_their_names(three: Stage) -> None:
    response = page(three)
    assert told(response) == every(TOPICS)
    assert response.next_cursor is None


@pytest.mark.parametrize("limit", range(1, 11))
def test_pages_of_any_size_tell_each_partition_once(three: Stage, limit: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        response = page(three, response_partition_limit=limit, cursor=cursor)
        assert len(told(response)) <= limit
        seen += told(response)
        cursor = response.next_cursor
        if cursor is None:
            break
    assert seen == every(TOPICS)


def test_a_limit_below_one_still_makes_progress(three: Stage) -> None:
    assert told(page(three, response_partition_limit=0)) == [("a", 0)]


def test_named_topics_are_told_and_missing_ones_are_errors(three: Stage) -> None:
    response = page(three, "missing", "b", "a b")
    codes = {topic.name: ErrorCode(topic.error_code) for topic in response.topics}
    assert codes == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "b": ErrorCode.NONE,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_topic_that_went_between_two_pages_is_passed_over(three: Stage) -> None:
    assert told(page(three, cursor=Cursor(topic_name="aa", partition_index=3))) == every({"b": 1, "c": 3})


def test_a_cursor_below_zero_is_refused(three: Stage) -> None:
    response = page(three, "a", cursor=Cursor(topic_name="a", partition_index=-1))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_ids_leaders_and_epochs_are_told(three: Stage) -> None:
    topic = page(three, "b").topics[0]
    assert topic.topic_id == three.broker.services.catalog.image.topic("b").topic_id.bytes
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (1, 0, (1,))
    assert (partition.eligible_leader_replicas, partition.last_known_elr, partition.offline_replicas) == ((), (), ())
