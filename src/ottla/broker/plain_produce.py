"""Batches that need nothing but to be appended: a shorter way for what busy producers send most.

The rules are those of the Produce handler. Whatever they would look at twice is left to it.
"""

from __future__ import annotations

from ottla.errors import Refusal
from ottla.partitions.hosted import HostedPartitions
from ottla.partitions.partition import Partition
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.records.batch import TimestampType, peek
from ottla.records.plain import PLAIN_ATTRIBUTES


def plain_partitions(request: ProduceRequest, partitions: HostedPartitions) -> list[Partition] | None:
    """Those of a request for one topic that waits for no coordinator and gets an answer, in its order."""
    topics = request.topic_data
    if not request.acks or request.transactional_id is not None or len(topics) != 1:
        return None
    name, topic_id, found = topics[0].name, topics[0].topic_id, []
    for data in topics[0].partition_data:
        try:
            found.append(partitions.by_name(name, data.index) if name else partitions.by_id(topic_id, data.index))
        except Refusal:
            return None
    return found


def is_refused(response: ProduceResponse) -> bool:
    """Whether any batch was."""
    return any(outcome.error_code for topic in response.responses for outcome in topic.partition_responses)


def is_plain(request: ProduceRequest, partition: Partition) -> bool:
    """Whether a request of that kind, which has been served, can be appended with others."""
    records, config = request.topic_data[0].partition_data[0].records, partition.config
    return (
        records is not None
        and not peek(records).attributes & ~PLAIN_ATTRIBUTES
        and config.timestamp_type is TimestampType.CREATE_TIME
        and not config.log.compact
    )
