"""ConsumerGroupHeartbeat, versions 0-1: a member of a consumer group (KIP-848) joins, stays, moves on or leaves.

Version 1 brings subscriptions by pattern, and member ids that the client makes. An assignment is told with every answer
until the member says that it owns just that; a client that lost an answer, or was quicker than one, is not left behind.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.coordinator import told
from ottla.broker.groups import client_facts
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.groups.groups import check_group_id
from ottla.errors import Refusal
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schema import Message


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    check_group_id(request.group_id)
    client = client_facts(caller)
    return services.groups.submit(
        request.group_id,
        lambda shard, ticket, outcome, now_ms: shard.heartbeat_consumer(
            request, version, client, ticket, outcome, now_ms
        ),
        _refused,
    )


def _refused(error: Refusal) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=told(error))
