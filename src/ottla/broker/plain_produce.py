"""Batches that need nothing but to be appended: a shorter way for what busy producers send most.

The rules are those of the Produce handler. Whatever they would look at twice is left to it.
"""

from __future__ import annotations

from ottla.errors import Refusal
from ottla.partitions.hosted import HostedPartitions
from ottla.partitions.partition import Partition
from ottla.partitions.watermarks import AcksAll
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.wire import Buffer
from ottla.records.batch import TimestampType, peek
from ottla.records.plain import PLAIN_ATTRIBUTES

ACKS_ALL = -1


def plain_partitions(request: ProduceRequest, partitions: HostedPartitions) -> list[Partition] | None:
    """Those of a request for one topic that waits for no disk and no coordinator, in its order."""
    topics, acks = request.topic_data, request.acks
    if not acks or request.transactional_id is not None or len(topics) != 1:
        return None
    name, topic_id, found = topics[0].name, topics[0].topic_id, []
    for data in topics[0].partition_data:
        try:
            partition = partitions.by_name(name, data.index) if name else partitions.by_id(topic_id, data.index)
        except Refusal:
            return None
        if waits_for_disk(partition, acks):
            return None
        found.append(partition)
    return found


def waits_for_disk(partition: Partition, acks: int) -> bool:
    """Whether an acknowledgement has to wait until the records are synced."""
    if acks == ACKS_ALL and partition.acks_all is AcksAll.DISK:
        return True
    return acks != 0 and partition.config.flush_messages == 1


def is_plain(request: ProduceRequest, partition: Partition) -> bool:
    """Whether `append_plain` would have served a request of that kind, which has been served."""
    records, config = request.topic_data[0].partition_data[0].records, partition.config
    return (
        records is not None
        and not peek(records).attributes & ~PLAIN_ATTRIBUTES
        and config.timestamp_type is TimestampType.CREATE_TIME
        and not config.log.compact
    )


def append_plain(partition: Partition, batches: list[Buffer], *, acks: int) -> list[int] | None:
    """Append batches with one write; returns the first offset of each.

    None, and nothing has happened, if one of them needs a second look. So does a Refusal mean, whosever it is.
    """
    return None if waits_for_disk(partition, acks) else partition.append_run(batches)
