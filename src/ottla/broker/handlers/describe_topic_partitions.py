"""DescribeTopicPartitions, version 0: topics with their partitions, page by page.

Topics come in the order of their names, all of them when none is named. A page holds at most as many partitions as
the client asks for and 2,000; the cursor says where the next one begins. Authorised operations are not told: there
is no authorisation yet.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, InvalidTopicName, Refusal, TopicNotFound
from ottla.metadata.changes import Topic
from ottla.metadata.internal_topics import is_internal
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.protocol.schema import Message
from ottla.storage.layout import is_topic_name

PARTITIONS_MAX = 2_000


def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    known = services.catalog.image.topics
    names = sorted({topic.name for topic in request.topics} if request.topics else known)
    cursor = request.cursor
    first = 0
    if cursor is not None:
        if cursor.partition_index < 0:
            return _refuse_all(names, InvalidRequest("a page cannot begin at a partition below 0"))
        names = [name for name in names if name >= cursor.topic_name]
        # The topic may be gone since the last page; then the page begins with the next one.
        first = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    room = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    told: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if not room:
            return DescribeTopicPartitionsResponse(topics=told, next_cursor=Cursor(topic_name=name, partition_index=0))
        topic = known.get(name)
        if topic is None:
            told.append(_missing(name))
            continue
        page = range(len(topic.partitions))[first : first + room]
        told.append(_told(topic, page, services))
        room -= len(page)
        if first + len(page) < len(topic.partitions):
            cursor = Cursor(topic_name=name, partition_index=first + len(page))
            return DescribeTopicPartitionsResponse(topics=told, next_cursor=cursor)
        first = 0
    return DescribeTopicPartitionsResponse(topics=told)


def _told(topic: Topic, page: range, services: Services) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in page:
        partition = topic.partitions[index]
        is_online = services.partitions.offline_reason(topic.name, index) is None
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if is_online else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader if is_online else -1,
                leader_epoch=services.partitions.leader_epoch(topic, index),
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=() if is_online else partition.replicas,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name, topic_id=topic.topic_id.bytes, is_internal=is_internal(topic.name), partitions=partitions
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    error: Refusal = TopicNotFound(name) if is_topic_name(name) else InvalidTopicName(name)
    return DescribeTopicPartitionsResponseTopic(error_code=error.code, name=name)


def _refuse_all(names: list[str], error: Refusal) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=error.code, name=name) for name in names]
    )
