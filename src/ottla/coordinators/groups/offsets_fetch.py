"""OffsetFetch: how far a group has read.

One group at a time; a request for several is taken apart before it comes here. A partition without an offset is
answered with -1, and so is one whose topic has been deleted and made again: an offset of the old one would make a
consumer of the new one skip records. However often a partition is named, it is answered once: its note may be a
thousand times as long as its number.

Who asks for stable offsets is refused those of partitions for which a transaction that has not ended holds another one;
clients ask again. Kafka tells nothing of partitions that have only such an offset when it is asked for all; here they
are refused too, because whoever asked would begin them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ottla.coordinators.groups.classic_member import ApiVersion
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.offsets import Offsets
from ottla.coordinators.groups.offsets_pending import PendingOffsets, Producers
from ottla.coordinators.groups.records import OffsetCommitValue
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.schema import NO_UUID

TOPIC_ID_VERSION_MIN = 10
NO_OFFSET = -1

Committed = Mapping[str, Mapping[int, OffsetCommitValue]]
Unstable = Mapping[str, Mapping[int, Producers]]
_NONE_UNSTABLE: Unstable = {}


class OffsetFetches:
    """Looks offsets up. Nothing is decided, but for whether a member may ask."""

    def __init__(
        self, offsets: Offsets, pending: PendingOffsets, groups: Groups, topics: Callable[[], TopicsView]
    ) -> None:
        self._offsets = offsets
        self._pending = pending
        self._groups = groups
        self._topics = topics

    def fetch(
        self,
        request: OffsetFetchRequestGroup,
        version: ApiVersion,
        ticket: Ticket,
        outcome: Outcome,
        *,
        require_stable: bool,
    ) -> None:
        """Answer with an OffsetFetchResponseGroup."""
        group = self._groups.get(request.group_id)
        if group is not None:
            group.check_fetch(request.member_id, request.member_epoch)
        committed = self._offsets.of_group(request.group_id)
        unstable = self._pending.of_group(request.group_id) if require_stable else _NONE_UNSTABLE
        topics = self._topics()
        if request.topics is None:
            answers = _all(committed, unstable, topics, version)
        else:
            answers = [_topic(asked, committed, unstable, topics, version) for asked in _once(request.topics)]
        outcome.reply(ticket, OffsetFetchResponseGroup(group_id=request.group_id, topics=answers))


def _once(topics: Sequence[OffsetFetchRequestTopics]) -> list[OffsetFetchRequestTopics]:
    """What is asked for, with each partition in it once, where it comes first."""
    indexes: dict[tuple[str, bytes], dict[int, None]] = {}
    for topic in topics:
        indexes.setdefault((topic.name, topic.topic_id), {}).update(dict.fromkeys(topic.partition_indexes))
    return [
        OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=tuple(found))
        for (name, topic_id), found in indexes.items()
    ]


def _all(
    committed: Committed, unstable: Unstable, topics: TopicsView, version: ApiVersion
) -> list[OffsetFetchResponseTopics]:
    answers = []
    for name in dict.fromkeys((*committed, *unstable)):
        topic_id = topics.topic_id(name)
        if topic_id is None and version >= TOPIC_ID_VERSION_MIN:
            # A topic that has just been deleted has no id by which it could be told.
            continue
        values, held = committed.get(name, {}), unstable.get(name, {})
        found = [
            _unstable(index) if _is_held(index, held, topic_id) else _partition(index, values[index])
            for index in sorted({*values, *held})
            if _is_held(index, held, topic_id) or (index in values and _is_current(values[index], topic_id))
        ]
        if found:
            answers.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id or NO_UUID, partitions=found))
    return answers


def _topic(
    asked: OffsetFetchRequestTopics,
    committed: Committed,
    unstable: Unstable,
    topics: TopicsView,
    version: ApiVersion,
) -> OffsetFetchResponseTopics:
    if version >= TOPIC_ID_VERSION_MIN:
        name = topics.topic_name(asked.topic_id)
        if name is None:
            return OffsetFetchResponseTopics(topic_id=asked.topic_id, partitions=_unknown(asked.partition_indexes))
        topic_id: bytes | None = asked.topic_id
    else:
        name, topic_id = asked.name, topics.topic_id(asked.name)
    values, held = committed.get(name, {}), unstable.get(name, {})
    answers = []
    for index in asked.partition_indexes:
        value = values.get(index)
        if _is_held(index, held, topic_id):
            answers.append(_unstable(index))
        else:
            answers.append(_partition(index, value if value is not None and _is_current(value, topic_id) else None))
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id or NO_UUID, partitions=answers)


def _partition(index: int, value: OffsetCommitValue | None) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )


def _unknown(indexes: Sequence[int]) -> list[OffsetFetchResponsePartitions]:
    return [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID
        )
        for index in indexes
    ]


def _is_current(value: OffsetCommitValue, topic_id: bytes | None) -> bool:
    """Whether the offset belongs to the topic that now has the name; old records do not tell."""
    return topic_id is not None and value.topic_id in (topic_id, NO_UUID)


def _is_held(index: int, held: Mapping[int, Producers], topic_id: bytes | None) -> bool:
    """Whether a transaction may yet commit an offset of this partition: of a topic that is gone it cannot."""
    return any(pending.topic_id == topic_id for pending in held.get(index, {}).values())
