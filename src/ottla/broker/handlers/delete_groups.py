"""DeleteGroups, versions 0-2: delete groups that nobody is in, with their offsets.

Each group is answered for itself, when its tombstones are durable.
"""

from __future__ import annotations

from typing import cast

from ottla.broker.caller import Caller
from ottla.broker.groups import GroupDecision
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.schema import Message


def delete_groups(
    request: DeleteGroupsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    # The same group twice would be found and not found in one answer.
    group_ids = list(dict.fromkeys(request.groups_names))
    return services.groups.submit_each(
        [(group_id, _deleting(group_id)) for group_id in group_ids],
        lambda place, error: DeletableGroupResult(group_id=group_ids[place], error_code=error.code),
        lambda parts: DeleteGroupsResponse(results=[cast(DeletableGroupResult, part) for part in parts]),
    )


def _deleting(group_id: str) -> GroupDecision:
    return lambda shard, ticket, outcome, now_ms: shard.delete_group(group_id, ticket, outcome, now_ms)
