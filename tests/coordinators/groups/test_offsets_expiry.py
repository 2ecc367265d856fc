"""When committed offsets go by themselves, and when they do not."""

from __future__ import annotations

import logging

import pytest

from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.offsets_expiry import TOMBSTONES_MAX
from ottla.coordinators.groups.records import GroupMetadataKey
from ottla.protocol import codec
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinators.groups.shard_stage import GROUP, MINUTE_MS, ShardStage

RETENTION_MS = 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS
SESSION_MS = 2 * CHECK_MS


@pytest.fixture
def stage() -> ShardStage:
    return ShardStage(
        offsets_retention_ms=RETENTION_MS, offsets_check_interval_ms=CHECK_MS, initial_rebalance_delay_ms=0
    )


def join(stage: ShardStage, *topics: str, protocol_type: str = "consumer") -> str:
    """The only member of a stable group."""
    metadata = b"\x00\x00" + codec.encode_bytes(ConsumerProtocolSubscription(topics=topics), 0)
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    client = ClientFacts("client", "/host")
    stage.do(lambda shard, ticket, outcome, now_ms: shard.join(request, 3, client, ticket, outcome, now_ms))
    stage.advance(1)
    member_id = "client-1"
    sync = SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"x")],
    )
    stage.do(lambda shard, ticket, outcome, now_ms: shard.sync(sync, ticket, outcome, now_ms))
    group = stage.shard.groups.get(GROUP)
    assert group is not None
    assert group.state_name == "Stable"
    return member_id


def live(stage: ShardStage, member_id: str, for_ms: int) -> None:
    """Time passes, and the member is alive all the while."""
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    for _ in range(for_ms // CHECK_MS):
        stage.advance(CHECK_MS)
        stage.do(lambda shard, ticket, outcome, now_ms: shard.heartbeat(beat, ticket, outcome, now_ms))


def leave(stage: ShardStage, member_id: str) -> None:
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)])
    stage.do(lambda shard, ticket, outcome, now_ms: shard.leave(request, 3, ticket, outcome, now_ms))


