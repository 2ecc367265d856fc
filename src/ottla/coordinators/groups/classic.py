"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, as Kafka's broker answers them.

The broker brings the members together and numbers their generations; one of them, the leader, assigns the partitions,
and the broker passes on its bytes (so cooperative rebalances need nothing here). Requests are checked in this module;
what follows from them is in `classic_rebalance` and `classic_static`. Committed offsets and the consumer protocol are
not known here.

Where Ottla does more than Kafka: every parked request is answered, also one that its own member has superseded; a
static member that comes back with other topics begins a rebalance, and is let back into a full group.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinators.groups import classic_static
from ottla.coordinators.groups.classic_group import (
    ASSIGNMENTS_BYTES_MAX,
    MEMBERS_BYTES_MAX,
    PENDING_MEMBERS_MAX,
    PENDING_MS_MAX,
    ClassicGroup,
    GroupState,
    Transitions,
)
from ottla.coordinators.groups.classic_member import (
    REASON_CHARACTERS_MAX,
    ApiVersion,
    ClassicMember,
    JoinCall,
    session_key,
)
from ottla.coordinators.groups.classic_rebalance import Rebalances
from ottla.coordinators.groups.classic_replies import join_refused, joined, park_sync, synced
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import GroupMetadataKey, GroupMetadataValue
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.error_codes import ErrorCode
from ottla.errors import (
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    RebalanceInProgress,
    RecordTooLarge,
    Refusal,
    UnknownMemberId,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest

JOIN_VERSION_MEMBER_ID_REQUIRED = 4
LEAVE_VERSION_SEVERAL_MEMBERS = 3


class ClassicProtocol:
    """Decides on the requests of classic groups."""

    def __init__(self, groups: Groups, settings: GroupSettings, new_member_id: Callable[[str], str]) -> None:
        self._groups = groups
        self._settings = settings
        self._new_member_id = new_member_id
        self._rebalances = Rebalances(groups, settings)
        self.transitions = Transitions()
        """How often a group went from one state to another since the state was loaded."""

    # --- JoinGroup ------------------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        version: ApiVersion,
        client: ClientFacts,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """Let somebody in; the reply waits until the group's next generation has begun."""
        shortest_ms, longest_ms = self._settings.session_timeout_ms_min, self._settings.session_timeout_ms_max
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise InvalidSessionTimeout(f"a session timeout has to be between {shortest_ms} and {longest_ms} ms")
        group = self._groups.of_kind(request.group_id, ClassicGroup)
        if group is None:
            if request.member_id:
                raise UnknownMemberId(f"there is no group {request.group_id!r} to be a member of")
            group = ClassicGroup(request.group_id, self.transitions, since_ms=now_ms)
        call = JoinCall(request, version, client, ticket)
        if not self._has_room(group, request):
            self._turn_away(group, call, outcome, now_ms)
            return
        if not group.speaks(request.protocol_type, call.protocols()):
            raise InconsistentGroupProtocol(
                f"members of group {request.group_id!r} have no protocol in common with this {request.protocol_type!r}"
            )
        if not group.holds(call, self._present(group, request)):
            raise GroupMaxSizeReached(
                f"members of group {request.group_id!r} may bring {MEMBERS_BYTES_MAX} bytes in all"
            )
        if request.member_id:
            self._join_again(group, call, outcome, now_ms)
        else:
            self._join_first(group, call, outcome, now_ms)

    def _join_first(self, group: ClassicGroup, call: JoinCall, outcome: Outcome, now_ms: int) -> None:
        """Somebody without a member id."""
        instance_id = call.request.group_instance_id
        holder_id = group.static_member_id(instance_id)
        member_id = self._new_member_id(instance_id if instance_id is not None else call.client.client_id)
        if holder_id is not None:
            holder = group.members[holder_id]
            classic_static.replace(group, holder, member_id, call, self._rebalances, outcome, now_ms)
        elif instance_id is None and call.version >= JOIN_VERSION_MEMBER_ID_REQUIRED:
            # A client that never sees the answer of its join would come back as somebody else each time. So it gets
            # its id first, and costs no more than that until it uses it.
            if len(group.pending) >= PENDING_MEMBERS_MAX:
                # Whoever has waited for longest is the least likely to come; if it does, it gets another id. To turn
                # the new one away would lock the group, for as long as somebody asks for ids and does not use them.
                self._rebalances.withdraw(group, next(iter(group.pending)), outcome)
            self._groups.add(group)
            deadline_ms = now_ms + min(call.request.session_timeout_ms, PENDING_MS_MAX)
            group.pending[member_id] = deadline_ms
            outcome.set_timer(session_key(group.group_id, member_id), at_ms=deadline_ms)
            outcome.reply(call.ticket, join_refused(call.version, member_id, ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._groups.add(group)
            self._rebalances.take_in(group, member_id, call, call.because(f"{member_id} joins"), outcome, now_ms)

    def _join_again(self, group: ClassicGroup, call: JoinCall, outcome: Outcome, now_ms: int) -> None:
        """Somebody with a member id: it was asked to come back with it, or has been in the group for long."""
        request, rebalances = call.request, self._rebalances
        member_id = request.member_id
        # Only members without an instance id are asked to come back.
        if member_id in group.pending and request.group_instance_id is None:
            rebalances.take_in(group, member_id, call, call.because(f"{member_id} joins"), outcome, now_ms)
            return
        member = group.member(member_id, request.group_instance_id)
        is_unchanged = member.speaks_as_before(call.protocols())
        is_leader = group.leader_id == member_id
        if group.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
            # It may not have got the answer of its first join: here it is again.
            self._answer_again(group, member, call, outcome, now_ms)
        elif group.state is GroupState.STABLE and is_unchanged and not is_leader:
            # The generation is as good for it as it was; it fetches its assignment by a sync.
            self._answer_again(group, member, call, outcome, now_ms)
        else:
            # A leader joins again when what it has to assign has changed, and says nothing of that to us.
            what = f"the leader {member_id} joins again" if is_unchanged else f"{member_id} has other wishes"
            rebalances.take_back(group, member, call, call.because(what), outcome, now_ms)

    def _answer_again(
        self, group: ClassicGroup, member: ClassicMember, call: JoinCall, outcome: Outcome, now_ms: int
    ) -> None:
        outcome.reply(call.ticket, joined(group, member))
        member.expect_heartbeat(outcome, now_ms)

    def _has_room(self, group: ClassicGroup, request: JoinGroupRequest) -> bool:
        """Whether the group's size lets this one in."""
        member = self._present(group, request)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            # Those who come last are left out, so that a group which is too large shrinks to its size.
            is_joined = member is not None and member.parked_join is not None
            return is_joined or group.joined_count < self._settings.members_max
        return member is not None or len(group.members) < self._settings.members_max

    @staticmethod
    def _present(group: ClassicGroup, request: JoinGroupRequest) -> ClassicMember | None:
        """The member that joins, if it is one already: by its id, or by its instance."""
        return group.members.get(request.member_id or group.static_member_id(request.group_instance_id) or "")

    def _turn_away(self, group: ClassicGroup, call: JoinCall, outcome: Outcome, now_ms: int) -> None:
        """The group is full. Whoever was to be in it is no longer expected."""
        request, code = call.request, ErrorCode.GROUP_MAX_SIZE_REACHED
        member = group.members.get(request.member_id)
        if member is not None:
            # The instance id must be right: nobody puts somebody else out of the group.
            group.member(request.member_id, request.group_instance_id)
            outcome.reply(call.ticket, join_refused(call.version, "", code))
            self._rebalances.let_go(group, member, outcome)
            self._rebalances.go_on(group, [f"{member.member_id} is one too many"], outcome, now_ms)
        elif request.member_id in group.pending:
            outcome.reply(call.ticket, join_refused(call.version, "", code))
            self._rebalances.withdraw(group, request.member_id, outcome)
            self._rebalances.go_on(group, [], outcome, now_ms)
        else:
            raise GroupMaxSizeReached(
                f"group {request.group_id!r} has {self._settings.members_max} members, and no room"
            )

    # --- SyncGroup, Heartbeat -------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Give a member its assignment, once the leader has brought it."""
        group = self._group(request.group_id)
        member = group.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
            raise InconsistentGroupProtocol(
                f"group {group.group_id!r} speaks {group.protocol_type!r} and has chosen {group.protocol_name!r}"
            )
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {group.group_id!r} is on its way to the next generation")
        if group.state is GroupState.STABLE:
            self._rebalances.note_sync(group, member, outcome)
            outcome.reply(ticket, synced(group, member))
            member.expect_heartbeat(outcome, now_ms)
            return
        assigned = {each.member_id: each.assignment for each in request.assignments}
        leads = group.leader_id == member.member_id
        if leads and sum(map(len, assigned.values())) > ASSIGNMENTS_BYTES_MAX:
            raise RecordTooLarge(f"the assignments of group {group.group_id!r} may take {ASSIGNMENTS_BYTES_MAX} bytes")
        self._rebalances.note_sync(group, member, outcome)
        park_sync(member, ticket, outcome)
        if leads:
            self._rebalances.assign(group, assigned, outcome, now_ms)

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """A member is alive; it hears whether it has to join again."""
        group = self._group(request.group_id)
        member = group.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
        member.expect_heartbeat(outcome, now_ms)
        is_rebalancing = group.state is GroupState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
        outcome.reply(ticket, HeartbeatResponse(error_code=code))

    # --- LeaveGroup -----------------------------------------------------------------------------------------

    def leave(
        self, request: LeaveGroupRequest, version: ApiVersion, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        """Let members go, each with an answer of its own; then the others rebalance, once."""
        group = self._groups.of_kind(request.group_id, ClassicGroup)
        alone = version < LEAVE_VERSION_SEVERAL_MEMBERS
        leaving = (MemberIdentity(member_id=request.member_id),) if alone else request.members
        answers, reasons = [], []
        for identity in leaving:
            code = ErrorCode.NONE
            try:
                reasons.append(self._let_leave(group, identity, outcome))
            except Refusal as refusal:
                code = refusal.code
            answers.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        if alone:
            outcome.reply(ticket, LeaveGroupResponse(error_code=answers[0].error_code))
        else:
            outcome.reply(ticket, LeaveGroupResponse(members=answers))
        if group is not None:
            self._rebalances.go_on(group, [reason for reason in reasons if reason is not None], outcome, now_ms)

    def _let_leave(self, group: ClassicGroup | None, identity: MemberIdentity, outcome: Outcome) -> str | None:
        """Let one go; returns why, for the log, or None if it had never come. Raises the Refusal that it gets."""
        if group is None:
            raise UnknownMemberId("there is no such group")
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id in group.pending:
            self._rebalances.withdraw(group, member_id, outcome)
            return None
        if not member_id:
            # An admin removes a static member without knowing its member id.
            member_id = group.static_member_id(instance_id) or ""
        member = group.member(member_id, instance_id)
        self._rebalances.let_go(group, member, outcome)
        said = (identity.reason or "no reason given")[:REASON_CHARACTERS_MAX]
        return f"{member_id} leaves ({said!r})"

    # --- time, records, restarts ----------------------------------------------------------------------------

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        """A timer is due; its key is ("classic", kind, group id, perhaps a member id)."""
        group = self._groups.of_kind(key[2], ClassicGroup)
        if group is None:
            return
        match key[1]:
            case "session":
                self._rebalances.session_due(group, key[3], outcome, now_ms)
            case "join":
                self._rebalances.join_due(group, outcome, now_ms)
            case "sync":
                self._rebalances.sync_due(group, outcome, now_ms)
            case kind:
                raise AssertionError(f"no timer of a classic group is for {kind}")

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Stand where the record says; a tombstone removes the group, if it still is a classic one."""
        group = self._groups.of_kind(key.group, ClassicGroup)
        if value is None:
            if group is not None:
                group.enter(GroupState.DEAD, None)
                self._groups.remove(key.group)
            return
        if group is None:
            group = ClassicGroup(key.group, self.transitions)
            self._groups.add(group)
        group.apply(value)

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        """All records have been replayed: every member has a session timeout from now to be heard of."""
        for group in self._groups:
            if isinstance(group, ClassicGroup):
                self.take_over(group, outcome, now_ms)
        self.transitions.clear()

    def expire_embedded(self, outcome: Outcome, now_ms: int) -> None:
        """The process is a new one: members that ran in the old one are not waited for."""
        for group in self._groups:
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    if member.client.ends_with_broker:
                        member.expect_sign_of_life(outcome, at_ms=now_ms)

    def take_over(self, group: ClassicGroup, outcome: Outcome, now_ms: int) -> None:
        """A group that was just made of its record goes on from there."""
        for member in group.members.values():
            member.expect_heartbeat(outcome, now_ms)
        if len(group.members) > self._settings.members_max:
            self.rebalance(group, "the group is larger than it may be", outcome, now_ms)

    def rebalance(self, group: ClassicGroup, reason: str, outcome: Outcome, now_ms: int) -> None:
        """Have the members join again, for a reason that they do not know of themselves."""
        self._rebalances.begin_or_complete(group, reason, outcome, now_ms)

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._groups.of_kind(group_id, ClassicGroup)
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id!r} to be a member of")
        return group


def _differs(told: str | None, actual: str | None) -> bool:
    """Whether the member thinks of another protocol; before version 5 it does not say."""
    return told is not None and told != actual
