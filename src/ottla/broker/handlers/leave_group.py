"""LeaveGroup, versions 0-5: members leave a classic group; one up to version 2, several since 3.

An admin takes static members out by their instance ids the same way.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.groups.groups import check_group_id
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.schema import Message


def leave_group(
    request: LeaveGroupRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    check_group_id(request.group_id)
    return services.groups.submit(
        request.group_id,
        lambda shard, ticket, outcome, now_ms: shard.leave(request, version, ticket, outcome, now_ms),
        lambda error: LeaveGroupResponse(error_code=error.code),
    )
