"""When committed offsets go by themselves, and when they do not."""

from __future__ import annotations

import pytest

from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.offsets_expiry import PIECE_BYTES, PIECE_ENTRIES
from ottla.coordinators.groups.records import GroupMetadataKey, GroupMetadataValue
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


def delete_topic(stage: ShardStage, name: str) -> None:
    del stage.topics.counts[name]
    stage.do(lambda shard, ticket, outcome, now_ms: shard.topics_changed(outcome, now_ms, is_any_deleted=True))


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
    count = PIECE_ENTRIES * 2 + 500
    stage = ShardStage({"wide": count}, offsets_retention_ms=RETENTION_MS, offsets_check_interval_ms=CHECK_MS)
    stage.commit({("wide", partition): 1 for partition in range(count)})
    stage.advance(RETENTION_MS - 1)
    assert len(stage.offsets) == count
    stage.advance(1)
    assert len(stage.offsets) == count - PIECE_ENTRIES
    stage.advance(10)
    assert stage.offsets == {}


def test_one_piece_looks_at_so_many_offsets_and_no_more() -> None:
    count = PIECE_ENTRIES * 2
    stage = ShardStage({"wide": count}, offsets_retention_ms=RETENTION_MS, offsets_check_interval_ms=CHECK_MS)
    stage.commit({("wide", partition): 1 for partition in range(count)})
    stage.advance(RETENTION_MS - 1)
    stage.commit({("wide", partition): 2 for partition in range(PIECE_ENTRIES)})
    stage.advance(1)
    assert len(stage.offsets) == count
    stage.advance(10)
    assert set(stage.offsets.values()) == {2}


def test_offsets_of_groups_with_long_names_go_in_smaller_pieces() -> None:
    stage = ShardStage({"wide": 100}, offsets_retention_ms=RETENTION_MS, offsets_check_interval_ms=CHECK_MS)
    group = "g" * 32_000
    stage.commit({("wide", partition): 1 for partition in range(100)}, group=group)
    stage.advance(RETENTION_MS)
    assert 1 <= 100 - len(stage.offsets) <= PIECE_BYTES // len(group) + 1
    stage.advance(10)
    assert stage.offsets == {}


def test_groups_that_have_nothing_left_go_in_pieces(stage: ShardStage) -> None:
    for number in range(PIECE_ENTRIES + 1):
        stage.shard.replay(GroupMetadataKey(group=f"group {number}"), GroupMetadataValue(protocol_type="consumer"))
    stage.advance(CHECK_MS + 1)
    assert len(stage.shard.groups) == 1
    stage.advance(10)
    assert len(stage.shard.groups) == 0


def test_a_look_at_all_offsets_begins_anew_after_the_interval(stage: ShardStage) -> None:
    stage.advance(CHECK_MS + 10)
    stage.commit({("a", 0): 5}, retention_ms=1, version=4)
    stage.advance(CHECK_MS - 11)
    assert len(stage.offsets) == 1
    stage.advance(1)
    assert stage.offsets == {}


def test_topics_that_go_while_others_are_swept_are_swept_too() -> None:
    stage = ShardStage({"first": 1, "wide": PIECE_ENTRIES * 2})
    stage.advance(10)
    stage.commit({("first", 0): 1} | {("wide", partition): 1 for partition in range(PIECE_ENTRIES * 2)})
    delete_topic(stage, "wide")
    stage.advance(1)
    assert PIECE_ENTRIES < len(stage.offsets) < PIECE_ENTRIES * 2
    delete_topic(stage, "first")
    stage.advance(10)
    assert stage.offsets == {}


def test_offsets_of_topics_that_are_gone_follow_them_soon(stage: ShardStage) -> None:
    stage.commit({("a", 0): 5, ("b", 0): 6})
    delete_topic(stage, "a")
    stage.advance(10)
    assert stage.offsets == {(GROUP, "b", 0): 6}


def test_offsets_of_a_topic_that_was_made_again_are_told_apart_by_its_id(stage: ShardStage) -> None:
    stage.commit({("a", 0): 5})
    stage.topics.make_again("a")
    stage.commit({("a", 1): 7})
    stage.do(lambda shard, ticket, outcome, now_ms: shard.topics_changed(outcome, now_ms, is_any_deleted=True))
    stage.advance(10)
    assert stage.offsets == {(GROUP, "a", 1): 7}
