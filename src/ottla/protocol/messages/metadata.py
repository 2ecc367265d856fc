"""Metadata (API 3): tells which brokers and topics there are, and who leads what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Bool, Int16, Int32, Message, Since, String, Uuid
from ottla.protocol.versions import Versions


class MetadataRequestTopic(Message, frozen=True):
    """A topic to tell about, by name or by id."""

    topic_id: Annotated[Uuid, Since(10, ignorable=True)] = NO_UUID
    name: Annotated[String | None, Since(nullable_first=10)] = ""


class MetadataRequest(Message, frozen=True):
    """The topics to tell about; null means all of them."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.METADATA].versions

    topics: Annotated[Sequence[MetadataRequestTopic] | None, Since(nullable_first=1)] = ()
    allow_auto_topic_creation: Annotated[Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, Since(8, last=10)] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8)] = False


class MetadataResponseBroker(Message, frozen=True):
    """A broker and its address."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, Since(1, ignorable=True)] = None


class MetadataResponsePartition(Message, frozen=True):
    """Who leads one partition and who follows."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Since(7, ignorable=True)] = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    offline_replicas: Annotated[Sequence[Int32], Since(5, ignorable=True)] = ()


class MetadataResponseTopic(Message, frozen=True):
    """One topic, or why nothing can be said about it."""

    error_code: Int16 = 0
    name: Annotated[String | None, Since(nullable_first=12)] = ""
    topic_id: Annotated[Uuid, Since(10, ignorable=True)] = NO_UUID
    is_internal: Annotated[Bool, Since(1, ignorable=True)] = False
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: Annotated[Int32, Since(8)] = -(2**31)


class MetadataResponse(Message, frozen=True):
    """The brokers of the cluster and the partitions of the topics."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.METADATA].versions

    throttle_time_ms: Annotated[Int32, Since(3, ignorable=True)] = 0
    brokers: Sequence[MetadataResponseBroker] = ()
    cluster_id: Annotated[String | None, Since(2, ignorable=True)] = None
    controller_id: Annotated[Int32, Since(1, ignorable=True)] = -1
    topics: Sequence[MetadataResponseTopic] = ()
    cluster_authorized_operations: Annotated[Int32, Since(8, last=10)] = -(2**31)
    error_code: Annotated[Int16, Since(13, ignorable=True)] = 0
