"""OffsetForLeaderEpoch (API 23): tells where a leader's epoch ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class OffsetForLeaderPartition(Message, frozen=True):
    """The epoch to look up in one partition."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Message, frozen=True):
    """The partitions of one topic to look up."""

    topic: String = ""
    partitions: Sequence[OffsetForLeaderPartition] = ()


class OffsetForLeaderEpochRequest(Message, frozen=True):
    """An epoch for each partition."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.OFFSET_FOR_LEADER_EPOCH].versions

    replica_id: Annotated[Int32, Since(3, ignorable=True)] = -2
    topics: Sequence[OffsetForLeaderTopic] = ()


class EpochEndOffset(Message, frozen=True):
    """Where the epoch ended in one partition."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Message, frozen=True):
    """Where the epochs ended in one topic."""

    topic: String = ""
    partitions: Sequence[EpochEndOffset] = ()


class OffsetForLeaderEpochResponse(Message, frozen=True):
    """Where each epoch ended."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.OFFSET_FOR_LEADER_EPOCH].versions

    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetForLeaderTopicResult] = ()