def test_offsets_of_a_group_without_members_go_so_long_after_their_commit(stage: ShardStage) -> None:
    stage.commit({("a", 0): 5})
    stage.advance(RETENTION_MS // 2)
    stage.commit({("b", 0): 6})
    stage.advance(RETENTION_MS // 2 - 1)
    assert len(stage.offsets) == 2
    stage.advance(CHECK_MS)
    assert stage.offsets == {(GROUP, "b", 0): 6}
    stage.advance(RETENTION_MS)
    assert stage.offsets == {}


def test_what_has_gone_does_not_come_back(stage: ShardStage) -> None:
    stage.commit({("a", 0): 5})
    stage.advance(RETENTION_MS + CHECK_MS)
    stage.start()
    assert stage.offsets == {}


def test_a_group_with_members_keeps_the_offsets_of_what_it_reads(stage: ShardStage) -> None:
    member_id = join(stage, "a")
    stage.commit({("a", 0): 5, ("b", 0): 6}, member_id=member_id, generation=1)
    live(stage, member_id, 3 * RETENTION_MS)
    assert stage.offsets == {(GROUP, "a", 0): 5}


def test_a_group_that_does_not_tell_what_it_reads_keeps_everything(stage: ShardStage) -> None:
    member_id = join(stage, "a", protocol_type="connect")
    stage.commit({("a", 0): 5, ("b", 0): 6}, member_id=member_id, generation=1)
    live(stage, member_id, 3 * RETENTION_MS)
    assert len(stage.offsets) == 2


def test_once_the_last_member_has_left_the_time_counts_from_then(stage: ShardStage) -> None:
    member_id = join(stage, "a")
    stage.commit({("a", 0): 5}, member_id=member_id, generation=1)
    live(stage, member_id, 3 * RETENTION_MS)
    leave(stage, member_id)
    stage.advance(RETENTION_MS - CHECK_MS)
    assert stage.offsets == {(GROUP, "a", 0): 5}
    stage.advance(2 * CHECK_MS)
    assert stage.offsets == {}


def test_the_time_counts_on_over_a_restart(stage: ShardStage) -> None:
    member_id = join(stage, "a")
    stage.commit({("a", 0): 5}, member_id=member_id, generation=1)
    live(stage, member_id, 3 * RETENTION_MS)
    leave(stage, member_id)
    stage.advance(RETENTION_MS - CHECK_MS)
    stage.start()
    assert stage.offsets == {(GROUP, "a", 0): 5}
    stage.advance(2 * CHECK_MS)
    assert stage.offsets == {}


def test_a_group_without_members_and_offsets_goes_too(stage: ShardStage) -> None:
    member_id = join(stage, "a")
    stage.commit({("a", 0): 5}, member_id=member_id, generation=1)
    leave(stage, member_id)
    stage.advance(RETENTION_MS - CHECK_MS)
    assert GROUP in stage.shard.groups
    stage.advance(2 * CHECK_MS)
    assert GROUP not in stage.shard.groups
    assert stage.records[-1].key == GroupMetadataKey(group=GROUP)
    assert stage.records[-1].value is None


def test_an_offset_with_a_retention_of_its_own_goes_by_that(stage: ShardStage) -> None:
    stage.commit({("a", 0): 5}, retention_ms=3 * RETENTION_MS, version=4)
    stage.commit({("a", 1): 6}, retention_ms=CHECK_MS // 2, version=4)
    stage.start()
    stage.advance(CHECK_MS)
    assert stage.offsets == {(GROUP, "a", 0): 5}
    stage.advance(2 * RETENTION_MS)
    assert stage.offsets == {(GROUP, "a", 0): 5}
    stage.advance(RETENTION_MS)
    assert stage.offsets == {}


def test_many_offsets_go_in_pieces() -> None:
    count = TOMBSTONES_MAX * 2 + 500
    stage = ShardStage({"wide": count}, offsets_retention_ms=RETENTION_MS, offsets_check_interval_ms=CHECK_MS)
    stage.commit({("wide", partition): 1 for partition in range(count)})
    stage.advance(RETENTION_MS - 1)
    assert len(stage.offsets) == count
    stage.advance(1)
    assert len(stage.offsets) == count - TOMBSTONES_MAX
    stage.advance(10)
    assert stage.offsets == {}


def test_offsets_of_topics_that_are_gone_follow_them_soon(stage: ShardStage) -> None:
    stage.commit({("a", 0): 5, ("b", 0): 6})
    del stage.topics.counts["a"]
    stage.do(lambda shard, ticket, outcome, now_ms: shard.topics_changed(outcome, now_ms, is_any_deleted=True))
    stage.advance(10)
    assert stage.offsets == {(GROUP, "b", 0): 6}


def test_offsets_of_a_topic_that_was_made_again_are_told_apart_by_its_id(stage: ShardStage) -> None:
    stage.commit({("a", 0): 5})
    stage.topics.make_again("a")
    stage.commit({("a", 1): 7})
    stage.do(lambda shard, ticket, outcome, now_ms: shard.topics_changed(outcome, now_ms, is_any_deleted=True))
    stage.advance(10)
    assert stage.offsets == {(GROUP, "a", 1): 7}


def test_offsets_beyond_a_lost_tail_are_taken_back_with_a_warning(
    stage: ShardStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.commit({("a", 0): 50, ("a", 1): 50, ("b", 0): 50})
    with caplog.at_level(logging.WARNING):
        stage.start(ends={("a", 0): 40, ("a", 1): 60})
    assert stage.offsets == {(GROUP, "a", 0): 40, (GROUP, "a", 1): 50, (GROUP, "b", 0): 50}
    assert "up to 50, but the partition ends at 40" in caplog.text
    stage.start()
    assert stage.offsets[GROUP, "a", 0] == 40
