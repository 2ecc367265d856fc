"""ListOffsets (API 2): looks up offsets by timestamp, or the ends of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int8, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class ListOffsetsPartition(Message, frozen=True):
    """The timestamp to look up in one partition."""

    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(4, ignorable=True)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Message, frozen=True):
    """The partitions of one topic to look up."""

    name: String = ""
    partitions: Sequence[ListOffsetsPartition] = ()


class ListOffsetsRequest(Message, frozen=True):
    """A timestamp, or a special one, for each partition."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LIST_OFFSETS].versions

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: Sequence[ListOffsetsTopic] = ()
    timeout_ms: Annotated[Int32, Since(10, ignorable=True)] = 0


class ListOffsetsPartitionResponse(Message, frozen=True):
    """The offset found in one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResponse(Message, frozen=True):
    """The offsets found in one topic."""

    name: String = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(Message, frozen=True):
    """The offset that each timestamp stands for."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LIST_OFFSETS].versions

    throttle_time_ms: Annotated[Int32, Since(2, ignorable=True)] = 0
    topics: Sequence[ListOffsetsTopicResponse] = ()
