"""DescribeCluster, versions 0-2: the cluster's id, its brokers and its controller.

There is one broker, and it is the controller. Authorised operations are not told: there is no authorisation yet.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.schema import Message

BROKERS = 1
CONTROLLERS = 2


def describe_cluster(
    request: DescribeClusterRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=code, error_message=code.sentence, endpoint_type=request.endpoint_type
        )
    host, port = caller.advertised
    return DescribeClusterResponse(
        cluster_id=services.catalog.image.cluster_id,
        controller_id=services.node_id,
        brokers=[DescribeClusterBroker(broker_id=services.node_id, host=host, port=port)],
    )
