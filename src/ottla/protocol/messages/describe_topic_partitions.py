"""DescribeTopicPartitions (API 75): describes topics page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Bool, Int16, Int32, Message, String, Uuid
from ottla.protocol.versions import Versions


class TopicRequest(Message, frozen=True):
    """A topic to describe."""

    name: String = ""


class Cursor(Message, frozen=True):
    """Where a page begins."""

    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message, frozen=True):
    """The topics, and where the last page ended."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_TOPIC_PARTITIONS].versions

    topics: Sequence[TopicRequest] = ()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Message, frozen=True):
    """Who leads one partition and who could."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32] = ()


class DescribeTopicPartitionsResponseTopic(Message, frozen=True):
    """One topic, or why it cannot be described."""

    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Uuid = NO_UUID
    is_internal: Bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = ()
    topic_authorized_operations: Int32 = -(2**31)


class DescribeTopicPartitionsResponse(Message, frozen=True):
    """One page of partitions, and where the next one begins."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_TOPIC_PARTITIONS].versions

    throttle_time_ms: Int32 = 0
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = ()
    next_cursor: Cursor | None = None
