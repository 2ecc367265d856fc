"""OffsetCommit and OffsetDelete: who may store or forget a group's offsets, and which.

A commit comes from a member of the present generation, or from outside while the group has no members: an admin,
or a consumer that assigns itself. It is refused as a whole for the group's or the member's sake, and partition by
partition for the topic's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.coordinators.groups.classic_member import ApiVersion
from ottla.coordinators.groups.groups import Group, Groups
from ottla.coordinators.groups.offsets import Offsets, tombstone_bytes
from ottla.coordinators.groups.offsets_limits import check_offset, check_sizes, offset_bytes
from ottla.coordinators.groups.offsets_pending import PendingOffsets
from ottla.coordinators.groups.records import NEVER, OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.error_codes import ErrorCode
from ottla.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    PartitionNotFound,
    Refusal,
    StaleMemberEpoch,
    UnknownTopicId,
    UnsupportedVersion,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.schema import NO_UUID

MEMBER_EPOCH_VERSION_MIN = 9
"""From here on the generation may be a consumer group's epoch, and clients know the errors that belong to it."""
TOPIC_ID_VERSION_MIN = 10
CONSUMER = "consumer"
EXPIRE_MS_MAX = 2**63 - 1
"""The last moment that a record can tell."""


class OffsetCommits:
    """Decides what is stored."""

    def __init__(
        self,
        offsets: Offsets,
        pending: PendingOffsets,
        groups: Groups,
        settings: GroupSettings,
        topics: Callable[[], TopicsView],
    ) -> None:
        self._offsets = offsets
        self._pending = pending
        self._groups = groups
        self._settings = settings
        self._topics = topics

    # --- OffsetCommit ----------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, version: ApiVersion, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        """Store what may be stored, and say so once it is durable."""
        group = self._may_commit(request, version)
        topics = self._topics()
        expire_ms = NEVER
        if request.retention_time_ms >= 0:
            expire_ms = min(now_ms + request.retention_time_ms, EXPIRE_MS_MAX)
        # A partition that is named twice has the offset that comes last.
        wanted: dict[OffsetCommitKey, OffsetCommitValue] = {}
        answers = []
        for topic in request.topics:
            name, topic_id = _resolved(topic, topics, version)
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.NONE
                try:
                    if not name:
                        raise UnknownTopicId(topic_id.hex())
                    metadata = partition.committed_metadata
                    check_offset(name, index, metadata, topics=topics, settings=self._settings)
                except Refusal as refusal:
                    code = refusal.code
                else:
                    wanted[OffsetCommitKey(group=request.group_id, topic=name, partition=index)] = OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.committed_metadata or "",
                        commit_timestamp=now_ms,
                        expire_timestamp=expire_ms,
                        topic_id=topic_id,
                    )
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
            answers.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        self._check_size(request.group_id, wanted)
        for key, value in wanted.items():
            outcome.write(key, value)
        if group is not None:
            group.note_commit(request.member_id, outcome, now_ms)
        outcome.reply(ticket, OffsetCommitResponse(topics=answers))

    def _check_size(self, group_id: str, wanted: Mapping[OffsetCommitKey, OffsetCommitValue]) -> None:
        commit_bytes = 0
        group_bytes = self._offsets.tombstones_bytes(group_id) + self._pending.deleting_bytes(group_id)
        for key, value in wanted.items():
            commit_bytes += offset_bytes(group_id, key.topic, value.metadata)
            if self._offsets.get(group_id, key.topic, key.partition) is None:
                group_bytes += tombstone_bytes(group_id, key.topic)
        check_sizes(commit_bytes=commit_bytes, group_bytes=group_bytes)

    def _may_commit(self, request: OffsetCommitRequest, version: ApiVersion) -> Group | None:
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation >= 0:
                what = f"there is no group {request.group_id!r}, so it has no generation {generation}"
                raise GroupIdNotFound(what) if version >= MEMBER_EPOCH_VERSION_MIN else IllegalGeneration(what)
            return None
        try:
            group.check_commit(request.member_id, request.group_instance_id, generation)
        except StaleMemberEpoch as error:
            if version < MEMBER_EPOCH_VERSION_MIN:
                # A client of that age would take the code for something else.
                raise UnsupportedVersion(f"commit with version {MEMBER_EPOCH_VERSION_MIN} or later: {error}") from error
            raise
        return group

    # --- OffsetDelete ------------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Forget offsets of topics that the group does not read."""
        group = self._groups.get(request.group_id)
        if group is None and not (
            self._offsets.has_group(request.group_id) or self._pending.has_group(request.group_id)
        ):
            raise GroupIdNotFound(f"there is no group {request.group_id!r}")
        has_members = group is not None and not group.is_empty
        if group is not None and has_members and group.protocol_type != CONSUMER:
            raise NonEmptyGroup(f"group {request.group_id!r} has members, and does not tell which topics they use")
        subscribed = group.subscribed_topics() if group is not None and has_members else frozenset()
        answers = []
        for topic in request.topics:
            is_subscribed = subscribed is None or topic.name in subscribed
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.NONE
                try:
                    self._delete(request.group_id, topic.name, index, outcome, is_subscribed=is_subscribed)
                except Refusal as refusal:
                    code = refusal.code
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            answers.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        outcome.reply(ticket, OffsetDeleteResponse(topics=answers))

    def _delete(self, group_id: str, topic: str, partition: int, outcome: Outcome, *, is_subscribed: bool) -> None:
        if is_subscribed:
            raise GroupSubscribedToTopic(f"members of group {group_id!r} read topic {topic!r}")
        is_pending = self._pending.is_any_at(group_id, topic, partition)
        if is_pending:
            # Otherwise the end of a transaction would bring back what somebody wants to be gone.
            self._pending.delete_at(group_id, topic, partition, outcome)
        if self._offsets.get(group_id, topic, partition) is not None:
            outcome.write(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
        elif not is_pending and not 0 <= partition < self._topics().partition_count(topic):
            raise PartitionNotFound(topic, partition)


def _resolved(topic: OffsetCommitRequestTopic, topics: TopicsView, version: ApiVersion) -> tuple[str, bytes]:
    """The topic's name and id, whichever the client has sent; an empty name if no topic has the id."""
    if version >= TOPIC_ID_VERSION_MIN:
        return topics.topic_name(topic.topic_id) or "", topic.topic_id
    return topic.name, topics.topic_id(topic.name) or NO_UUID
