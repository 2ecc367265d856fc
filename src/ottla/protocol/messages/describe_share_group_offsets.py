"""DescribeShareGroupOffsets (API 90): tells from where share groups read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int16, Int32, Int64, Message, Since, String, Uuid
from ottla.protocol.versions import Versions


class DescribeShareGroupOffsetsRequestTopic(Message, frozen=True):
    """Partitions of one topic to tell about."""

    topic_name: String = ""
    partitions: Sequence[Int32] = ()


class DescribeShareGroupOffsetsRequestGroup(Message, frozen=True):
    """One group and its partitions; null means all of them."""

    group_id: String = ""
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = ()


class DescribeShareGroupOffsetsRequest(Message, frozen=True):
    """The groups and partitions to tell about."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS].versions

    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = ()


class DescribeShareGroupOffsetsResponsePartition(Message, frozen=True):
    """From where one partition is read."""

    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, Since(1, ignorable=True)] = -1
    error_code: Int16 = 0
    error_message: String | None = None


class DescribeShareGroupOffsetsResponseTopic(Message, frozen=True):
    """From where one topic's partitions are read."""

    topic_name: String = ""
    topic_id: Uuid = NO_UUID
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = ()


class DescribeShareGroupOffsetsResponseGroup(Message, frozen=True):
    """From where one group reads."""

    group_id: String = ""
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = ()
    error_code: Int16 = 0
    error_message: String | None = None


class DescribeShareGroupOffsetsResponse(Message, frozen=True):
    """The start offset of each group in each partition."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS].versions

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = ()
