"""OffsetCommit: who may commit what, and that it is there after a power loss."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.handlers.group_requests import (
    GROUP,
    codes,
    commit,
    commit_request,
    fetch_request,
    fetched,
    join,
    join_request,
)
from tests.broker.stage import Stage


@pytest.fixture
def stage() -> Stage:
    stage = Stage({"offsets.topic.num.partitions": "4"})
    stage.create("a", 3)
    stage.create("b", 1)
    return stage


def test_what_was_committed_is_fetched(stage: Stage) -> None:
    assert commit(stage, {("a", 0): 5, ("a", 2): 7, ("b", 0): 9}) == [ErrorCode.NONE] * 3
    assert fetched(stage) == {("a", 0): 5, ("a", 2): 7, ("b", 0): 9}


def test_a_later_commit_takes_the_place_of_an_earlier_one_also_when_it_goes_back(stage: Stage) -> None:
    commit(stage, {("a", 0): 5})
    commit(stage, {("a", 0): 3})
    assert fetched(stage) == {("a", 0): 3}


def test_groups_do_not_see_each_other(stage: Stage) -> None:
    commit(stage, {("a", 0): 5}, group="one")
    commit(stage, {("a", 0): 7}, group="two")
    assert (fetched(stage, group="one"), fetched(stage, group="two")) == ({("a", 0): 5}, {("a", 0): 7})


def test_a_commit_is_answered_when_it_is_durable() -> None:
    stage = Stage({"offsets.topic.num.partitions": "1"}, held=True)
    sent = stage.send(commit_request({("a", 0): 5}), 9)
    stage.scheduler.run()
    while stage.jobs.waiting:
        assert not sent.is_answered
        stage.jobs.finish()
    assert sent.is_answered


def test_what_was_acknowledged_survives_a_power_loss(stage: Stage) -> None:
    for offset in range(1, 20):
        assert commit(stage, {("a", 0): offset}) == [ErrorCode.NONE]
    stage.crash()
    assert fetched(stage) == {("a", 0): 19}


def test_notes_and_leader_epochs_come_back_as_they_were(stage: Stage) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=1, committed_offset=5, committed_leader_epoch=3, committed_metadata="grüße"
    )
    request = OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name="a", partitions=[partition])])
    stage.call(request, 9)
    stage.restart()
    stored = stage.call(fetch_request([("a", 1)]), 9).groups[0].topics[0].partitions[0]
    assert (stored.committed_offset, stored.committed_leader_epoch, stored.metadata) == (5, 3, "grüße")


def test_a_null_note_is_an_empty_one(stage: Stage) -> None:
    assert commit(stage, {("a", 0): 5}, metadata=None) == [ErrorCode.NONE]
    assert stage.call(fetch_request([("a", 0)]), 9).groups[0].topics[0].partitions[0].metadata == ""


def test_a_note_that_is_too_long_is_refused_for_its_partition_only(stage: Stage) -> None:
    request = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name="a",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_metadata="x" * 4_097),
                    OffsetCommitRequestPartition(partition_index=1, committed_metadata="x" * 4_096),
                ],
            )
        ],
    )
    answers = stage.call(request, 9).topics[0].partitions
    assert [each.error_code for each in answers] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert fetched(stage) == {("a", 1): 0}


def test_partitions_that_do_not_exist_are_refused_one_by_one(stage: Stage) -> None:
    told = commit(stage, {("a", 3): 1, ("missing", 0): 2, ("a", -1): 3, ("b", 0): 4})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told == [unknown, unknown, unknown, ErrorCode.NONE]
    assert fetched(stage) == {("b", 0): 4}


def test_by_id_a_topic_that_does_not_exist_has_its_own_error(stage: Stage) -> None:
    topics = [
        OffsetCommitRequestTopic(topic_id=topic_id, partitions=[OffsetCommitRequestPartition(committed_offset=5)])
        for topic_id in (UUID(int=3).bytes, stage.broker.services.catalog.image.topic("b").topic_id.bytes)
    ]
    answers = stage.call(OffsetCommitRequest(group_id=GROUP, topics=topics), 10).topics
    assert [topic.partitions[0].error_code for topic in answers] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
    assert fetched(stage) == {("b", 0): 5}


def test_a_group_without_a_name_is_refused(stage: Stage) -> None:
    assert commit(stage, {("a", 0): 5}, group="") == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize(
    "group",
    [".", "..", "team/app", "/", "...", "a.b", "ünïcode 😀", " ", "x" * 32_767],
    ids=lambda name: name[:5],
)
def test_all_other_names_are_fine(stage: Stage, group: str) -> None:
    assert commit(stage, {("a", 0): 5}, group=group) == [ErrorCode.NONE]
    stage.restart()
    assert fetched(stage, group=group) == {("a", 0): 5}


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_generation_of_a_group_that_does_not_exist_is_refused(stage: Stage, version: int, code: ErrorCode) -> None:
    assert commit(stage, {("a", 0): 5}, version, member_id="m", generation=1) == [code]


def test_a_member_commits_in_its_generation(stage: Stage) -> None:
    member_id = join(stage, "a")
    assert commit(stage, {("a", 0): 5}, member_id=member_id, generation=1) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("member_id", "generation", "code"),
    [
        (None, 2, ErrorCode.ILLEGAL_GENERATION),
        ("somebody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
    ids=["another generation", "somebody else", "from outside"],
)
def test_only_members_of_the_generation_commit_while_there_are_any(
    stage: Stage, member_id: str | None, generation: int, code: ErrorCode
) -> None:
    present = join(stage, "a")
    member_id = present if member_id is None else member_id
    assert commit(stage, {("a", 0): 5}, member_id=member_id, generation=generation) == [code]
    assert fetched(stage) == {}


def test_when_the_last_member_has_left_anybody_may_commit(stage: Stage) -> None:
    member_id = join(stage, "a")
    stage.call(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)]))
    assert commit(stage, {("a", 0): 5}) == [ErrorCode.NONE]


def test_a_commit_keeps_its_member_alive(stage: Stage) -> None:
    member_id = join(stage, "a")
    for _ in range(4):
        stage.scheduler.advance(8_000)
        assert commit(stage, {("a", 0): 5}, member_id=member_id, generation=1) == [ErrorCode.NONE]
    stage.scheduler.advance(20_000)
    assert commit(stage, {("a", 0): 5}, member_id=member_id, generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_commit_that_cannot_be_written_is_not_acknowledged_and_the_coordinator_comes_back(stage: Stage) -> None:
    commit(stage, {("a", 0): 5})
    stage.disk.fail_next("append", ".log", errno.EIO)
    assert commit(stage, {("a", 0): 6}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(1_000)
    assert fetched(stage) == {("a", 0): 5}
    assert commit(stage, {("a", 0): 7}) == [ErrorCode.NONE]


def test_a_request_without_topics_is_answered(stage: Stage) -> None:
    assert commit(stage, {}) == []


def test_a_commit_of_a_thousand_partitions_is_one_batch(stage: Stage) -> None:
    stage.create("wide", 1_000)
    told = commit(stage, {("wide", partition): partition for partition in range(1_000)})
    assert set(told) == {ErrorCode.NONE}
    stage.crash()
    assert len(fetched(stage)) == 1_000


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_retention_for_ever_is_one(stage: Stage, version: int) -> None:
    assert commit(stage, {("a", 0): 5}, version, retention_ms=2**63 - 1) == [ErrorCode.NONE]
    stage.restart()
    assert fetched(stage) == {("a", 0): 5}


def test_a_partition_that_is_named_twice_has_the_offset_that_comes_last(stage: Stage) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset) for offset in (5, 9, 7)]
    topics = [OffsetCommitRequestTopic(name="a", partitions=partitions)]
    commit(stage, {("b", 0): 1})
    before = written(stage)
    answer = stage.call(OffsetCommitRequest(group_id=GROUP, topics=topics), 9)
    assert codes(answer) == [ErrorCode.NONE] * 3
    assert fetched(stage, [("a", 0)]) == {("a", 0): 7}
    assert written(stage) - before == 1


def test_a_commit_that_would_fill_the_memory_is_refused_and_nobody_else_notices() -> None:
    stage = Stage({"offsets.topic.num.partitions": "1"})
    stage.create("wide", 600)
    waiting = stage.send(join_request("wide", group="other"), 3)
    stage.scheduler.run()
    told = commit(stage, {("wide", partition): 1 for partition in range(600)}, group="g" * 32_000)
    assert set(told) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert fetched(stage, group="g" * 32_000) == {}
    stage.scheduler.advance(3_000)
    assert waiting.response.error_code == ErrorCode.NONE


def test_a_group_grows_as_long_as_it_can_still_be_deleted() -> None:
    stage = Stage({"offsets.topic.num.partitions": "1"})
    stage.create("wide", 600)
    group = "g" * 32_000
    for start in (0, 200):
        told = commit(stage, {("wide", start + partition): 1 for partition in range(200)}, group=group)
        assert set(told) == {ErrorCode.NONE}
    told = commit(stage, {("wide", 400 + partition): 1 for partition in range(200)}, group=group)
    assert set(told) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    # What it has may still move on.
    assert commit(stage, {("wide", 0): 2}, group=group) == [ErrorCode.NONE]
    assert stage.call(DeleteGroupsRequest(groups_names=[group])).results[0].error_code == ErrorCode.NONE
    told = commit(stage, {("wide", 400 + partition): 1 for partition in range(200)}, group=group)
    assert set(told) == {ErrorCode.NONE}


def written(stage: Stage) -> int:
    """How many records all groups have come to."""
    return sum(stage.partition("__consumer_offsets", index).log.end_offset for index in range(4))


def test_a_member_that_waits_for_its_join_is_refused_when_the_broker_stops(stage: Stage) -> None:
    sent = stage.send(join_request("a"), 3)
    stage.scheduler.run()
    stage.broker.stop()
    assert not sent.is_answered
    sent.outcome.hurry()  # type: ignore[union-attr]
    assert sent.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
