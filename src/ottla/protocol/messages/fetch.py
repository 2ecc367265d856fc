"""Fetch (API 1): a consumer or a follower reads record batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int8, Int16, Int32, Int64, Message, Records, Since, String, Uuid
from ottla.protocol.versions import Versions


class ReplicaState(Message, frozen=True):
    """Who the follower is that fetches; consumers leave it alone."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Message, frozen=True):
    """Where to read in one partition."""

    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(9, ignorable=True)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Since(12)] = -1
    log_start_offset: Annotated[Int64, Since(5, ignorable=True)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, Since(17, tag=0, ignorable=True)] = NO_UUID
    high_watermark: Annotated[Int64, Since(18, tag=1, ignorable=True)] = 2**63 - 1


class FetchTopic(Message, frozen=True):
    """The partitions of one topic to read."""

    topic: Annotated[String, Since(last=12, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(13, ignorable=True)] = NO_UUID
    partitions: Sequence[FetchPartition] = ()


class ForgottenTopic(Message, frozen=True):
    """Partitions that the fetch session may drop."""

    topic: Annotated[String, Since(last=12, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(13, ignorable=True)] = NO_UUID
    partitions: Sequence[Int32] = ()


class FetchRequest(Message, frozen=True):
    """The offsets to read from, and how long and for how much to wait."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.FETCH].versions

    cluster_id: Annotated[String | None, Since(12, tag=0, ignorable=True)] = None
    replica_id: Annotated[Int32, Since(last=14)] = -1
    replica_state: Annotated[ReplicaState, Since(15, tag=1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, Since(7, ignorable=True)] = 0
    session_epoch: Annotated[Int32, Since(7, ignorable=True)] = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Annotated[Sequence[ForgottenTopic], Since(7)] = ()
    rack_id: Annotated[String, Since(11, ignorable=True)] = ""


class EpochEndOffset(Message, frozen=True):
    """The last epoch and its end where the follower's log leaves the leader's."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Message, frozen=True):
    """Who leads the partition now, for a client that asked the wrong broker."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Message, frozen=True):
    """The snapshot that a follower has to load before it can go on."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Message, frozen=True):
    """A transaction whose records a reader of committed records skips."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Message, frozen=True):
    """What one partition gave."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5, ignorable=True)] = -1
    diverging_epoch: Annotated[EpochEndOffset, Since(12, tag=0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Since(12, tag=1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Since(12, tag=2)] = SnapshotId()
    aborted_transactions: Sequence[AbortedTransaction] | None = ()
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: Records | None = None


class FetchableTopicResponse(Message, frozen=True):
    """What the partitions of one topic gave."""

    topic: Annotated[String, Since(last=12, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(13, ignorable=True)] = NO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(Message, frozen=True):
    """Where a leader named in this response can be reached."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class FetchResponse(Message, frozen=True):
    """The batches that were found, with each partition's watermarks."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.FETCH].versions

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(7, ignorable=True)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: Sequence[FetchableTopicResponse] = ()
    node_endpoints: Annotated[Sequence[NodeEndpoint], Since(16, tag=0)] = ()
