"""Commits of a member: when they are made again, and when they have failed."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from ottla.client.commits import NOBODY, Identity
from ottla.client.errors import CommitFailed, NetworkException
from ottla.client.group_commits import Waiting, commit_together
from ottla.client.group_member import Change, Kind
from ottla.client.group_member_consumer import ConsumerMember
from ottla.client.settings import ConsumerSettings
from ottla.client.transport import run_now
from ottla.client.values import Committed, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.client.group_script import Stage, parts, settle, step, to_topics

POSITIONS = {TopicPartition("t", 0): Committed(7, "note", 3)}


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.world.create("t")
    return made


@pytest.fixture
def member(stage: Stage) -> ConsumerMember:
    """A member in epoch 1 that reads t-0."""
    settings = ConsumerSettings(group="g", protocol="consumer")
    made = ConsumerMember(stage.coordinator, settings, member_id="m", news=stage.news, wake=stage.wake)
    made.subscribe(to_topics("t"))
    beat(stage, made, 1)
    settle(made)
    return made


def beat(stage: Stage, member: ConsumerMember, epoch: int) -> None:
    topics = [TopicPartitions(topic_id=stage.world.topics["t"].topic_id, partitions=[0])]
    stage.says(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ConsumerGroupHeartbeatResponse(
            member_id="m", member_epoch=epoch, heartbeat_interval_ms=1, assignment=Assignment(topic_partitions=topics)
        ),
    )
    stage.pass_time(1)
    step(member)


def answer(code: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


def commit(stage: Stage, member: ConsumerMember | None) -> OttlaError | None:
    return run_now(commit_together(stage.coordinator, [Waiting(POSITIONS, {})], member))


def epochs(stage: Stage) -> list[int]:
    return [request.generation_id_or_member_epoch for request in stage.requests(OffsetCommitRequest)]


def test_a_commit_says_who_makes_it_and_what_goes_with_it(stage: Stage, member: ConsumerMember) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer())

    assert commit(stage, member) is None

    (request,) = stage.requests(OffsetCommitRequest)
    assert (request.member_id, request.generation_id_or_member_epoch) == ("m", 1)
    (stored,) = request.topics[0].partitions
    assert (stored.committed_offset, stored.committed_metadata, stored.committed_leader_epoch) == (7, "note", 3)


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH])
def test_a_commit_in_the_middle_of_a_change_is_made_again(
    stage: Stage, member: ConsumerMember, code: ErrorCode
) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(code), answer())

    assert commit(stage, member) is None
    assert epochs(stage) == [1, 1]


def test_a_lost_answer_makes_the_commit_again(stage: Stage, member: ConsumerMember) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, NetworkException("gone"), answer())
    stage.is_coordinator()

    assert commit(stage, member) is None
    assert len(epochs(stage)) == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_a_member_that_is_out_hears_that_its_commit_failed_and_loses_its_partitions(
    stage: Stage, member: ConsumerMember, code: ErrorCode
) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(code))

    assert isinstance(commit(stage, member), CommitFailed)

    assert member.identity == NOBODY
    assert settle(member) == [Change(Kind.LOSE, parts("0"))]


def test_a_commit_that_was_overtaken_by_a_new_generation_is_made_in_that_one(
    stage: Stage, member: ConsumerMember
) -> None:
    def overtaken(call: object, carry_out: object) -> OffsetCommitResponse:
        beat(stage, member, 2)
        return answer(ErrorCode.ILLEGAL_GENERATION)

    stage.world.fault(ApiKey.OFFSET_COMMIT, overtaken)
    stage.says(ApiKey.OFFSET_COMMIT, answer())

    assert commit(stage, member) is None

    assert epochs(stage) == [2]
    assert member.identity == Identity("m", 2, None)


def test_a_member_that_is_not_in_its_group_asks_nobody(stage: Stage, member: ConsumerMember) -> None:
    member.fenced(ErrorCode.UNKNOWN_MEMBER_ID, member.identity)

    assert isinstance(commit(stage, member), CommitFailed)
    assert epochs(stage) == []


def test_a_position_in_a_topic_that_is_gone_is_not_tried_again(stage: Stage, member: ConsumerMember) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(commit(stage, member))
    assert len(epochs(stage)) == 1


def test_a_stranger_is_told_that_the_group_has_members(stage: Stage) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(ErrorCode.UNKNOWN_MEMBER_ID))

    problem = commit(stage, None)

    assert isinstance(problem, CommitFailed)
    assert "has members" in str(problem)
    assert epochs(stage) == [-1]


def test_of_two_commits_for_one_partition_the_later_one_holds_and_both_are_answered(
    stage: Stage, member: ConsumerMember
) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer())
    futures: list[Future[None]] = [Future(), Future()]
    taken = [
        Waiting({TopicPartition("t", 0): Committed(offset)}, {}, future)
        for offset, future in zip((5, 6), futures, strict=True)
    ]

    run_now(commit_together(stage.coordinator, taken, member))

    (request,) = stage.requests(OffsetCommitRequest)
    assert [each.committed_offset for each in request.topics[0].partitions] == [6]
    assert [future.result(0) for future in futures] == [None, None]


def test_topic_ids_are_used_where_all_of_them_are_known(stage: Stage, member: ConsumerMember) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(), answer())

    for ids in ({"t": b"\1" * 16}, {}):
        run_now(commit_together(stage.coordinator, [Waiting(POSITIONS, ids)], member))

    calls = [call for call in stage.world.calls if call.api_key is ApiKey.OFFSET_COMMIT]
    assert [call.version for call in calls] == [10, 9]
