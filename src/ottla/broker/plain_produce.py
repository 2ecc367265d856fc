"""Batches that need nothing but to be appended: a shorter way for what busy producers send most.

The rules are those of the Produce handler. Whatever they would look at twice is left to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metadata.configs import TopicConfig
from ottla.partitions.partition import Partition
from ottla.protocol.messages.produce import ProduceRequest
from ottla.records.batch import CODEC_MASK, HEADER_SIZE, TimestampType, check, peek
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.reader import RECORD_BYTES_MIN

PLAIN_ACKS = 1
PLAIN_ATTRIBUTES = 0x03
"""The bits of the codecs that every version knows (0 to 3)."""


def has_plain_shape(request: ProduceRequest) -> bool:
    """Whether a request is for one partition, and waits for no disk and no coordinator."""
    topics = request.topic_data
    return (
        request.acks == PLAIN_ACKS
        and request.transactional_id is None
        and len(topics) == 1
        and len(topics[0].partition_data) == 1
    )


def is_plain(request: ProduceRequest, partition: Partition) -> bool:
    """Whether `append_plain` would have served a request of that shape, which has been served."""
    records, config = request.topic_data[0].partition_data[0].records, partition.config
    return (
        records is not None
        and not peek(records).attributes & ~PLAIN_ATTRIBUTES
        and config.timestamp_type is TimestampType.CREATE_TIME
        and not _is_special(config)
    )


def _is_special(config: TopicConfig) -> bool:
    """Whether the records are looked at one by one, or are synced before they are acknowledged."""
    return config.log.compact or config.flush_messages == 1


def append_plain(partition: Partition, batches: Sequence[bytes]) -> list[int] | None:
    """Append batches with one write; returns the offset of each.

    None, and nothing has happened, if one of them needs a second look. So does a Refusal mean, whosever it is.
    """
    if _is_special(partition.config):
        return None
    headers = []
    for records in batches:
        header = check(records)
        attributes, count = header.attributes, header.record_count
        room = DECOMPRESSED_BYTES_MAX if attributes & CODEC_MASK else len(records) - HEADER_SIZE
        if attributes & ~PLAIN_ATTRIBUTES or count < 1 or count * RECORD_BYTES_MIN > room:
            return None
        headers.append(header)
    offset = partition.append_run(batches, headers)
    if offset is None:
        return None
    offsets = []
    for header in headers:
        offsets.append(offset)
        offset += header.record_count
    return offsets
