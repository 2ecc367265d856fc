"""Groups as tools see them: listed, described, deleted, and their offsets forgotten; and how they come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from ottla.broker.groups import GroupCoordinator
from ottla.broker.handlers.heartbeat import heartbeat
from ottla.error_codes import ErrorCode
from ottla.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, Refusal
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.schema import Message
from tests.broker.handlers.group_requests import (
    GROUP,
    SESSION_MS,
    codes,
    commit,
    fetched,
    join,
    join_request,
)
from tests.broker.stage import CALLER, Stage
from tests.storage.workbench import NOW_MS


@pytest.fixture
def stage() -> Stage:
    stage = Stage({"offsets.topic.num.partitions": "4"})
    stage.create("a", 2)
    stage.create("b", 1)
    return stage


def listed(stage: Stage, states: list[str] | None = None, types: list[str] | None = None) -> dict[str, tuple[str, str]]:
    response = stage.call(ListGroupsRequest(states_filter=states or [], types_filter=types or []))
    assert response.error_code == ErrorCode.NONE
    return {group.group_id: (group.group_state, group.group_type) for group in response.groups}


def consumer_join(stage: Stage, group: str, member_id: str = "m", epoch: int = 0) -> ErrorCode:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["a"],
        topic_partitions=[],
    )
    return ErrorCode(stage.call(request).error_code)


def forget(stage: Stage, *partitions: tuple[str, int], group: str = GROUP) -> list[ErrorCode]:
    topics = [
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for topic, index in partitions
    ]
    response = stage.call(OffsetDeleteRequest(group_id=group, topics=topics))
    return [ErrorCode(response.error_code)] if response.error_code else codes(response)


def deleted(stage: Stage, *groups: str) -> dict[str, ErrorCode]:
    response = stage.call(DeleteGroupsRequest(groups_names=groups))
    return {result.group_id: ErrorCode(result.error_code) for result in response.results}


def leave(stage: Stage, member_id: str) -> None:
    stage.call(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)]))


def test_groups_of_all_kinds_are_listed_from_all_shards(stage: Stage) -> None:
    join(stage, "a", group="classic")
    commit(stage, {("a", 0): 1}, group="simple")
    consumer_join(stage, "modern")
    for number in range(10):
        commit(stage, {("a", 0): 1}, group=f"simple {number}")
    groups = listed(stage)
    assert len(groups) == 13
    assert groups["classic"] == ("Stable", "classic")
    assert groups["simple"] == ("Empty", "classic")
    assert groups["modern"][1] == "consumer"


def test_filters_choose_by_state_and_type_in_any_case(stage: Stage) -> None:
    join(stage, "a", group="classic")
    commit(stage, {("a", 0): 1}, group="simple")
    consumer_join(stage, "modern")
    assert listed(stage, states=["EMPTY"]).keys() == {"simple"}
    assert listed(stage, types=["Consumer"]).keys() == {"modern"}
    assert listed(stage, states=["stable", "empty"], types=["classic"]).keys() == {"classic", "simple"}
    assert listed(stage, states=["Dead"]) == {}


def test_a_group_that_only_has_offsets_is_described_as_an_empty_one(stage: Stage) -> None:
    commit(stage, {("a", 0): 1})
    (group,) = stage.call(DescribeGroupsRequest(groups=[GROUP])).groups
    assert (group.error_code, group.group_state, group.members) == (ErrorCode.NONE, "Empty", ())


def test_a_consumer_group_is_described_to_old_tools_too(stage: Stage) -> None:
    consumer_join(stage, GROUP)
    (group,) = stage.call(DescribeGroupsRequest(groups=[GROUP])).groups
    assert (group.error_code, [member.member_id for member in group.members]) == (ErrorCode.NONE, ["m"])


def test_a_classic_group_is_not_found_among_consumer_groups(stage: Stage) -> None:
    join(stage, "a")
    (group,) = stage.call(ConsumerGroupDescribeRequest(group_ids=[GROUP])).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_name_that_fills_a_string_can_be_asked_for(stage: Stage) -> None:
    name = "x" * 32_767
    (group,) = stage.call(DescribeGroupsRequest(groups=[name])).groups
    assert (group.group_id, group.error_code) == (name, ErrorCode.GROUP_ID_NOT_FOUND)


def test_an_empty_group_is_deleted_with_its_offsets(stage: Stage) -> None:
    leave(stage, join(stage, "a"))
    commit(stage, {("a", 0): 1, ("b", 0): 2})
    assert deleted(stage, GROUP) == {GROUP: ErrorCode.NONE}
    assert (listed(stage), fetched(stage)) == ({}, {})
    stage.restart()
    assert (listed(stage), fetched(stage)) == ({}, {})


def test_a_group_with_members_is_not_deleted(stage: Stage) -> None:
    join(stage, "a")
    consumer_join(stage, "modern")
    assert deleted(stage, GROUP, "modern", "missing") == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "modern": ErrorCode.NON_EMPTY_GROUP,
        "missing": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_a_group_that_is_named_twice_is_deleted_once(stage: Stage) -> None:
    commit(stage, {("a", 0): 1})
    assert deleted(stage, GROUP, GROUP) == {GROUP: ErrorCode.NONE}


def test_offsets_of_topics_that_members_read_stay(stage: Stage) -> None:
    member_id = join(stage, "a")
    commit(stage, {("a", 0): 1, ("b", 0): 2}, member_id=member_id, generation=1)
    assert forget(stage, ("a", 0), ("b", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert fetched(stage) == {("a", 0): 1}


def test_in_an_empty_group_all_offsets_may_go(stage: Stage) -> None:
    commit(stage, {("a", 0): 1, ("a", 1): 2})
    assert forget(stage, ("a", 0), ("a", 1), ("b", 0), ("missing", 0)) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert listed(stage) == {}


def test_a_group_that_does_not_tell_what_it_reads_keeps_its_offsets(stage: Stage) -> None:
    join(stage, "a", protocol_type="connect")
    assert forget(stage, ("b", 0)) == [ErrorCode.NON_EMPTY_GROUP]


def test_a_group_that_does_not_exist_has_no_offsets_to_forget(stage: Stage) -> None:
    assert forget(stage, ("a", 0)) == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_stable_group_goes_on_after_a_power_loss_without_a_rebalance(stage: Stage) -> None:
    member_id = join(stage, "a")
    stage.crash()
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    assert stage.call(beat).error_code == ErrorCode.NONE
    sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    assert stage.call(sync, 4).assignment == b"mine"


def test_a_member_that_does_not_come_back_after_a_restart_is_let_go(stage: Stage) -> None:
    join(stage, "a")
    stage.restart()
    stage.scheduler.advance(3 * SESSION_MS)
    assert listed(stage) == {GROUP: ("Empty", "classic")}


def test_a_consumer_group_goes_on_after_a_power_loss(stage: Stage) -> None:
    assert consumer_join(stage, GROUP) == ErrorCode.NONE
    stage.crash()
    (group,) = stage.call(ConsumerGroupDescribeRequest(group_ids=[GROUP])).groups
    assert (group.group_epoch, [member.member_epoch for member in group.members]) == (1, [1])


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_a_member_that_takes_its_assignment_names_the_protocol_from_version_5_on(stage: Stage, missing: str) -> None:
    named: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range", missing: None}
    request = SyncGroupRequest(group_id=GROUP, member_id="m", **named)
    assert stage.call(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.call(SyncGroupRequest(group_id=GROUP, member_id="m"), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_without_a_name_has_no_members(stage: Stage) -> None:
    group, invalid = "", ErrorCode.INVALID_GROUP_ID
    assert stage.call(join_request("a", group=group), 9).error_code == invalid
    assert stage.call(SyncGroupRequest(group_id=group), 4).error_code == invalid
    assert stage.call(HeartbeatRequest(group_id=group)).error_code == invalid
    assert stage.call(LeaveGroupRequest(group_id=group)).error_code == invalid
    assert consumer_join(stage, group) == invalid


def test_a_member_that_waits_is_not_answered_once_its_connection_is_gone(stage: Stage) -> None:
    sent = stage.send(join_request("a"), 3)
    stage.scheduler.run()
    sent.outcome.cancel()  # type: ignore[union-attr]
    stage.scheduler.advance(SESSION_MS)
    assert not sent.is_answered


def test_new_topics_and_partitions_reach_consumer_groups(stage: Stage) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_names=["late"], topic_partitions=[]
    )
    assert stage.call(request).error_code == ErrorCode.NONE
    topic_id = stage.create("late", 2)
    stage.scheduler.advance(5_000)
    response = stage.call(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=1))
    assert [topic.topic_id for topic in response.assignment.topic_partitions] == [topic_id.bytes]


class Wall:
    """A time of day that somebody sets."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000], ids=["back", "forward"])
