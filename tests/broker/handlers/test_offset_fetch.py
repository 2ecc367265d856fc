"""OffsetFetch: one group or several, some topics or all, by name or by id."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.handlers.group_requests import GROUP, commit, fetch_request, fetched, join
from tests.broker.stage import Stage


@pytest.fixture
def stage() -> Stage:
    stage = Stage({"offsets.topic.num.partitions": "4"})
    stage.create("a", 3)
    stage.create("b", 1)
    return stage


def delete(stage: Stage, name: str) -> None:
    stage.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1_000))


def test_a_partition_without_an_offset_is_minus_one(stage: Stage) -> None:
    commit(stage, {("a", 1): 5})
    asked = [("a", 0), ("a", 1), ("b", 0), ("missing", 7)]
    assert fetched(stage, asked) == {("a", 0): -1, ("a", 1): 5, ("b", 0): -1, ("missing", 7): -1}


def test_a_group_that_does_not_exist_has_committed_nothing(stage: Stage) -> None:
    assert fetched(stage, [("a", 0)], group="nobody") == {("a", 0): -1}
    assert fetched(stage, None, group="nobody") == {}


def test_the_empty_group_may_be_asked(stage: Stage) -> None:
    assert fetched(stage, [("a", 0)], group="") == {("a", 0): -1}


@pytest.mark.parametrize("version", [2, 5, 7])
def test_null_topics_mean_all_in_older_versions_too(stage: Stage, version: int) -> None:
    commit(stage, {("a", 1): 5, ("b", 0): 6})
    response = stage.call(OffsetFetchRequest(group_id=GROUP, topics=None), version)
    found = {
        (topic.name, each.partition_index): each.committed_offset
        for topic in response.topics
        for each in topic.partitions
    }
    assert found == {("a", 1): 5, ("b", 0): 6}


def test_several_groups_are_answered_in_their_order(stage: Stage) -> None:
    names = [f"group {number}" for number in range(20)]
    for number, name in enumerate(names):
        commit(stage, {("a", 0): number}, group=name)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in reversed(names)]
    answers = stage.call(OffsetFetchRequest(groups=groups), 9).groups
    assert [answer.group_id for answer in answers] == names[::-1]
    assert [answer.topics[0].partitions[0].committed_offset for answer in answers] == list(range(19, -1, -1))


def test_no_groups_at_all_are_answered_with_none(stage: Stage) -> None:
    assert stage.call(OffsetFetchRequest(groups=[]), 9).groups == ()


def test_by_id_the_answer_tells_the_id(stage: Stage) -> None:
    commit(stage, {("b", 0): 6})
    topic_id = stage.broker.services.catalog.image.topic("b").topic_id.bytes
    unknown = UUID(int=3).bytes
    asked = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=unknown, partition_indexes=[0, 1]),
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=asked)])
    known, missing = stage.call(request, 10).groups[0].topics
    assert (known.topic_id, known.partitions[0].committed_offset) == (topic_id, 6)
    assert [(each.committed_offset, each.error_code) for each in missing.partitions] == [
        (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    ] * 2


def test_all_topics_by_id(stage: Stage) -> None:
    commit(stage, {("b", 0): 6})
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    (topic,) = stage.call(request, 10).groups[0].topics
    assert topic.topic_id == stage.broker.services.catalog.image.topic("b").topic_id.bytes


def test_the_offsets_of_a_deleted_topic_go_with_it(stage: Stage) -> None:
    commit(stage, {("a", 0): 5, ("b", 0): 6})
    delete(stage, "a")
    assert fetched(stage) == {("b", 0): 6}
    stage.scheduler.advance(10)
    stage.create("a", 3)
    assert fetched(stage, [("a", 0)]) == {("a", 0): -1}
    stage.restart()
    assert fetched(stage) == {("b", 0): 6}


def test_a_topic_that_is_made_again_at_once_does_not_inherit_offsets(stage: Stage) -> None:
    commit(stage, {("a", 0): 5})
    delete(stage, "a")
    stage.create("a", 3)
    assert fetched(stage, [("a", 0)]) == {("a", 0): -1}
    commit(stage, {("a", 0): 1})
    stage.scheduler.advance(10)
    assert fetched(stage, [("a", 0)]) == {("a", 0): 1}


def test_offsets_of_a_topic_that_was_deleted_in_an_earlier_life_go_at_the_start(stage: Stage) -> None:
    commit(stage, {("a", 0): 5, ("b", 0): 6})
    delete(stage, "a")
    # The power goes before the tombstones are written.
    stage.crash()
    stage.create("a", 3)
    assert fetched(stage, [("a", 0), ("b", 0)]) == {("a", 0): -1, ("b", 0): 6}


def test_anybody_may_ask_a_classic_group(stage: Stage) -> None:
    join(stage, "a")
    response = stage.call(fetch_request([("a", 0)], member_id="stranger", epoch=7), 9)
    assert response.groups[0].error_code == ErrorCode.NONE


def test_a_stranger_may_not_ask_a_consumer_group_as_its_member(stage: Stage) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[]
    )
    assert stage.call(request).error_code == ErrorCode.NONE
    commit(stage, {("a", 0): 5}, member_id="m", generation=1)
    stranger = stage.call(fetch_request([("a", 0)], member_id="stranger", epoch=1), 9).groups[0]
    assert (stranger.error_code, stranger.topics) == (ErrorCode.UNKNOWN_MEMBER_ID, ())
    stale = stage.call(fetch_request([("a", 0)], member_id="m", epoch=7), 9).groups[0]
    assert stale.error_code == ErrorCode.STALE_MEMBER_EPOCH
    member = stage.call(fetch_request([("a", 0)], member_id="m", epoch=1), 9).groups[0]
    assert member.topics[0].partitions[0].committed_offset == 5
    assert fetched(stage) == {("a", 0): 5}


def test_while_there_is_no_coordinator_each_version_says_so_in_its_own_place() -> None:
    stage = Stage({"offsets.topic.replication.factor": "3"})
    topics = [OffsetFetchRequestTopic(name="a", partition_indexes=[0])]
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    oldest = stage.call(OffsetFetchRequest(group_id=GROUP, topics=topics), 1)
    assert oldest.topics[0].partitions[0].error_code == code
    older = stage.call(OffsetFetchRequest(group_id=GROUP, topics=topics), 7)
    assert (older.error_code, older.topics) == (code, ())
    assert stage.call(fetch_request([("a", 0)]), 9).groups[0].error_code == code
