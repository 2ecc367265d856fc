"""OffsetForLeaderEpoch, versions 2-4: where a leader's epoch ended, so that a client finds out what was lost.

Answered for consumers and, in time, followers alike. An epoch that is newer than the leader's own is undefined (-1).
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import Refusal
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.schema import Message


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_look_up(topic.topic, asked, services) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _look_up(topic: str, asked: OffsetForLeaderPartition, services: Services) -> EpochEndOffset:
    try:
        partition = services.partitions.by_name(topic, asked.partition)
        partition.require_online()
        partition.check_epoch(asked.current_leader_epoch)
    except Refusal as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    found = partition.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=found.epoch, end_offset=found.start_offset)
