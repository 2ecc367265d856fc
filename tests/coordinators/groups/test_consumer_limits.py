"""Members of consumer groups that bring very much along: they are turned away before anything of it is written."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from ottla.coordinators.groups import records
from ottla.coordinators.groups.classic_group import MEMBERS_BYTES_MAX
from ottla.coordinators.groups.consumer_limits import (
    GROUP_BYTES_MAX,
    MEMBER_BYTES_MAX,
    OWNED_PARTITIONS_MAX,
    TOPICS_MAX,
    member_bytes,
)
from ottla.coordinators.groups.consumer_member import MemberFacts
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import ClassicMemberMetadata, ClassicMemberProtocol
from ottla.error_codes import ErrorCode
from ottla.errors import GroupMaxSizeReached, InvalidRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.coordinators.groups.shard_stage import GROUP, ShardStage

CLIENT = ClientFacts("client", "/host")
LARGE_BYTES = MEMBER_BYTES_MAX - 10_000
"""As much as a member may bring, less the little that its names take."""


def large(size_bytes: int) -> bytes:
    """A subscription to the topic `a`, with that many bytes from its assignor."""
    return pack(">hih", 0, 1, 1) + b"a" + pack(">i", size_bytes) + bytes(size_bytes)


def join(stage: ShardStage, metadata: bytes, member_id: str = "", *, instance_id: str | None = None) -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return stage.do(lambda shard, ticket, outcome, now_ms: shard.join(request, 3, CLIENT, ticket, outcome, now_ms))


def beat(
    stage: ShardStage,
    epoch: int = 0,
    *,
    names: list[str] | None = None,
    owned: list[TopicPartitions] | None = None,
    instance_id: str | None = None,
    member_id: str = "modern",
) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance_id,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["a"] if names is None and epoch == 0 else names,
        topic_partitions=[] if epoch == 0 else owned,
    )
    return stage.do(
        lambda shard, ticket, outcome, now_ms: shard.heartbeat_consumer(request, 1, CLIENT, ticket, outcome, now_ms)
    )


def leave(stage: ShardStage, member_id: str) -> None:
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)])
    stage.do(lambda shard, ticket, outcome, now_ms: shard.leave(request, 3, ticket, outcome, now_ms))


def kind(stage: ShardStage) -> str | None:
    group = stage.shard.groups.get(GROUP)
    return None if group is None else group.type_name


@pytest.fixture
def stage() -> ShardStage:
    return ShardStage(initial_rebalance_delay_ms=0)


def filled(stage: ShardStage) -> list[str]:
    """A consumer group that has room for no other large member; returns the ids of its classic members."""
    beat(stage)
    metadata = large(LARGE_BYTES)
    return [join(stage, metadata).member_id for _ in range(GROUP_BYTES_MAX // MEMBER_BYTES_MAX)]


def test_a_classic_member_that_brings_too_much_is_turned_away(stage: ShardStage) -> None:
    beat(stage)
    written = list(stage.records)

    with pytest.raises(GroupMaxSizeReached):
        join(stage, large(MEMBER_BYTES_MAX))

    assert stage.records == written
    assert beat(stage, epoch=1).error_code == ErrorCode.NONE


def test_members_that_bring_too_much_together_are_turned_away(stage: ShardStage) -> None:
    filled(stage)
    written = list(stage.records)

    with pytest.raises(GroupMaxSizeReached):
        join(stage, large(LARGE_BYTES))

    assert stage.records == written
    assert join(stage, large(10)).error_code == ErrorCode.NONE


def test_the_room_is_as_it_was_after_a_restart(stage: ShardStage) -> None:
    filled(stage)
    stage.start()

    with pytest.raises(GroupMaxSizeReached):
        join(stage, large(LARGE_BYTES))


def test_a_member_may_bring_as_much_again_as_it_has_brought(stage: ShardStage) -> None:
    member_id = filled(stage)[0]

    assert join(stage, large(LARGE_BYTES), member_id).error_code == ErrorCode.NONE


def test_whoever_leaves_makes_room(stage: ShardStage) -> None:
    leave(stage, filled(stage)[0])

    assert join(stage, large(LARGE_BYTES)).error_code == ErrorCode.NONE


def test_whoever_takes_the_place_of_another_has_its_room(stage: ShardStage) -> None:
    beat(stage)
    metadata = large(LARGE_BYTES)
    for number in range(GROUP_BYTES_MAX // MEMBER_BYTES_MAX):
        join(stage, metadata, instance_id=f"instance-{number}")

    assert join(stage, metadata, instance_id="instance-0").error_code == ErrorCode.NONE
    assert beat(stage, member_id="other", instance_id="instance-1").error_code == ErrorCode.NONE


def test_topics_with_long_names_count_for_members_of_either_protocol(stage: ShardStage) -> None:
    beat(stage)
    names = [f"{number:08}" + "x" * 992 for number in range(9_000)]
    written = list(stage.records)

    with pytest.raises(GroupMaxSizeReached):
        beat(stage, epoch=1, names=names)
    with pytest.raises(GroupMaxSizeReached):
        beat(stage, names=names, member_id="other")

    assert stage.records == written


def test_a_member_may_not_name_more_topics_than_anybody_needs(stage: ShardStage) -> None:
    names = [f"topic-{number}" for number in range(TOPICS_MAX + 1)]

    with pytest.raises(InvalidRequest):
        beat(stage, names=names)

    assert stage.records == []
    assert beat(stage, names=names[:TOPICS_MAX]).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "owned",
    [
        [TopicPartitions(topic_id=bytes(16), partitions=[*range(OWNED_PARTITIONS_MAX + 1)])],
        [TopicPartitions(topic_id=bytes(16), partitions=[])] * (OWNED_PARTITIONS_MAX + 1),
    ],
    ids=["partitions", "topics"],
)
def test_a_member_may_not_own_more_partitions_than_there_can_be(
    stage: ShardStage, owned: list[TopicPartitions]
) -> None:
    beat(stage)

    with pytest.raises(InvalidRequest):
        beat(stage, epoch=1, owned=owned)


@pytest.mark.parametrize(
    "metadata",
    [large(MEMBER_BYTES_MAX), pack(">hi", 0, TOPICS_MAX + 1) + bytes(2 * TOPICS_MAX + 2)],
    ids=["bytes", "topics"],
)
def test_a_classic_group_that_would_be_too_large_is_not_upgraded(stage: ShardStage, metadata: bytes) -> None:
    join(stage, metadata)
    stage.advance(1)
    written = list(stage.records)

    with pytest.raises(GroupMaxSizeReached):
        beat(stage)

    assert stage.records == written
    assert kind(stage) == "classic"


def test_a_consumer_group_stays_one_where_no_record_holds_the_classic_group(stage: ShardStage) -> None:
    beat(stage)
    metadata = large(LARGE_BYTES)
    members = [join(stage, metadata).member_id for _ in range(MEMBERS_BYTES_MAX // LARGE_BYTES + 1)]

    beat(stage, epoch=-1)

    assert kind(stage) == "consumer"
    leave(stage, members[0])
    assert kind(stage) == "classic"
    for record in stage.records:
        value = b"" if record.value is None else records.encode_value(record.value)
        assert len(value) <= GROUP_BYTES_MAX


def test_what_is_counted_of_a_member_is_no_less_than_what_is_recorded() -> None:
    facts = MemberFacts(
        client=ClientFacts("client" * 9, "/host"),
        instance_id="é" * 50,
        rack_id="north",
        topic_names=frozenset(f"ü{number}" for number in range(1_000)),
        pattern="a.*",
        assignor="uniform",
        classic=ClassicMemberMetadata(
            session_timeout_ms=1,
            supported_protocols=[ClassicMemberProtocol(name=f"€{number}", metadata=bytes(9)) for number in range(100)],
        ),
    )
    key = records.ConsumerGroupMemberMetadataKey(group_id="g" * 100, member_id="m" * 100)

    recorded_bytes = len(records.encode_key(key)) + len(records.encode_value(facts.recorded()))

    assert recorded_bytes <= member_bytes("g" * 100, "m" * 100, facts)
