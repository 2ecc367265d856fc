"""DescribeQuorum, versions 0-2: who decides about the metadata.

The metadata's only voter is this broker. Its revision stands for the end of the log that Kafka keeps under the name
`__cluster_metadata`; there is no such topic here.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import PartitionNotFound, TopicNotFound
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.protocol.schema import Message

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0
LISTENER = "PLAINTEXT"


def describe_quorum(
    request: DescribeQuorumRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    host, port = caller.advertised
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _describe(topic.topic_name, partition.partition_index, services) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[Node(node_id=services.node_id, listeners=[Listener(name=LISTENER, host=host, port=port)])]
        if version >= 2
        else (),
    )


def _describe(topic: str, index: int, services: Services) -> ResponsePartitionData:
    if topic != METADATA_TOPIC or index != METADATA_PARTITION:
        error = TopicNotFound(topic) if topic != METADATA_TOPIC else PartitionNotFound(topic, index)
        return ResponsePartitionData(
            partition_index=index, error_code=error.code, error_message=str(error), leader_id=-1, high_watermark=-1
        )
    revision = services.catalog.image.revision
    now_ms = services.clock.now_ms()
    voter = ReplicaState(
        replica_id=services.node_id,
        log_end_offset=revision,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return ResponsePartitionData(
        partition_index=index,
        error_message=None,
        leader_id=services.node_id,
        high_watermark=revision,
        current_voters=[voter],
    )
