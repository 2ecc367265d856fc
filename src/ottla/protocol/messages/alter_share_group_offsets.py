"""AlterShareGroupOffsets (API 91): sets from where a share group reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int16, Int32, Int64, Message, String, Uuid
from ottla.protocol.versions import Versions


class AlterShareGroupOffsetsRequestPartition(Message, frozen=True):
    """The offset to start one partition from."""

    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsRequestTopic(Message, frozen=True):
    """The offsets to start one topic's partitions from."""

    topic_name: String = ""
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = ()


class AlterShareGroupOffsetsRequest(Message, frozen=True):
    """The group and the offsets to start from."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_SHARE_GROUP_OFFSETS].versions

    group_id: String = ""
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = ()


class AlterShareGroupOffsetsResponsePartition(Message, frozen=True):
    """Whether one partition's offset was set."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class AlterShareGroupOffsetsResponseTopic(Message, frozen=True):
    """Whether one topic's offsets were set."""

    topic_name: String = ""
    topic_id: Uuid = NO_UUID
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = ()


class AlterShareGroupOffsetsResponse(Message, frozen=True):
    """Whether each offset was set."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_SHARE_GROUP_OFFSETS].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = ()
