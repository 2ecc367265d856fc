"""TxnOffsetCommit (API 28): stores a group's offsets as part of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class TxnOffsetCommitRequestPartition(Message, frozen=True):
    """How far one partition has been read."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(2, ignorable=True)] = -1
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(Message, frozen=True):
    """How far one topic's partitions have been read."""

    name: String = ""
    partitions: Sequence[TxnOffsetCommitRequestPartition] = ()


class TxnOffsetCommitRequest(Message, frozen=True):
    """The offsets, the group and the transaction."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.TXN_OFFSET_COMMIT].versions

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[String | None, Since(3)] = None
    topics: Sequence[TxnOffsetCommitRequestTopic] = ()


class TxnOffsetCommitResponsePartition(Message, frozen=True):
    """Whether one partition's offset was taken."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Message, frozen=True):
    """Whether one topic's offsets were taken."""

    name: String = ""
    partitions: Sequence[TxnOffsetCommitResponsePartition] = ()


class TxnOffsetCommitResponse(Message, frozen=True):
    """Whether each offset was taken."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.TXN_OFFSET_COMMIT].versions

    throttle_time_ms: Int32 = 0
    topics: Sequence[TxnOffsetCommitResponseTopic] = ()