def test_a_system_clock_that_is_set_neither_ends_a_session_nor_holds_it(step_ms: int) -> None:
    wall = Wall()
    stage = Stage(wall=wall)
    stage.create("a")
    member_id = join(stage, "a")
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    wall.ms += step_ms
    stage.scheduler.advance(SESSION_MS - 1_000)
    assert stage.call(beat).error_code == ErrorCode.NONE
    stage.scheduler.advance(2 * SESSION_MS)
    assert listed(stage) == {GROUP: ("Empty", "classic")}


class _Refusing:
    """Groups that are being read back, or gone."""

    def __init__(self, error: Refusal) -> None:
        self._error = error

    def submit(self, group_id: str, decide: object, refused: Callable[[Refusal], Message]) -> Message:
        return refused(self._error)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CoordinatorLoadInProgress("reading"), ErrorCode.NONE),
        (CoordinatorNotAvailable("gone"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_heartbeat_while_its_group_is_read_back_is_answered_as_if_all_were_well(
    stage: Stage, error: Refusal, code: ErrorCode
) -> None:
    services = replace(stage.broker.services, groups=cast(GroupCoordinator, _Refusing(error)))

    response = heartbeat(HeartbeatRequest(group_id=GROUP, member_id="m", generation_id=1), 4, CALLER, services)

    assert isinstance(response, HeartbeatResponse)
    assert response.error_code == code
