"""OffsetCommit, versions 2-10: a group stores how far it has read; answered when that is durable.

Versions 2 to 4 may bring a retention of their own; leader epochs come from 6 on, topic ids in the place of names from
10 on. Each partition is answered for itself, and all alike where the group or the member is refused.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.groups.groups import check_group_id
from ottla.errors import Refusal
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.schema import Message


def offset_commit(
    request: OffsetCommitRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    def refused(error: Refusal) -> OffsetCommitResponse:
        return _refused(request, error)

    try:
        check_group_id(request.group_id)
    except Refusal as error:
        return refused(error)
    return services.groups.submit(
        request.group_id,
        lambda shard, ticket, outcome, now_ms: shard.commit(request, version, ticket, outcome, now_ms),
        refused,
    )


def _refused(request: OffsetCommitRequest, error: Refusal) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
