"""The answers of the classic protocol to those who wait, in the form of their request's version.

Answering is all that happens here; when it is time to is decided in `classic_rebalance`. Whoever waits is answered
once: a member that asks again while its first request is parked gets its second one answered later, and the first
one, whose connection is most likely gone, at once.
"""

from __future__ import annotations

from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.classic_member import ApiVersion, ClassicMember, JoinCall, ParkedJoin
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

JOIN_VERSION_NULL_PROTOCOL = 7
"""Before it, a protocol that there is none of is an empty text."""


def join_refused(version: ApiVersion, member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """No generation for this one."""
    protocol_name = None if version >= JOIN_VERSION_NULL_PROTOCOL else ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=protocol_name)


def joined(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """The generation that the member is in; the leader gets the members, to make the assignment."""
    is_leader = group.leader_id == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=group.for_leader() if is_leader else (),
    )


def synced(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    """What the member was assigned."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def park_join(group: ClassicGroup, member: ClassicMember, call: JoinCall, outcome: Outcome) -> None:
    """The member waits until the rebalance comes to its end."""
    refuse_join(group, member, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, outcome)
    group.park_join(member, ParkedJoin(call.ticket, call.version))


def park_sync(member: ClassicMember, ticket: Ticket, outcome: Outcome) -> None:
    """The member waits until the leader has brought the assignments."""
    refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, outcome)
    member.parked_sync = ticket


def answer_join(group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse, outcome: Outcome) -> bool:
    """Answer the member's JoinGroup; False if it does not wait for that."""
    parked = member.parked_join
    if parked is None:
        return False
    group.park_join(member, None)
    outcome.reply(parked.ticket, response)
    return True


def refuse_join(
    group: ClassicGroup, member: ClassicMember, told_member_id: str, code: ErrorCode, outcome: Outcome
) -> None:
    """Answer the member's JoinGroup with an error, if it waits for that."""
    parked = member.parked_join
    if parked is not None:
        answer_join(group, member, join_refused(parked.version, told_member_id, code), outcome)


def answer_sync(member: ClassicMember, response: SyncGroupResponse, outcome: Outcome) -> bool:
    """Answer the member's SyncGroup; False if it does not wait for that."""
    ticket = member.parked_sync
    if ticket is None:
        return False
    member.parked_sync = None
    outcome.reply(ticket, response)
    return True


def refuse_sync(member: ClassicMember, code: ErrorCode, outcome: Outcome) -> bool:
    """Answer the member's SyncGroup with an error; False if it does not wait for that."""
    return answer_sync(member, SyncGroupResponse(error_code=code), outcome)


def refuse_all(group: ClassicGroup, code: ErrorCode, outcome: Outcome) -> None:
    """Nobody waits any longer: the group is about to become one of another kind."""
    for member in group.members.values():
        refuse_join(group, member, member.member_id, code, outcome)
        refuse_sync(member, code, outcome)
