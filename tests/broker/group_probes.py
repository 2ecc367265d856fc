"""Probes of the group APIs: each version gets a request that must succeed in a group that fits it."""

from __future__ import annotations

from typing import Any

from ottla.error_codes import ErrorCode
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import consumer_group_describe as consumer_describe
from ottla.protocol.messages import consumer_group_heartbeat as consumer
from ottla.protocol.messages import delete_groups as deletion
from ottla.protocol.messages import describe_groups as describe
from ottla.protocol.messages import find_coordinator as finding
from ottla.protocol.messages import heartbeat as beats
from ottla.protocol.messages import join_group as joining
from ottla.protocol.messages import leave_group as leaving
from ottla.protocol.messages import list_groups as listing
from ottla.protocol.messages import offset_commit as commits
from ottla.protocol.messages import offset_delete as forgetting
from ottla.protocol.messages import offset_fetch as fetches
from ottla.protocol.messages import sync_group as syncing
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.schema import Message
from tests.broker.probing import NODE, TOPIC, Probe, Scene

GROUP = "group"
JOIN_DELAY_MS = 3_000
SUBSCRIPTION = b"\x00\x00" + codec.encode_bytes(ConsumerProtocolSubscription(topics=[TOPIC]), 0)


def join_request(member_id: str = "") -> joining.JoinGroupRequest:
    return joining.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[joining.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def joined(found: Scene) -> str:
    """The only member of the group's first generation, which has not been assigned anything yet."""
    sent = found.stage.send(join_request(), 3)
    found.stage.scheduler.advance(JOIN_DELAY_MS)
    assert sent.response.error_code == ErrorCode.NONE
    return str(sent.response.member_id)


def synced(found: Scene) -> str:
    """The only member of a stable group."""
    member_id = joined(found)
    request = syncing.SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[syncing.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
    )
    assert found.stage.call(request).error_code == ErrorCode.NONE
    return member_id


def commit_request(found: Scene, version: int) -> commits.OffsetCommitRequest:
    topic: dict[str, Any] = {"topic_id": found.topic_id.bytes} if version >= 10 else {"name": TOPIC}
    return commits.OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            commits.OffsetCommitRequestTopic(
                **topic,
                partitions=[
                    commits.OffsetCommitRequestPartition(
                        partition_index=1, committed_offset=2, committed_leader_epoch=0, committed_metadata="note"
                    )
                ],
            )
        ],
    )


def committed(found: Scene) -> None:
    """An offset of a group without members."""
    response = found.stage.call(commit_request(found, 9), 9)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def consumer_member(found: Scene) -> None:
    """A consumer group with one member."""
    response = found.stage.call(consumer_request(), 1)
    assert response.error_code == ErrorCode.NONE, response.error_message


def consumer_request() -> consumer.ConsumerGroupHeartbeatRequest:
    return consumer.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="member",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


# --- requests ----------------------------------------------------------------------------------------------


def commit(found: Scene) -> Message:
    return commit_request(found, found.version)


def fetch(found: Scene) -> Message:
    committed(found)
    if found.version < 8:
        topics = [fetches.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])]
        return fetches.OffsetFetchRequest(group_id=GROUP, topics=topics)
    topic: dict[str, Any] = {"topic_id": found.topic_id.bytes} if found.version >= 10 else {"name": TOPIC}
    asked = fetches.OffsetFetchRequestTopics(**topic, partition_indexes=[0, 1])
    groups = [
        fetches.OffsetFetchRequestGroup(group_id=GROUP, topics=[asked]),
        fetches.OffsetFetchRequestGroup(group_id="another", topics=None),
    ]
    return fetches.OffsetFetchRequest(groups=groups, require_stable=True)


def find(found: Scene) -> Message:
    if found.version >= 4:
        return finding.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP, "another"])
    return finding.FindCoordinatorRequest(key=GROUP)


def join(found: Scene) -> Message:
    """A group that waits for its only member to join again: then the answer comes at once."""
    return join_request(synced(found))


def sync(found: Scene) -> Message:
    member_id = joined(found)
    return syncing.SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[syncing.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
    )


def beat(found: Scene) -> Message:
    return beats.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=synced(found))


def leave(found: Scene) -> Message:
    member_id = synced(found)
    if found.version < 3:
        return leaving.LeaveGroupRequest(group_id=GROUP, member_id=member_id)
    return leaving.LeaveGroupRequest(group_id=GROUP, members=[leaving.MemberIdentity(member_id=member_id)])


def list_all(found: Scene) -> Message:
    synced(found)
    if found.version < 4:
        return listing.ListGroupsRequest()
    types = ["Classic"] if found.version >= 5 else []
    return listing.ListGroupsRequest(states_filter=["Stable"], types_filter=types)


def describe_one(found: Scene) -> Message:
    synced(found)
    return describe.DescribeGroupsRequest(groups=[GROUP, "missing"])


def delete(found: Scene) -> Message:
    committed(found)
    return deletion.DeleteGroupsRequest(groups_names=[GROUP, "missing"])


def forget(found: Scene) -> Message:
    committed(found)
    partitions = [forgetting.OffsetDeleteRequestPartition(partition_index=1)]
    topics = [forgetting.OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)]
    return forgetting.OffsetDeleteRequest(group_id=GROUP, topics=topics)


def beat_consumer(found: Scene) -> Message:
    return consumer_request()


def describe_consumer(found: Scene) -> Message:
    consumer_member(found)
    return consumer_describe.ConsumerGroupDescribeRequest(group_ids=[GROUP, "missing"])


