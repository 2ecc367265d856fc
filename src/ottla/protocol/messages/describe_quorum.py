"""DescribeQuorum (API 55): tells how the controllers' quorum is doing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int16, Int32, Int64, Message, Since, String, Uint16, Uuid
from ottla.protocol.versions import Versions


class RequestPartitionData(Message, frozen=True):
    """A partition to tell about."""

    partition_index: Int32 = 0


class RequestTopicData(Message, frozen=True):
    """Partitions of one topic to tell about."""

    topic_name: String = ""
    partitions: Sequence[RequestPartitionData] = ()


class DescribeQuorumRequest(Message, frozen=True):
    """The partitions to tell about; there is only the metadata log."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_QUORUM].versions

    topics: Sequence[RequestTopicData] = ()


class ReplicaState(Message, frozen=True):
    """How far one replica has got."""

    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, Since(2)] = NO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, Since(1, ignorable=True)] = -1
    last_caught_up_timestamp: Annotated[Int64, Since(1, ignorable=True)] = -1


class ResponsePartitionData(Message, frozen=True):
    """The quorum of one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(2, ignorable=True)] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: Sequence[ReplicaState] = ()
    observers: Sequence[ReplicaState] = ()


class ResponseTopicData(Message, frozen=True):
    """The quorums of one topic."""

    topic_name: String = ""
    partitions: Sequence[ResponsePartitionData] = ()


class Listener(Message, frozen=True):
    """An address of a voter."""

    name: String = ""
    host: String = ""
    port: Uint16 = 0


class Node(Message, frozen=True):
    """A voter and its addresses."""

    node_id: Int32 = 0
    listeners: Sequence[Listener] = ()


class DescribeQuorumResponse(Message, frozen=True):
    """Leader, voters and observers, and how far each has got."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_QUORUM].versions

    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(2, ignorable=True)] = ""
    topics: Sequence[ResponseTopicData] = ()
    nodes: Annotated[Sequence[Node], Since(2)] = ()
