"""A group's stored positions: commit, fetch, delete.

One request and its answer each, for members, for consumers that chose their partitions themselves, and for tools.
When to try again is `coordinator`'s business, and what a member does about a refusal its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.client.coordinator import Coordinator
from ottla.client.errors_by_code import error_for
from ottla.client.subscriptions import by_topic
from ottla.client.values import NO_EPOCH, NO_OFFSET, Committed, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from ottla.protocol.schema import NO_UUID

NAMES_LAST = 9
"""The last version of OffsetCommit and OffsetFetch that names topics; from the next on they go by id."""
STATIC_SINCE = 7
"""The first version of OffsetCommit that knows static members."""
SEVERAL_GROUPS_SINCE = 8
ALL_TOPICS_SINCE = 2
STABLE_SINCE = 7


class Identity(NamedTuple):
    """Who commits: a member of a generation, or nobody in particular."""

    member_id: str = ""
    epoch: int = -1
    """The generation of a classic group, or the member's epoch in a consumer group."""
    instance_id: str | None = None


NOBODY = Identity()

Ids = Mapping[str, bytes]
"""The ids of topics, as far as they are known."""


async def store_offsets(
    coordinator: Coordinator, offsets: Mapping[TopicPartition, Committed], identity: Identity, *, ids: Ids
) -> None:
    """Commit; raises the refusal of the first partition that was refused."""
    names = {key.topic for key in offsets}
    has_ids = all(ids.get(name, NO_UUID) != NO_UUID for name in names)
    is_static = identity.instance_id is not None
    if is_static and await coordinator.version(ApiKey.OFFSET_COMMIT) < STATIC_SINCE:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, about=f"group {coordinator.group!r}: group_instance_id")
    request = OffsetCommitRequest(
        group_id=coordinator.group,
        generation_id_or_member_epoch=identity.epoch,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids.get(topic, NO_UUID),
                partitions=[_stored(number, offsets[TopicPartition(topic, number)]) for number in numbers],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )
    response = await coordinator.ask(
        ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, version_max=None if has_ids else NAMES_LAST
    )
    names_by_id = {topic_id: name for name, topic_id in ids.items()}
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code:
                name = topic.name or names_by_id.get(topic.topic_id, "?")
                about = f"commit of {name}-{answer.partition_index} in group {coordinator.group!r}"
                raise error_for(answer.error_code, about=about)


def _stored(number: int, committed: Committed) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


async def fetch_offsets(
    coordinator: Coordinator, wanted: Collection[TopicPartition] | None, *, stable_only: bool
) -> dict[TopicPartition, Committed]:
    """What is committed of these partitions (None: of all); those without a commit are left out.

    With `stable_only`, positions that an open transaction may still change are refused (UNSTABLE_OFFSET_COMMIT).
    """
    version = min(await coordinator.version(ApiKey.OFFSET_FETCH), NAMES_LAST)
    if wanted is None and version < ALL_TOPICS_SINCE:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, about=f"all offsets of group {coordinator.group!r}")
    stable_only = stable_only and version >= STABLE_SINCE
    topics = None if wanted is None else by_topic(wanted)
    if version >= SEVERAL_GROUPS_SINCE:
        several = None
        if topics is not None:
            several = [OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in topics.items()]
        group = OffsetFetchRequestGroup(group_id=coordinator.group, topics=several)
        request = OffsetFetchRequest(groups=[group], require_stable=stable_only)
    else:
        single = None
        if topics is not None:
            single = [OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in topics.items()]
        request = OffsetFetchRequest(group_id=coordinator.group, topics=single, require_stable=stable_only)
    response = await coordinator.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, version_max=NAMES_LAST)
    about = f"offsets of group {coordinator.group!r}"
    code = response.groups[0].error_code if response.groups else response.error_code
    if code:
        raise error_for(code, about=about)
    found_in = response.groups[0].topics if response.groups else response.topics
    found: dict[TopicPartition, Committed] = {}
    answered: set[TopicPartition] = set()
    for topic in found_in:
        for answer in topic.partitions:
            key = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                raise error_for(answer.error_code, about=f"{about}, {key.topic}-{key.partition}")
            answered.add(key)
            if answer.committed_offset > NO_OFFSET:
                found[key] = _committed(answer)
    if wanted is not None and not answered.issuperset(wanted):
        raise ProtocolError(f"{about}: no answer for {sorted(set(wanted) - answered)}")
    return found


def _committed(answer: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> Committed:
    epoch = answer.committed_leader_epoch
    return Committed(answer.committed_offset, answer.metadata or "", epoch if epoch >= 0 else NO_EPOCH)


async def forget_offsets(
    coordinator: Coordinator, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Delete commits; returns the partitions that were refused."""
    request = OffsetDeleteRequest(
        group_id=coordinator.group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )
    response = await coordinator.ask(ApiKey.OFFSET_DELETE, request, OffsetDeleteResponse)
    if response.error_code:
        raise error_for(response.error_code, about=f"group {coordinator.group!r}")
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code:
                refused[TopicPartition(topic.name, answer.partition_index)] = ErrorCode(answer.error_code)
    return refused
