"""DescribeCluster (API 60): tells which brokers there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int8, Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class DescribeClusterRequest(Message, frozen=True):
    """Whether brokers or controllers are meant, and what else is wanted."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_CLUSTER].versions

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Since(1)] = 1
    include_fenced_brokers: Annotated[Bool, Since(2)] = False


class DescribeClusterBroker(Message, frozen=True):
    """A broker and its address."""

    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, Since(2)] = False


class DescribeClusterResponse(Message, frozen=True):
    """The cluster's id, its controller and its brokers."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_CLUSTER].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, Since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    cluster_authorized_operations: Int32 = -(2**31)
