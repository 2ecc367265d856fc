"""ShareAcknowledge (API 79): a member of a share group settles records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Bool, Int8, Int16, Int32, Int64, Message, Since, String, Uuid
from ottla.protocol.versions import Versions


class AcknowledgementBatch(Message, frozen=True):
    """What became of a range of records."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: Sequence[Int8] = ()


class AcknowledgePartition(Message, frozen=True):
    """What became of one partition's records."""

    partition_index: Int32 = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()


class AcknowledgeTopic(Message, frozen=True):
    """What became of one topic's records."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[AcknowledgePartition] = ()


class ShareAcknowledgeRequest(Message, frozen=True):
    """What became of the records that the member had got."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SHARE_ACKNOWLEDGE].versions

    group_id: String | None = None
    member_id: String | None = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: Annotated[Bool, Since(2)] = False
    topics: Sequence[AcknowledgeTopic] = ()


class LeaderIdAndEpoch(Message, frozen=True):
    """Who leads the partition now, for a client that asked the wrong broker."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class PartitionData(Message, frozen=True):
    """Whether one partition took note."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class ShareAcknowledgeTopicResponse(Message, frozen=True):
    """Whether one topic's partitions took note."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(Message, frozen=True):
    """Where a leader named in this response can be reached."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ShareAcknowledgeResponse(Message, frozen=True):
    """Whether each partition took note."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SHARE_ACKNOWLEDGE].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, Since(2, ignorable=True)] = 0
    responses: Sequence[ShareAcknowledgeTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
