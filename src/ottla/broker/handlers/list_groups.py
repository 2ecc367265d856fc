"""ListGroups, versions 0-5: the groups of this broker; by their states since version 4, by their types since 5.

A group that has only committed offsets is listed as an empty classic one.
"""

from __future__ import annotations

from typing import cast

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.schema import Message


def list_groups(
    request: ListGroupsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    if not services.groups.is_started:
        # To look for groups is no reason to make the topic that would keep them.
        return ListGroupsResponse()
    return services.groups.submit_to_all(
        lambda shard, ticket, outcome, now_ms: shard.list_groups(request, ticket, outcome, now_ms),
        lambda error: ListGroupsResponse(error_code=error.code),
        lambda parts: ListGroupsResponse(
            groups=[group for part in parts for group in cast(ListGroupsResponse, part).groups]
        ),
    )
