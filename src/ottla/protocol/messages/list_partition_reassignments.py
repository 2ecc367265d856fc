"""ListPartitionReassignments (API 46): lists the partitions that are being moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class ListPartitionReassignmentsTopics(Message, frozen=True):
    """Partitions of one topic to tell about."""

    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class ListPartitionReassignmentsRequest(Message, frozen=True):
    """The partitions to tell about; null means all of them."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LIST_PARTITION_REASSIGNMENTS].versions

    timeout_ms: Int32 = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Message, frozen=True):
    """One partition that is being moved."""

    partition_index: Int32 = 0
    replicas: Sequence[Int32] = ()
    adding_replicas: Sequence[Int32] = ()
    removing_replicas: Sequence[Int32] = ()


class OngoingTopicReassignment(Message, frozen=True):
    """The moves under way in one topic."""

    name: String = ""
    partitions: Sequence[OngoingPartitionReassignment] = ()


class ListPartitionReassignmentsResponse(Message, frozen=True):
    """The moves under way."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LIST_PARTITION_REASSIGNMENTS].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: Sequence[OngoingTopicReassignment] = ()
