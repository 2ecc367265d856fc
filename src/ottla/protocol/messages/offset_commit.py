"""OffsetCommit (API 8): a group stores how far it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int16, Int32, Int64, Message, Since, String, Uuid
from ottla.protocol.versions import Versions


class OffsetCommitRequestPartition(Message, frozen=True):
    """How far one partition has been read."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(6, ignorable=True)] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Message, frozen=True):
    """How far one topic's partitions have been read."""

    name: Annotated[String, Since(last=9, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(10, ignorable=True)] = NO_UUID
    partitions: Sequence[OffsetCommitRequestPartition] = ()


class OffsetCommitRequest(Message, frozen=True):
    """The offsets that a member of a group has finished with."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.OFFSET_COMMIT].versions

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(7)] = None
    retention_time_ms: Annotated[Int64, Since(last=4, ignorable=True)] = -1
    topics: Sequence[OffsetCommitRequestTopic] = ()


class OffsetCommitResponsePartition(Message, frozen=True):
    """Whether one partition's offset was stored."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message, frozen=True):
    """Whether one topic's offsets were stored."""

    name: Annotated[String, Since(last=9, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(10, ignorable=True)] = NO_UUID
    partitions: Sequence[OffsetCommitResponsePartition] = ()


class OffsetCommitResponse(Message, frozen=True):
    """Whether each offset was stored."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.OFFSET_COMMIT].versions

    throttle_time_ms: Annotated[Int32, Since(3, ignorable=True)] = 0
    topics: Sequence[OffsetCommitResponseTopic] = ()
