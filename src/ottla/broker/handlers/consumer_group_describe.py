"""ConsumerGroupDescribe, versions 0-1: the state, the epochs and the members of consumer groups (KIP-848).

A classic group is not found here. Which protocol a member speaks is told from version 1 on. Authorised operations are
not told: there is no authorisation yet.
"""

from __future__ import annotations

from typing import cast

from ottla.broker.caller import Caller
from ottla.broker.coordinator import told
from ottla.broker.groups import GroupDecision
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import Refusal
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla.protocol.schema import Message


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    # Each once, however often it is named: the answer may be a thousand times as long as the question.
    group_ids = list(dict.fromkeys(request.group_ids))
    return services.groups.submit_each(
        [(group_id, _asking(group_id)) for group_id in group_ids],
        lambda place, error: _refused(group_ids[place], error),
        lambda parts: ConsumerGroupDescribeResponse(groups=[cast(DescribedGroup, part) for part in parts]),
    )


def _asking(group_id: str) -> GroupDecision:
    return lambda shard, ticket, outcome, now_ms: shard.describe_consumer(group_id, ticket, outcome, now_ms)


def _refused(group_id: str, error: Refusal) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=told(error))
