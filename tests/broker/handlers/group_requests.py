"""Requests about groups, and what their answers come to, in as few words as tests want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.error_codes import ErrorCode
from ottla.protocol import codec
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.stage import Stage

GROUP = "group"
JOIN_DELAY_MS = 3_000
SESSION_MS = 10_000


def commit_request(
    offsets: dict[tuple[str, int], int],
    *,
    group: str = GROUP,
    member_id: str = "",
    generation: int = -1,
    metadata: str | None = "",
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
    )


def commit(stage: Stage, offsets: dict[tuple[str, int], int], version: int = 9, **rest: Any) -> list[ErrorCode]:
    """Commit, and give the code of each partition."""
    return codes(stage.call(commit_request(offsets, **rest), version))


def codes(response: Any) -> list[ErrorCode]:
    return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]


def fetch_request(
    partitions: Sequence[tuple[str, int]] | None, *, group: str = GROUP, member_id: str | None = None, epoch: int = -1
) -> OffsetFetchRequest:
    topics = None
    if partitions is not None:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index]) for topic, index in partitions]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=topics)]
    )


def fetched(
    stage: Stage, partitions: Sequence[tuple[str, int]] | None = None, *, group: str = GROUP
) -> dict[tuple[str, int], int]:
    """The offsets of a group, all where no partitions are named."""
    (answer,) = stage.call(fetch_request(partitions, group=group), 9).groups
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }


def join_request(
    *topics: str, group: str = GROUP, member_id: str = "", protocol_type: str = "consumer"
) -> JoinGroupRequest:
    metadata = b"\x00\x00" + codec.encode_bytes(ConsumerProtocolSubscription(topics=topics), 0)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join(stage: Stage, *topics: str, group: str = GROUP, protocol_type: str = "consumer") -> str:
    """The only member of a stable group, in its first generation."""
    sent = stage.send(join_request(*topics, group=group, protocol_type=protocol_type), 3)
    stage.scheduler.advance(JOIN_DELAY_MS)
    response = sent.response
    assert response.error_code == ErrorCode.NONE
    request = SyncGroupRequest(
        group_id=group,
        generation_id=response.generation_id,
        member_id=response.member_id,
        protocol_type=protocol_type,
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=response.member_id, assignment=b"mine")],
    )
    assert stage.call(request).error_code == ErrorCode.NONE
    return str(response.member_id)
