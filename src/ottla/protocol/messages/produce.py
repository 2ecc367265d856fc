"""Produce (API 0): a client hands over record batches to be appended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int16, Int32, Int64, Message, Records, Since, String, Uuid
from ottla.protocol.versions import Versions


class PartitionProduceData(Message, frozen=True):
    """The record batches for one partition."""

    index: Int32 = 0
    records: Records | None = None


class TopicProduceData(Message, frozen=True):
    """The partitions of one topic that get batches."""

    name: Annotated[String, Since(last=12, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(13, ignorable=True)] = NO_UUID
    partition_data: Sequence[PartitionProduceData] = ()


class ProduceRequest(Message, frozen=True):
    """Record batches for some partitions, and how safe they must be before the answer comes."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.PRODUCE].versions

    transactional_id: String | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: Sequence[TopicProduceData] = ()


class BatchIndexAndErrorMessage(Message, frozen=True):
    """What was wrong with one record of a refused batch."""

    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Message, frozen=True):
    """Who leads the partition now, for a client that asked the wrong broker."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Message, frozen=True):
    """The outcome for one partition: an offset or an error."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5, ignorable=True)] = -1
    record_errors: Annotated[Sequence[BatchIndexAndErrorMessage], Since(8, ignorable=True)] = ()
    error_message: Annotated[String | None, Since(8, ignorable=True)] = None
    current_leader: Annotated[LeaderIdAndEpoch, Since(10, tag=0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Message, frozen=True):
    """The outcomes for one topic."""

    name: Annotated[String, Since(last=12, ignorable=True)] = ""
    topic_id: Annotated[Uuid, Since(13, ignorable=True)] = NO_UUID
    partition_responses: Sequence[PartitionProduceResponse] = ()


class NodeEndpoint(Message, frozen=True):
    """Where a leader named in this response can be reached."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ProduceResponse(Message, frozen=True):
    """Where each batch was put, or why it was not."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.PRODUCE].versions

    responses: Sequence[TopicProduceResponse] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[Sequence[NodeEndpoint], Since(10, tag=0)] = ()
