"""AlterPartitionReassignments (API 45): moves partitions to other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class ReassignablePartition(Message, frozen=True):
    """The brokers that shall hold one partition."""

    partition_index: Int32 = 0
    replicas: Sequence[Int32] | None = None


class ReassignableTopic(Message, frozen=True):
    """Partitions of one topic to move."""

    name: String = ""
    partitions: Sequence[ReassignablePartition] = ()


class AlterPartitionReassignmentsRequest(Message, frozen=True):
    """Where each partition shall be; null replicas call a move off."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_PARTITION_REASSIGNMENTS].versions

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, Since(1)] = True
    topics: Sequence[ReassignableTopic] = ()


class ReassignablePartitionResponse(Message, frozen=True):
    """Whether one partition's move was begun."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReassignableTopicResponse(Message, frozen=True):
    """Whether one topic's moves were begun."""

    name: String = ""
    partitions: Sequence[ReassignablePartitionResponse] = ()


class AlterPartitionReassignmentsResponse(Message, frozen=True):
    """Whether each move was begun."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_PARTITION_REASSIGNMENTS].versions

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, Since(1, ignorable=True)] = True
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: Sequence[ReassignableTopicResponse] = ()
