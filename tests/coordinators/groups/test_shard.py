"""A shard: which protocol a request goes to, and that groups of every kind come back from their records."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinators.groups.classic_member import PROTOCOLS_MAX
from ottla.coordinators.groups.member_facts import IN_PROCESS_HOST, ClientFacts
from ottla.error_codes import ErrorCode
from ottla.errors import GroupIdNotFound, InvalidRequest, Refusal, UnknownMemberId
from ottla.protocol import codec
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinators.groups.shard_stage import GROUP, ShardStage

CLIENT = ClientFacts("client", "/host")
SUBSCRIPTION = b"\x00\x00" + codec.encode_bytes(ConsumerProtocolSubscription(topics=["a"]), 0)
ASSIGNMENT = b"\x00\x00" + codec.encode_bytes(
    ConsumerProtocolAssignment(assigned_partitions=[AssignedPartitions(topic="a", partitions=[0, 1])]), 0
)


@pytest.fixture
def stage() -> ShardStage:
    return ShardStage(initial_rebalance_delay_ms=0)


def join(
    stage: ShardStage,
    member_id: str = "",
    *,
    protocol_type: str = "consumer",
    protocols: tuple[str, ...] = ("range",),
    session_timeout_ms: int = 10_000,
) -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION) for name in protocols],
    )
    return stage.do(lambda shard, ticket, outcome, now_ms: shard.join(request, 3, CLIENT, ticket, outcome, now_ms))


def classic_member(stage: ShardStage) -> str:
    """The only member of a stable classic group."""
    join(stage)
    stage.advance(1)
    member_id = "client-1"
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=ASSIGNMENT)],
    )
    stage.do(lambda shard, ticket, outcome, now_ms: shard.sync(request, ticket, outcome, now_ms))
    return member_id


def beat_consumer(stage: ShardStage, epoch: int = 0, member_id: str = "modern", client: ClientFacts = CLIENT) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["a"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    return stage.do(
        lambda shard, ticket, outcome, now_ms: shard.heartbeat_consumer(request, 1, client, ticket, outcome, now_ms)
    )


def beat_classic(stage: ShardStage, member_id: str, generation: int) -> Any:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    return stage.do(lambda shard, ticket, outcome, now_ms: shard.heartbeat(request, ticket, outcome, now_ms))


def leave(stage: ShardStage, member_id: str) -> None:
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)])
    stage.do(lambda shard, ticket, outcome, now_ms: shard.leave(request, 3, ticket, outcome, now_ms))


def kind(stage: ShardStage) -> str | None:
    group = stage.shard.groups.get(GROUP)
    return None if group is None else group.type_name


def test_a_join_of_a_new_group_makes_a_classic_one(stage: ShardStage) -> None:
    classic_member(stage)
    assert kind(stage) == "classic"
    stage.start()
    assert kind(stage) == "classic"


def test_a_heartbeat_of_a_new_group_makes_a_consumer_group(stage: ShardStage) -> None:
    assert beat_consumer(stage).error_code == ErrorCode.NONE
    assert kind(stage) == "consumer"
    stage.start()
    assert kind(stage) == "consumer"
    assert beat_consumer(stage, epoch=1).error_code == ErrorCode.NONE


def test_a_group_that_only_has_offsets_becomes_whatever_its_first_member_speaks(stage: ShardStage) -> None:
    stage.commit({("a", 0): 5})
    assert kind(stage) is None
    assert beat_consumer(stage).error_code == ErrorCode.NONE
    assert kind(stage) == "consumer"
    assert stage.offsets == {(GROUP, "a", 0): 5}


def test_a_classic_group_becomes_a_consumer_group_when_such_a_member_joins(stage: ShardStage) -> None:
    member_id = classic_member(stage)
    assert beat_consumer(stage).error_code == ErrorCode.NONE
    assert kind(stage) == "consumer"
    # The classic member goes on with the protocol that it speaks.
    assert beat_classic(stage, member_id, 1).error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    stage.start()
    assert kind(stage) == "consumer"


def test_a_consumer_group_becomes_classic_again_when_the_last_such_member_leaves(stage: ShardStage) -> None:
    classic_member(stage)
    beat_consumer(stage)
    beat_consumer(stage, epoch=-1)
    assert kind(stage) == "classic"
    stage.start()
    assert kind(stage) == "classic"


def test_an_empty_consumer_group_can_be_joined_by_a_classic_member(stage: ShardStage) -> None:
    beat_consumer(stage)
    beat_consumer(stage, epoch=-1)
    join(stage)
    stage.advance(1)
    assert kind(stage) == "classic"
    stage.start()
    assert kind(stage) in ("classic", None)


@pytest.mark.parametrize("may_downgrade", [False, True])
@pytest.mark.parametrize("protocol_type", ["connect", "sr", "consumer"])
def test_an_empty_consumer_group_takes_classic_members_of_any_type(protocol_type: str, may_downgrade: bool) -> None:
    stage = ShardStage(initial_rebalance_delay_ms=0, consumer_migration_downgrade=may_downgrade)
    beat_consumer(stage)
    stage.commit({("a", 0): 5}, member_id="modern", generation=1)
    beat_consumer(stage, epoch=-1)

    join(stage, protocol_type=protocol_type)
    stage.advance(1)

    group = stage.shard.groups.get(GROUP)
    assert group is not None
    assert (group.type_name, group.protocol_type, group.is_empty) == ("classic", protocol_type, False)
    assert stage.offsets == {(GROUP, "a", 0): 5}
    stage.start()
    assert kind(stage) != "consumer"
    assert stage.offsets == {(GROUP, "a", 0): 5}


@pytest.mark.parametrize(
    "wish", [{"protocols": ()}, {"protocol_type": ""}, {"session_timeout_ms": 1}, {"member_id": "somebody"}]
)
def test_an_empty_consumer_group_is_left_as_it_is_by_a_join_that_is_refused(
    stage: ShardStage, wish: dict[str, Any]
) -> None:
    beat_consumer(stage)
    beat_consumer(stage, epoch=-1)
    records = list(stage.records)

    with pytest.raises(Refusal):
        join(stage, **wish)

    assert kind(stage) == "consumer"
    assert stage.records == records


@pytest.mark.parametrize("is_consumer", [False, True], ids=["classic", "consumer"])
def test_a_member_that_speaks_any_number_of_protocols_is_refused(stage: ShardStage, is_consumer: bool) -> None:
    if is_consumer:
        beat_consumer(stage)
    records = list(stage.records)

    with pytest.raises(InvalidRequest):
        join(stage, protocols=tuple(f"protocol-{number}" for number in range(PROTOCOLS_MAX + 1)))

    assert stage.records == records


def test_an_empty_classic_group_can_be_joined_by_a_member_of_the_new_protocol(stage: ShardStage) -> None:
    leave(stage, classic_member(stage))
    assert beat_consumer(stage).error_code == ErrorCode.NONE
    assert kind(stage) == "consumer"
    stage.start()
    assert kind(stage) == "consumer"


@pytest.mark.parametrize("is_consumer", [False, True], ids=["classic", "consumer"])
def test_a_group_is_deleted_with_everything_that_was_recorded_of_it(stage: ShardStage, is_consumer: bool) -> None:
    if is_consumer:
        beat_consumer(stage)
        stage.commit({("a", 0): 5}, member_id="modern", generation=1)
        beat_consumer(stage, epoch=-1)
    else:
        member_id = classic_member(stage)
        stage.commit({("a", 0): 5}, member_id=member_id, generation=1)
        leave(stage, member_id)
    stage.do(lambda shard, ticket, outcome, now_ms: shard.delete_group(GROUP, ticket, outcome, now_ms))
    last: dict[object, object] = {record.key: record.value for record in stage.records}
    assert set(last.values()) == {None}
    assert (kind(stage), stage.offsets) == (None, {})


@pytest.mark.parametrize("is_consumer", [False, True], ids=["classic", "consumer"])
def test_members_of_a_group_that_was_deleted_are_unknown(stage: ShardStage, is_consumer: bool) -> None:
    if is_consumer:
        with pytest.raises(Refusal) as refused:
            beat_consumer(stage, epoch=3)
        assert type(refused.value) in (GroupIdNotFound, UnknownMemberId)
    else:
        with pytest.raises(UnknownMemberId):
            beat_classic(stage, "m", 1)


@pytest.mark.parametrize(
    ("is_first_life", "host", "code"),
    [
        (True, IN_PROCESS_HOST, ErrorCode.UNKNOWN_MEMBER_ID),
        (False, IN_PROCESS_HOST, ErrorCode.NONE),
        (True, "/10.0.0.1", ErrorCode.NONE),
    ],
    ids=["in a new process", "in the same process", "elsewhere"],
)
def test_members_of_the_brokers_own_process_are_gone_with_it(
    stage: ShardStage, is_first_life: bool, host: str, code: ErrorCode
) -> None:
    client = ClientFacts("client", host)
    assert beat_consumer(stage, client=client).error_code == ErrorCode.NONE
    stage.start(is_first_life=is_first_life)
    stage.advance(1)
    assert code_of_beat(stage, client) == code


def code_of_beat(stage: ShardStage, client: ClientFacts) -> ErrorCode:
    try:
        return ErrorCode(beat_consumer(stage, epoch=1, client=client).error_code)
    except Refusal as refusal:
        return refusal.code
