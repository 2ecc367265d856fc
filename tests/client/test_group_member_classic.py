"""A member of a classic group, step by step: what it asks, and what it has its reader do."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.commits import NOBODY, Identity
from ottla.client.errors import NetworkException
from ottla.client.errors_by_code import error_class
from ottla.client.group_member import Change, Kind
from ottla.client.group_member_classic import ClassicMember
from ottla.client.settings import ConsumerSettings
from ottla.client.subscriptions import decode_assignment, decode_previous, encode_assignment, encode_subscription
from ottla.client.values import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.client.group_script import Stage, parts, settle, step, to_topics

BEAT_MS = 3_000


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.world.create("t", partitions=4)
    return made


def member_of(stage: Stage, **settings: Any) -> ClassicMember:
    given = {"assignors": ("range",), **settings}
    made = ClassicMember(stage.coordinator, ConsumerSettings(group="g", **given), news=stage.news, wake=stage.wake)
    made.subscribe(to_topics("t"))
    return made


def joined(generation: int, *, protocol: str = "range", **more: Any) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation, protocol_name=protocol, leader="other", **{"member_id": "m", **more}
    )


def synced(text: str) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=encode_assignment(parts(text)))


def beat(code: ErrorCode = ErrorCode.NONE) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def join(
    stage: Stage, member: ClassicMember, text: str, *, generation: int = 1, protocol: str = "range"
) -> list[Change]:
    """Let the member join and its reader do what follows from it."""
    stage.says(ApiKey.JOIN_GROUP, joined(generation, protocol=protocol))
    stage.says(ApiKey.SYNC_GROUP, synced(text))
    step(member)
    return settle(member)


def hear(stage: Stage, member: ClassicMember, code: ErrorCode) -> None:
    """One heartbeat later."""
    stage.says(ApiKey.HEARTBEAT, beat(code))
    stage.pass_time(BEAT_MS)
    step(member)


def test_a_new_member_comes_back_with_the_id_that_it_was_given(stage: Stage) -> None:
    member = member_of(stage)
    stage.says(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m"))

    assert step(member) == 0
    assert join(stage, member, "0 1") == [Change(Kind.ADOPT, parts("0 1"))]

    assert [request.member_id for request in stage.requests(JoinGroupRequest)] == ["", "m"]
    assert member.identity == Identity("m", 1, None)


def test_the_leader_shares_out_what_all_members_want(stage: Stage) -> None:
    member = member_of(stage)
    metadata = encode_subscription({"t"}, owned=[], generation=-1)
    members = [JoinGroupResponseMember(member_id=name, metadata=metadata) for name in ("m", "n")]
    stage.says(
        ApiKey.JOIN_GROUP,
        JoinGroupResponse(generation_id=1, protocol_name="range", leader="m", member_id="m", members=members),
    )
    stage.says(ApiKey.SYNC_GROUP, synced("0 1"))

    step(member)

    (request,) = stage.requests(SyncGroupRequest)
    shares = {each.member_id: decode_assignment(each.assignment) for each in request.assignments}
    assert shares == {"m": parts("0 1"), "n": parts("2 3")}


def test_a_leader_that_is_told_to_leave_it_as_it_is_shares_nothing_out(stage: Stage) -> None:
    member = member_of(stage, group_instance_id="i")
    stage.says(
        ApiKey.JOIN_GROUP,
        JoinGroupResponse(generation_id=1, protocol_name="range", leader="m", member_id="m", skip_assignment=True),
    )
    stage.says(ApiKey.SYNC_GROUP, synced("0"))

    step(member)

    (request,) = stage.requests(SyncGroupRequest)
    assert (list(request.assignments), request.group_instance_id) == ([], "i")


def test_everything_is_given_up_before_an_eager_member_joins_again(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0 1 2 3")

    hear(stage, member, ErrorCode.REBALANCE_IN_PROGRESS)
    step(member)
    assert len(stage.requests(JoinGroupRequest)) == 1

    assert settle(member) == [Change(Kind.REVOKE, parts("0 1 2 3"))]
    assert join(stage, member, "2 3", generation=2) == [Change(Kind.ADOPT, parts("2 3"))]


def test_heartbeats_go_on_while_the_reader_takes_its_time(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0")
    hear(stage, member, ErrorCode.REBALANCE_IN_PROGRESS)

    hear(stage, member, ErrorCode.REBALANCE_IN_PROGRESS)

    assert len(stage.requests(HeartbeatRequest)) == 2
    assert len(stage.requests(JoinGroupRequest)) == 1


def test_what_was_decided_but_not_taken_over_is_void_when_the_next_round_begins(stage: Stage) -> None:
    member = member_of(stage)
    stage.says(ApiKey.JOIN_GROUP, joined(1))
    stage.says(ApiKey.SYNC_GROUP, synced("0 1"))
    step(member)
    hear(stage, member, ErrorCode.REBALANCE_IN_PROGRESS)

    assert join(stage, member, "2", generation=2) == [Change(Kind.ADOPT, parts("2"))]


def test_a_cooperative_member_keeps_reading_and_gives_up_afterwards(stage: Stage) -> None:
    member = member_of(stage, assignors=("cooperative-sticky",))
    join(stage, member, "0 1 2 3", protocol="cooperative-sticky")
    hear(stage, member, ErrorCode.REBALANCE_IN_PROGRESS)

    changes = join(stage, member, "0 1", generation=2, protocol="cooperative-sticky")

    assert changes == [Change(Kind.REVOKE, parts("2 3")), Change(Kind.ADOPT, parts(""))]
    # The others get it in the next round, which nobody has to be told of.
    assert join(stage, member, "0 1", generation=3, protocol="cooperative-sticky") == [Change(Kind.ADOPT, parts(""))]


def test_a_member_that_the_group_does_not_know_has_lost_its_partitions(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0 1")

    hear(stage, member, ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.identity == NOBODY
    step(member)
    assert len(stage.requests(JoinGroupRequest)) == 1, "nothing is joined before the reader has let go"

    assert settle(member) == [Change(Kind.LOSE, parts("0 1"))]
    join(stage, member, "0", generation=5)
    assert [request.member_id for request in stage.requests(JoinGroupRequest)] == ["", ""]


def test_a_member_of_an_old_generation_comes_back_under_its_own_id(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0 1")

    hear(stage, member, ErrorCode.ILLEGAL_GENERATION)

    assert settle(member) == [Change(Kind.LOSE, parts("0 1"))]
    join(stage, member, "0", generation=5)
    assert [request.member_id for request in stage.requests(JoinGroupRequest)] == ["", "m"]


def test_a_refused_commit_makes_the_member_join_again(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0 1")

    member.fenced(ErrorCode.ILLEGAL_GENERATION, member.identity)

    assert settle(member) == [Change(Kind.LOSE, parts("0 1"))]


def test_a_commit_of_an_earlier_generation_is_no_reason_to_leave_this_one(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0 1")

    member.fenced(ErrorCode.ILLEGAL_GENERATION, Identity("m", 0, None))

    assert settle(member) == []


def test_a_static_member_that_was_replaced_does_not_come_back(stage: Stage) -> None:
    member = member_of(stage, group_instance_id="i")
    join(stage, member, "0")

    hear(stage, member, ErrorCode.FENCED_INSTANCE_ID)

    for _ in range(2):
        with pytest.raises(error_class(ErrorCode.FENCED_INSTANCE_ID)):
            member.next_change()
        assert step(member) is None
    assert len(stage.requests(JoinGroupRequest)) == 1


def test_what_keeps_a_member_out_is_raised_once_and_then_tried_again(stage: Stage) -> None:
    member = member_of(stage)
    stage.says(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))

    assert step(member) is None
    with pytest.raises(error_class(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), match="range"):
        member.next_change()

    assert join(stage, member, "0") == [Change(Kind.ADOPT, parts("0"))]


def test_a_coordinator_that_is_away_is_asked_again_later(stage: Stage) -> None:
    member = member_of(stage)
    stage.says(ApiKey.JOIN_GROUP, NetworkException("gone"), JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
    assert step(member) == 100
    stage.says(ApiKey.FIND_COORDINATOR, NetworkException("gone too"))

    assert (step(member) or 0) > 0
    assert settle(member) == []


def test_a_lost_sync_brings_the_member_back_into_the_next_round(stage: Stage) -> None:
    member = member_of(stage)
    stage.says(ApiKey.JOIN_GROUP, joined(1))
    stage.says(ApiKey.SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    assert step(member) == 0

    assert join(stage, member, "0", generation=2) == [Change(Kind.ADOPT, parts("0"))]


def test_a_member_that_nobody_polls_leaves_and_comes_back_with_the_next_poll(stage: Stage) -> None:
    member = member_of(stage, poll_interval_max_ms=10_000)
    join(stage, member, "0")
    stage.says(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    stage.pass_time(10_001)

    assert step(member) is None
    (request,) = stage.requests(LeaveGroupRequest)
    assert [each.member_id for each in request.members] == ["m"]
    assert settle(member) == [Change(Kind.LOSE, parts("0"))]
    assert step(member) is None

    member.polled()
    assert join(stage, member, "0", generation=3) == [Change(Kind.ADOPT, parts("0"))]


def test_a_static_member_leaves_without_a_word(stage: Stage) -> None:
    member = member_of(stage, group_instance_id="i")
    join(stage, member, "0")
    member.subscribe(None)

    assert step(member) is None
    assert stage.requests(LeaveGroupRequest) == []


def test_the_sticky_assignor_hears_what_the_member_had_even_after_it_gave_it_up(stage: Stage) -> None:
    member = member_of(stage, assignors=("sticky",))
    join(stage, member, "0 1", protocol="sticky")
    hear(stage, member, ErrorCode.REBALANCE_IN_PROGRESS)
    step(member)
    settle(member)

    join(stage, member, "0", generation=2, protocol="sticky")

    told = stage.requests(JoinGroupRequest)[-1].protocols[0].metadata
    subscription = decode(ConsumerProtocolSubscription, 3, told, start=2)
    owned, generation = decode_previous(subscription.user_data)
    assert (frozenset(owned), generation) == (parts("0 1"), 1)
    assert list(subscription.owned_partitions) == []


def test_the_leader_calls_for_a_round_when_partitions_were_added(stage: Stage) -> None:
    member = member_of(stage)
    metadata = encode_subscription({"t"}, owned=[], generation=-1)
    stage.says(
        ApiKey.JOIN_GROUP,
        JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="m",
            member_id="m",
            members=[JoinGroupResponseMember(member_id="m", metadata=metadata)],
        ),
    )
    stage.says(ApiKey.SYNC_GROUP, synced("0 1 2 3"))
    step(member)
    settle(member)
    stage.world.topics["t"].partitions.append(stage.world.topics["t"].partitions[0])

    member.look_at_topics()
    step(member)
    step(member)

    assert settle(member) == [Change(Kind.REVOKE, parts("0 1 2 3"))]


def test_a_pattern_is_matched_against_whole_names(stage: Stage) -> None:
    stage.world.create("orders-1")
    stage.world.create("my-orders-1")
    stage.world.create("__orders-1").is_internal = True
    member = member_of(stage)
    member.subscribe(to_topics(pattern="orders-.*"))
    stage.says(ApiKey.JOIN_GROUP, joined(1))
    stage.says(ApiKey.SYNC_GROUP, SyncGroupResponse(assignment=encode_assignment([TopicPartition("orders-1", 0)])))

    step(member)

    told = stage.requests(JoinGroupRequest)[-1].protocols[0].metadata
    assert b"\0\x08orders-1" in told
    assert b"my-orders-1" not in told
    assert b"__orders-1" not in told
