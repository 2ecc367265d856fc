"""SyncGroup, versions 0-5: members of a classic group get their assignments, which the leader brings along.

Answered when the leader's have come and are durable. From version 5 on a member says which protocol it takes the
assignments to be of.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.groups.groups import check_group_id
from ottla.errors import InconsistentGroupProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.schema import Message

PROTOCOL_VERSION_MIN = 5


def sync_group(request: SyncGroupRequest, version: int, caller: Caller, services: Services) -> Message | Pending | None:
    check_group_id(request.group_id)
    if version >= PROTOCOL_VERSION_MIN and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocol("a SyncGroup request must name the protocol type and the protocol")
    return services.groups.submit(
        request.group_id,
        lambda shard, ticket, outcome, now_ms: shard.sync(request, ticket, outcome, now_ms),
        lambda error: SyncGroupResponse(error_code=error.code),
    )
