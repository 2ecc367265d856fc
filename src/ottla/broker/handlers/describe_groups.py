"""DescribeGroups, versions 0-6: the state and the members of classic groups.

A group that does not exist is answered as a dead one without an error, and since version 6 with GROUP_ID_NOT_FOUND. A
consumer group is told as if it were classic, for clients that know no other API. Authorised operations (since 3) are
not told: there is no authorisation yet.
"""

from __future__ import annotations

from typing import cast

from ottla.broker.caller import Caller
from ottla.broker.coordinator import told
from ottla.broker.groups import GroupDecision
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.coordinators.groups.listing import DEAD
from ottla.errors import GroupIdNotFound, Refusal
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.schema import Message

NOT_FOUND_VERSION_MIN = 6


def describe_groups(
    request: DescribeGroupsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    # Each once, however often it is named: the answer may be a thousand times as long as the question.
    group_ids = list(dict.fromkeys(request.groups))
    return services.groups.submit_each(
        [(group_id, _asking(group_id)) for group_id in group_ids],
        lambda place, error: _refused(group_ids[place], version, error),
        lambda parts: DescribeGroupsResponse(groups=[cast(DescribedGroup, part) for part in parts]),
    )


def _asking(group_id: str) -> GroupDecision:
    return lambda shard, ticket, outcome, now_ms: shard.describe_classic(group_id, ticket, outcome, now_ms)


def _refused(group_id: str, version: int, error: Refusal) -> DescribedGroup:
    if isinstance(error, GroupIdNotFound):
        if version < NOT_FOUND_VERSION_MIN:
            return DescribedGroup(group_id=group_id, group_state=DEAD)
        return DescribedGroup(group_id=group_id, group_state=DEAD, error_code=error.code, error_message=told(error))
    message = told(error) if version >= NOT_FOUND_VERSION_MIN else None
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=message)
