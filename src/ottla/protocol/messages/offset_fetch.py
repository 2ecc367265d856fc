"""OffsetFetch (API 9): a group asks how far it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Bool, Int16, Int32, Int64, Message, Since, String, Uuid
from ottla.protocol.versions import Versions


class OffsetFetchRequestTopic(Message, frozen=True):
    """Partitions of one topic, in requests for one group."""

    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class OffsetFetchRequestTopics(Message, frozen=True):
    """Partitions of one topic, in requests for several groups."""

    name: Annotated[String, Since(last=9, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(10, ignorable=True)] = NO_UUID
    partition_indexes: Sequence[Int32] = ()


class OffsetFetchRequestGroup(Message, frozen=True):
    """One group and the partitions that are wanted of it."""

    group_id: String = ""
    member_id: Annotated[String | None, Since(9, ignorable=True)] = None
    member_epoch: Annotated[Int32, Since(9, ignorable=True)] = -1
    topics: Sequence[OffsetFetchRequestTopics] | None = ()


class OffsetFetchRequest(Message, frozen=True):
    """The partitions whose offsets are wanted, for one group or (since 8) for several."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.OFFSET_FETCH].versions

    group_id: Annotated[String, Since(last=7)] = ""
    topics: Annotated[Sequence[OffsetFetchRequestTopic] | None, Since(last=7, nullable_first=2)] = ()
    groups: Annotated[Sequence[OffsetFetchRequestGroup], Since(8)] = ()
    require_stable: Annotated[Bool, Since(7)] = False


class OffsetFetchResponsePartition(Message, frozen=True):
    """One partition's stored offset, in answers for one group."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(5, ignorable=True)] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message, frozen=True):
    """One topic's stored offsets, in answers for one group."""

    name: String = ""
    partitions: Sequence[OffsetFetchResponsePartition] = ()


class OffsetFetchResponsePartitions(Message, frozen=True):
    """One partition's stored offset, in answers for several groups."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Message, frozen=True):
    """One topic's stored offsets, in answers for several groups."""

    name: Annotated[String, Since(last=9, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(10, ignorable=True)] = NO_UUID
    partitions: Sequence[OffsetFetchResponsePartitions] = ()


class OffsetFetchResponseGroup(Message, frozen=True):
    """The stored offsets of one group."""

    group_id: String = ""
    topics: Sequence[OffsetFetchResponseTopics] = ()
    error_code: Int16 = 0


class OffsetFetchResponse(Message, frozen=True):
    """The offsets that were stored."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.OFFSET_FETCH].versions

    throttle_time_ms: Annotated[Int32, Since(3, ignorable=True)] = 0
    topics: Annotated[Sequence[OffsetFetchResponseTopic], Since(last=7)] = ()
    error_code: Annotated[Int16, Since(2, last=7, ignorable=True)] = 0
    groups: Annotated[Sequence[OffsetFetchResponseGroup], Since(8)] = ()
