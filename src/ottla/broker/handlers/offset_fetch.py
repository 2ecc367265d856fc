"""OffsetFetch, versions 1-10: how far groups have read; one group up to version 7, several since 8.

Null topics mean all (since 2). A partition without an offset is answered with -1, a group that does not exist as one
that has committed nothing. Member ids and epochs (since 9) are checked where the group is a consumer group, topic ids
stand in the place of names since 10. A group that is named twice in a request is answered once, and refused where it is
named again. Since 7 a client may ask for stable offsets: one that an open transaction may still change is then refused
with UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from ottla.broker.caller import Caller
from ottla.broker.groups import GroupDecision
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.groups.shard import GroupShard
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, Refusal
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.schema import Message

SEVERAL_GROUPS_VERSION_MIN = 8
GROUP_ERROR_VERSION_MIN = 2
"""Before, an error has its place with each partition only."""
NO_OFFSET = -1


def offset_fetch(
    request: OffsetFetchRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    if version >= SEVERAL_GROUPS_VERSION_MIN:
        return services.groups.submit_each(
            _once(request, version),
            lambda place, error: _refused(request.groups[place], version, error),
            lambda parts: OffsetFetchResponse(groups=[cast(OffsetFetchResponseGroup, part) for part in parts]),
        )
    group = _only_group(request)
    return services.groups.submit_each(
        [(group.group_id, _asking(group, version, require_stable=request.require_stable))],
        lambda place, error: _refused(group, version, error),
        lambda parts: _for_one(cast(OffsetFetchResponseGroup, parts[0])),
    )


def _once(request: OffsetFetchRequest, version: int) -> list[tuple[str, GroupDecision]]:
    """A group is answered once, and refused where it is named again.

    Kafka answers it as often as it is named, so that a few bytes may ask for gigabytes.
    """
    seen: set[str] = set()
    decisions: list[tuple[str, GroupDecision]] = []
    for group in request.groups:
        asking = _asking(group, version, require_stable=request.require_stable)
        decisions.append((group.group_id, _repeated if group.group_id in seen else asking))
        seen.add(group.group_id)
    return decisions


def _repeated(shard: GroupShard, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
    raise InvalidRequest("a request asks for a group once, with all the partitions that it wants to know of")


def _asking(group: OffsetFetchRequestGroup, version: int, *, require_stable: bool) -> GroupDecision:
    return lambda shard, ticket, outcome, now_ms: shard.fetch_offsets(
        group, version, ticket, outcome, now_ms, require_stable=require_stable
    )


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """A request for one group in the words of one for several."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _for_one(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(name=topic.name, partitions=list(map(_partition, topic.partitions)))
            for topic in group.topics
        ],
        error_code=group.error_code,
    )


def _partition(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def _refused(group: OffsetFetchRequestGroup, version: int, error: Refusal) -> OffsetFetchResponseGroup:
    if version >= GROUP_ERROR_VERSION_MIN:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    refuse = partial(OffsetFetchResponsePartitions, committed_offset=NO_OFFSET, error_code=error.code)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=ErrorCode.NONE,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name, partitions=[refuse(partition_index=index) for index in topic.partition_indexes]
            )
            for topic in group.topics or ()
        ],
    )
