"""AlterPartitionReassignments, versions 0-1: move partitions to other brokers.

With one broker a partition can only stay where it is: the assignment that it has is accepted and changes nothing,
any other is refused, and there is no move to call off.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignment, Refusal
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.schema import Message


def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    may_resize = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassign(topic.name, wanted, services, may_resize=may_resize) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _reassign(
    topic: str, wanted: ReassignablePartition, services: Services, *, may_resize: bool
) -> ReassignablePartitionResponse:
    index, replicas = wanted.partition_index, wanted.replicas
    try:
        have = services.catalog.image.partition(topic, index).replicas
        if replicas is None:
            raise NoReassignment(f"{topic}-{index} is not being moved")
        if not may_resize and replicas and len(replicas) != len(have):
            raise InvalidReplicationFactor(f"{topic}-{index} has {len(have)} copies, and that is not to change")
        if tuple(replicas) != have:
            raise InvalidReplicaAssignment(
                f"{topic}-{index} can only be on {list(have)}: broker {services.node_id} is the only one"
            )
    except Refusal as error:
        return ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
    return ReassignablePartitionResponse(partition_index=index, error_code=ErrorCode.NONE, error_message=None)
