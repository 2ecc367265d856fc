"""DescribeProducers, version 0: the producers that partitions remember.

A partition remembers a producer until `producer.id.expiration.ms` after its last write.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import Refusal
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.protocol.schema import Message
from ottla.storage.producer_state import ProducerEntry


def describe_producers(
    request: DescribeProducersRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(topic.name, index, services) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, services: Services) -> PartitionResponse:
    try:
        partition = services.partitions.by_name(topic, index)
        partition.require_online()
    except Refusal as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
    return PartitionResponse(
        partition_index=index, active_producers=[_told(entry) for entry in partition.log.producers.entries]
    )


def _told(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
