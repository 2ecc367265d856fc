"""OffsetDelete (API 47): forgets how far a group has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class OffsetDeleteRequestPartition(Message, frozen=True):
    """One partition to forget."""

    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Message, frozen=True):
    """Partitions of one topic to forget."""

    name: String = ""
    partitions: Sequence[OffsetDeleteRequestPartition] = ()


class OffsetDeleteRequest(Message, frozen=True):
    """The group, and the partitions to forget."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.OFFSET_DELETE].versions

    group_id: String = ""
    topics: Sequence[OffsetDeleteRequestTopic] = ()


class OffsetDeleteResponsePartition(Message, frozen=True):
    """Whether one partition's offset is gone."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message, frozen=True):
    """Whether one topic's offsets are gone."""

    name: String = ""
    partitions: Sequence[OffsetDeleteResponsePartition] = ()


class OffsetDeleteResponse(Message, frozen=True):
    """Whether each offset is gone."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.OFFSET_DELETE].versions

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetDeleteResponseTopic] = ()
