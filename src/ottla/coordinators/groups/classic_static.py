"""A static member is back: the same `group.instance.id`, and no member id, because its process has started anew.

It takes the place of the member that it was, with that one's assignment. If nothing else has changed, the group goes
on in its generation: that is what static membership is for.
"""

from __future__ import annotations

import logging

from ottla.coordinators.groups.classic_group import ClassicGroup, GroupState
from ottla.coordinators.groups.classic_member import ClassicMember, JoinCall
from ottla.coordinators.groups.classic_rebalance import Rebalances
from ottla.coordinators.groups.classic_replies import park_join, refuse_join, refuse_sync
from ottla.coordinators.groups.classic_subscription import CONSUMER, subscribed_topics
from ottla.coordinators.outcome import Outcome
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse

JOIN_VERSION_SKIP_ASSIGNMENT = 9

_logger = logging.getLogger(__name__)


def replace(
    group: ClassicGroup,
    old: ClassicMember,
    new_member_id: str,
    call: JoinCall,
    rebalances: Rebalances,
    outcome: Outcome,
    now_ms: int,
) -> None:
    """Let the instance go on under its new member id; whoever still uses the old one is fenced."""
    _logger.debug("group %s: %s takes the place of %s", group.group_id, new_member_id, old.member_id)
    former_leader_id = group.leader_id
    topics = _topics(group, old)
    refuse_join(group, old, old.member_id, ErrorCode.FENCED_INSTANCE_ID, outcome)
    refuse_sync(old, ErrorCode.FENCED_INSTANCE_ID, outcome)
    outcome.cancel_timer(old.session_key)
    member = group.rename(old, new_member_id, call.client)
    group.update(member, call)
    member.expect_heartbeat(outcome, now_ms)
    if (
        group.state is GroupState.STABLE
        and group.selected_protocol() == group.protocol_name
        and _topics(group, member) == topics
    ):
        rebalances.record(group, _assignments(group), outcome, since_ms=group.state_since_ms)
        if new_member_id in group.pending_sync:
            # It hears of the generation only now, so it must not be late at once.
            rebalances.wait_for_syncs(group, outcome, now_ms)
        outcome.reply(call.ticket, _resumed(group, member, call, former_leader_id))
        return
    # In CompletingRebalance the leader knows the old id only, so its assignment would miss this member.
    park_join(group, member, call, outcome)
    rebalances.begin_or_complete(group, call.because(f"{new_member_id} is back with other wishes"), outcome, now_ms)


def _resumed(
    group: ClassicGroup, member: ClassicMember, call: JoinCall, former_leader_id: str | None
) -> JoinGroupResponse:
    """The generation goes on. A leader must not assign anew: it would be the only one to learn of that."""
    is_leader = group.leader_id == member.member_id
    can_skip = call.version >= JOIN_VERSION_SKIP_ASSIGNMENT
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        # A client that cannot be told to skip the assignment is made to think that somebody else leads.
        leader=(group.leader_id if can_skip else former_leader_id) or "",
        skip_assignment=is_leader and can_skip,
        member_id=member.member_id,
        members=group.for_leader() if is_leader and can_skip else (),
    )


def _assignments(group: ClassicGroup) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}


def _topics(group: ClassicGroup, member: ClassicMember) -> frozenset[str] | None:
    """What it reads. Kafka does not ask: there, a member that is back with more topics waits for a rebalance."""
    metadata = member.protocols.get(group.protocol_name or "")
    if group.protocol_type != CONSUMER or metadata is None:
        return None
    return subscribed_topics(metadata)
