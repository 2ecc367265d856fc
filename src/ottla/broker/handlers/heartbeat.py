"""Heartbeat, versions 0-4: a member of a classic group is alive, and learns whether it has to join again.

A member that speaks the classic protocol inside a consumer group is told the same way. While the group is being read
back a heartbeat is answered as if all were well, as Kafka does it: some clients take any other answer for the end.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.groups.groups import check_group_id
from ottla.errors import CoordinatorLoadInProgress, Refusal
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.schema import Message


def heartbeat(request: HeartbeatRequest, version: int, caller: Caller, services: Services) -> Message | Pending | None:
    check_group_id(request.group_id)
    return services.groups.submit(
        request.group_id,
        lambda shard, ticket, outcome, now_ms: shard.heartbeat(request, ticket, outcome, now_ms),
        _refused,
    )


def _refused(error: Refusal) -> HeartbeatResponse:
    if isinstance(error, CoordinatorLoadInProgress):
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error.code)
