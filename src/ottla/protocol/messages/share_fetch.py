"""ShareFetch (API 78): a member of a share group takes records, and settles earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Bool, Int8, Int16, Int32, Int64, Message, Records, Since, String, Uuid
from ottla.protocol.versions import Versions


class AcknowledgementBatch(Message, frozen=True):
    """What became of a range of records."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: Sequence[Int8] = ()


class FetchPartition(Message, frozen=True):
    """One partition to take records from."""

    partition_index: Int32 = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()


class FetchTopic(Message, frozen=True):
    """Partitions of one topic to take records from."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[FetchPartition] = ()


class ForgottenTopic(Message, frozen=True):
    """Partitions that the share session may drop."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()


class ShareFetchRequest(Message, frozen=True):
    """The partitions to take records from, and what became of earlier records."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SHARE_FETCH].versions

    group_id: String | None = None
    member_id: String | None = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Annotated[Int8, Since(2, ignorable=True)] = 0
    is_renew_ack: Annotated[Bool, Since(2)] = False
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Sequence[ForgottenTopic] = ()


class LeaderIdAndEpoch(Message, frozen=True):
    """Who leads the partition now, for a client that asked the wrong broker."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Message, frozen=True):
    """A range of records that the member has got, and how often they were handed out."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionData(Message, frozen=True):
    """What one partition gave."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: Records = b""
    acquired_records: Sequence[AcquiredRecords] = ()


class ShareFetchableTopicResponse(Message, frozen=True):
    """What the partitions of one topic gave."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(Message, frozen=True):
    """Where a leader named in this response can be reached."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ShareFetchResponse(Message, frozen=True):
    """The records, and which of them the member has got."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SHARE_FETCH].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: Sequence[ShareFetchableTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
