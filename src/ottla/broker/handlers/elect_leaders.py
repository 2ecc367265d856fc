"""ElectLeaders, versions 0-2: have partitions led by their first replica, or by any that is left.

With one broker there is nobody else to elect: a partition that is served has the leader it should have, and one
whose disk failed has nobody who could lead. Asked for all partitions, only those without a leader are told, as in
Kafka.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, Refusal
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from ottla.protocol.schema import Message

PREFERRED = 0
UNCLEAN = 1


def elect_leaders(
    request: ElectLeadersRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"there is no election of type {request.election_type}")
    asked = request.topic_partitions
    every = asked is None
    if asked is None:
        asked = [
            TopicPartitions(topic=topic.name, partitions=range(len(topic.partitions)))
            for topic in services.catalog.image.topics.values()
        ]
    results = []
    for topic in asked:
        found = [_elect(topic.topic, index, request.election_type, services) for index in topic.partitions]
        if every:
            found = [result for result in found if result.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        if found or not every:
            results.append(ReplicaElectionResult(topic=topic.topic, partition_result=found))
    return ElectLeadersResponse(replica_election_results=results)


def _elect(topic: str, index: int, election_type: int, services: Services) -> PartitionResult:
    try:
        services.catalog.image.partition(topic, index)
    except Refusal as error:
        return PartitionResult(partition_id=index, error_code=error.code, error_message=str(error))
    reason = services.partitions.offline_reason(topic, index)
    if reason is None:
        code = ErrorCode.ELECTION_NOT_NEEDED
    elif election_type == PREFERRED:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return PartitionResult(partition_id=index, error_code=code, error_message=reason or code.sentence)
