"""DescribeProducers (API 61): lists the producers that write to partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Int64, Message, String
from ottla.protocol.versions import Versions


class TopicRequest(Message, frozen=True):
    """Partitions of one topic to tell about."""

    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class DescribeProducersRequest(Message, frozen=True):
    """The partitions to tell about."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_PRODUCERS].versions

    topics: Sequence[TopicRequest] = ()


class ProducerState(Message, frozen=True):
    """One producer as the partition remembers it."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Message, frozen=True):
    """The producers of one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: Sequence[ProducerState] = ()


class TopicResponse(Message, frozen=True):
    """The producers of one topic's partitions."""

    name: String = ""
    partitions: Sequence[PartitionResponse] = ()


class DescribeProducersResponse(Message, frozen=True):
    """The producers that each partition remembers."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_PRODUCERS].versions

    throttle_time_ms: Int32 = 0
    topics: Sequence[TopicResponse] = ()
