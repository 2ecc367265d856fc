"""Requests that name the same group or partition again and again: a few bytes must not ask for gigabytes."""

from __future__ import annotations

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.handlers.group_requests import GROUP, commit
from tests.broker.stage import Stage


@pytest.fixture
def stage() -> Stage:
    stage = Stage({"offsets.topic.num.partitions": "2"})
    stage.create("a", 2)
    commit(stage, {("a", 0): 5, ("a", 1): 6}, metadata="x" * 4_000)
    return stage


@pytest.mark.parametrize("version", [8, 9])
def test_offsets_of_a_group_are_told_once_and_refused_after_that(stage: Stage, version: int) -> None:
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    other = OffsetFetchRequestGroup(group_id="other", topics=None)
    answers = stage.call(OffsetFetchRequest(groups=[group, other, group, group]), version).groups
    assert [answer.group_id for answer in answers] == [GROUP, "other", GROUP, GROUP]
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [len(answer.topics) for answer in answers] == [1, 0, 0, 0]


def test_the_offset_of_a_partition_is_told_once(stage: Stage) -> None:
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=indexes) for indexes in ([1, 1, 0], [0, 1], [7, 7])]
    (answer,) = stage.call(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]), 9
    ).groups
    (topic,) = answer.topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(1, 6), (0, 5), (7, -1)]


def test_the_offset_of_a_partition_is_told_once_to_old_clients_too(stage: Stage) -> None:
    topics = [OffsetFetchRequestTopic(name="a", partition_indexes=[0, 0, 1])] * 2
    (topic,) = stage.call(OffsetFetchRequest(group_id=GROUP, topics=topics), 7).topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 5), (1, 6)]


def test_a_group_is_described_once(stage: Stage) -> None:
    answers = stage.call(DescribeGroupsRequest(groups=[GROUP, "missing", GROUP, "missing"])).groups
    assert [(answer.group_id, answer.group_state) for answer in answers] == [(GROUP, "Empty"), ("missing", "Dead")]


def test_a_consumer_group_is_described_once(stage: Stage) -> None:
    answers = stage.call(ConsumerGroupDescribeRequest(group_ids=["x", "y", "x"])).groups
    assert [(answer.group_id, answer.error_code) for answer in answers] == [
        ("x", ErrorCode.GROUP_ID_NOT_FOUND),
        ("y", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
