"""JoinGroup, versions 0-9: a member enters a classic group.

Answered when the group's next generation begins, which may take as long as the slowest member's rebalance timeout.
From version 4 on a new member first gets an id to come back with.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.groups import client_facts
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.groups.classic_replies import join_refused
from ottla.coordinators.groups.groups import check_group_id
from ottla.errors import Refusal
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.schema import Message


def join_group(request: JoinGroupRequest, version: int, caller: Caller, services: Services) -> Message | Pending | None:
    def refused(error: Refusal) -> Message:
        return join_refused(version, request.member_id, error.code)

    try:
        check_group_id(request.group_id)
    except Refusal as error:
        return refused(error)
    client = client_facts(caller)
    return services.groups.submit(
        request.group_id,
        lambda shard, ticket, outcome, now_ms: shard.join(request, version, client, ticket, outcome, now_ms),
        refused,
    )