# --- what must come back -------------------------------------------------------------------------------------


def check_committed(found: Scene, response: Any) -> None:
    topic = response.topics[0]
    assert (topic.name or topic.topic_id) == (TOPIC if found.version < 10 else found.topic_id.bytes)
    told = [(each.partition_index, each.error_code) for each in topic.partitions]
    assert told == [(1, ErrorCode.NONE)]


def check_fetched(found: Scene, response: Any) -> None:
    if found.version < 8:
        topics = response.topics
        assert response.error_code == ErrorCode.NONE
    else:
        assert [(group.group_id, group.error_code) for group in response.groups] == [(GROUP, 0), ("another", 0)]
        assert response.groups[1].topics == ()
        topics = response.groups[0].topics
    none, stored = topics[0].partitions
    assert (none.partition_index, none.committed_offset, none.error_code) == (0, -1, ErrorCode.NONE)
    assert (stored.partition_index, stored.committed_offset, stored.metadata) == (1, 2, "note")
    assert stored.committed_leader_epoch == (0 if found.version >= 5 else -1)


def check_found(found: Scene, response: Any) -> None:
    expected = (ErrorCode.NONE, NODE, "broker.example", 9092)
    if found.version < 4:
        assert (response.error_code, response.node_id, response.host, response.port) == expected
        return
    assert [each.key for each in response.coordinators] == [GROUP, "another"]
    for each in response.coordinators:
        assert (each.error_code, each.node_id, each.host, each.port) == expected


def check_joined(found: Scene, response: Any) -> None:
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 2)
    assert response.leader == response.member_id
    assert response.protocol_name == "range"
    assert [(each.member_id, each.metadata) for each in response.members] == [(response.member_id, SUBSCRIPTION)]
    assert response.protocol_type == ("consumer" if found.version >= 7 else None)


def check_synced(found: Scene, response: Any) -> None:
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"mine")
    assert response.protocol_name == ("range" if found.version >= 5 else None)


def check_fine(found: Scene, response: Any) -> None:
    assert response.error_code == ErrorCode.NONE


def check_left(found: Scene, response: Any) -> None:
    assert response.error_code == ErrorCode.NONE
    assert [each.error_code for each in response.members] == ([ErrorCode.NONE] if found.version >= 3 else [])
    described = found.stage.call(describe.DescribeGroupsRequest(groups=[GROUP])).groups[0]
    assert (described.group_state, described.members) == ("Empty", ())


def check_listed(found: Scene, response: Any) -> None:
    (group,) = response.groups
    assert (response.error_code, group.group_id, group.protocol_type) == (ErrorCode.NONE, GROUP, "consumer")
    assert group.group_state == ("Stable" if found.version >= 4 else "")
    assert group.group_type == ("classic" if found.version >= 5 else "")


def check_described(found: Scene, response: Any) -> None:
    group, missing = response.groups
    assert (group.error_code, group.group_state, group.protocol_data) == (ErrorCode.NONE, "Stable", "range")
    (member,) = group.members
    assert (member.client_id, member.client_host, member.member_assignment) == ("test", "/10.0.0.7", b"mine")
    expected = ErrorCode.GROUP_ID_NOT_FOUND if found.version >= 6 else ErrorCode.NONE
    assert (missing.error_code, missing.group_state) == (expected, "Dead")


def check_deleted(found: Scene, response: Any) -> None:
    told = {each.group_id: each.error_code for each in response.results}
    assert told == {GROUP: ErrorCode.NONE, "missing": ErrorCode.GROUP_ID_NOT_FOUND}
    assert found.stage.call(listing.ListGroupsRequest()).groups == ()


def check_forgotten(found: Scene, response: Any) -> None:
    assert (response.error_code, response.topics[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert found.stage.call(listing.ListGroupsRequest()).groups == ()


def check_consumer_joined(found: Scene, response: Any) -> None:
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 1)
    assert response.heartbeat_interval_ms == 5_000
    (topic,) = response.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (found.topic_id.bytes, (0, 1))


def check_consumer_described(found: Scene, response: Any) -> None:
    group, missing = response.groups
    assert (group.error_code, group.group_state, group.group_epoch) == (ErrorCode.NONE, "Stable", 1)
    (member,) = group.members
    assert (member.member_id, member.client_host) == ("member", "/10.0.0.7")
    assert member.assignment.topic_partitions[0].topic_name == TOPIC
    assert member.member_type == (1 if found.version >= 1 else -1)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


GROUP_PROBES: dict[ApiKey, Probe] = {
    ApiKey.OFFSET_COMMIT: Probe(commit, check_committed),
    ApiKey.OFFSET_FETCH: Probe(fetch, check_fetched),
    ApiKey.FIND_COORDINATOR: Probe(find, check_found),
    ApiKey.JOIN_GROUP: Probe(join, check_joined),
    ApiKey.SYNC_GROUP: Probe(sync, check_synced),
    ApiKey.HEARTBEAT: Probe(beat, check_fine),
    ApiKey.LEAVE_GROUP: Probe(leave, check_left),
    ApiKey.LIST_GROUPS: Probe(list_all, check_listed),
    ApiKey.DESCRIBE_GROUPS: Probe(describe_one, check_described),
    ApiKey.DELETE_GROUPS: Probe(delete, check_deleted),
    ApiKey.OFFSET_DELETE: Probe(forget, check_forgotten),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Probe(beat_consumer, check_consumer_joined),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Probe(describe_consumer, check_consumer_described),
}
