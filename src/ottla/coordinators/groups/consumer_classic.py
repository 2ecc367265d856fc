"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup for them.

Nobody leads and nothing is parked: the broker has the assignment already, so JoinGroup is answered at once with the
member's epoch as its generation, and SyncGroup with what the member may have. Heartbeats tell it to join again when
there is something to give back or to get. See `classic` for groups in which all members speak this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.coordinators.groups.classic_member import ApiVersion
from ottla.coordinators.groups.consumer_deadlines import Wait
from ottla.coordinators.groups.consumer_departures import Departures
from ottla.coordinators.groups.consumer_embedded import (
    NamedPartitions,
    Subscription,
    read_subscription,
    version_of,
    write_assignment,
)
from ottla.coordinators.groups.consumer_group import CONSUMER, ConsumerGroup
from ottla.coordinators.groups.consumer_member import ConsumerMember, MemberFacts, MemberState, holding
from ottla.coordinators.groups.consumer_progress import Progress
from ottla.coordinators.groups.consumer_subscriptions import Subscriptions
from ottla.coordinators.groups.conversion import named
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import ClassicMemberMetadata, ClassicMemberProtocol
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.error_codes import ErrorCode
from ottla.errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    ProtocolError,
    RebalanceInProgress,
    Refusal,
    UnknownMemberId,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

JOIN_VERSION_REBALANCE_TIMEOUT = 1
JOIN_VERSION_MEMBER_ID_REQUIRED = 4
JOIN_VERSION_NULL_PROTOCOL = 7
LEAVE_VERSION_SEVERAL_MEMBERS = 3


class ClassicMembers:
    """Decides on the classic requests for consumer groups."""

    def __init__(
        self,
        groups: Groups,
        settings: GroupSettings,
        subscriptions: Subscriptions,
        progress: Progress,
        departures: Departures,
        new_member_id: Callable[[str], str],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._subscriptions = subscriptions
        self._progress = progress
        self._departures = departures
        self._new_member_id = new_member_id

    # --- JoinGroup -----------------------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        version: ApiVersion,
        client: ClientFacts,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """Take the member in, or back, and tell it its epoch."""
        group = self._group(request.group_id)
        self._check_join(group, request)
        subscription = _subscription(request)
        facts = _facts(request, version, client, subscription)
        instance_id = request.group_instance_id
        holder = group.static_member(instance_id)
        group.check_room(request.member_id, facts, holder)
        if not request.member_id and instance_id is None and version >= JOIN_VERSION_MEMBER_ID_REQUIRED:
            # It costs nothing until it comes back with the id, so nothing has to be remembered.
            response = JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED,
                member_id=self._new_member_id(client.client_id),
                protocol_name=None if version >= JOIN_VERSION_NULL_PROTOCOL else "",
            )
            outcome.reply(ticket, response)
            return
        member_id = request.member_id or self._new_member_id(client.client_id if instance_id is None else instance_id)
        if request.member_id and (instance_id is not None or subscription.owned):
            # An id that nobody has is that of somebody new, who was asked to come back with it. One that owns
            # partitions was let go meanwhile, and others have them by now: it has to hear so before anything else.
            claimed = group.claimed_member(member_id, instance_id)
            if claimed.epoch < 0:
                # It has said by the other protocol that it is away; whoever takes its place gets an id of its own.
                raise UnknownMemberId(f"{member_id!r} of group {request.group_id!r} is away")
        elif holder is not None:
            self._progress.put_in_place(group, holder, member_id, outcome)
        owned = self._owned(subscription.owned)
        self._hold_claimed(group, member_id, owned, outcome)
        member = self._progress.advance(request.group_id, member_id, facts, owned, None, outcome, now_ms, is_sure=True)
        outcome.reply(ticket, _joined(member))
        if not self._departures.convert_back(group, outcome, now_ms):
            self._expect_sync(group, member, outcome, now_ms)

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        shortest_ms, longest_ms = self._settings.session_timeout_ms_min, self._settings.session_timeout_ms_max
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise InvalidSessionTimeout(f"a session timeout has to be between {shortest_ms} and {longest_ms} ms")
        is_there = request.member_id in group.members or group.static_member(request.group_instance_id) is not None
        if not is_there and len(group.members) >= self._settings.consumer_members_max:
            raise GroupMaxSizeReached(
                f"group {request.group_id!r} has {len(group.members)} members, as many as it may have"
            )
        if request.protocol_type != CONSUMER or not _speaks(group, request):
            raise InconsistentGroupProtocol(
                f"members of group {request.group_id!r} have no protocol in common with this {request.protocol_type!r}"
            )

    def _owned(self, partitions: NamedPartitions) -> dict[bytes, set[int]]:
        """What the member says that it owns, of what there is: anything else would be held for it for ever."""
        view = self._subscriptions.view()
        owned: dict[bytes, set[int]] = {}
        for name, numbers in partitions.items():
            topic_id = view.topic_id(name)
            if topic_id is not None:
                count = view.partition_count(name)
                owned[topic_id] = {number for number in numbers if 0 <= number < count}
        return owned

    def _hold_claimed(
        self, group: ConsumerGroup, member_id: str, owned: dict[bytes, set[int]], outcome: Outcome
    ) -> None:
        """Let nobody have what a member still owns because it never heard that it should not."""
        member = group.members.get(member_id)
        if member is None:
            return
        claimed = {
            topic_id: free
            for topic_id, numbers in owned.items()
            if (free := frozenset(number for number in numbers if group.owner_of((topic_id, number)) is None))
        }
        if claimed:
            self._progress.record_step(group, holding(member, claimed), outcome)

    def _expect_sync(self, group: ConsumerGroup, member: ConsumerMember, outcome: Outcome, now_ms: int) -> None:
        group.deadlines.cancel(Wait.JOIN, member.member_id, outcome)
        self._expect_heartbeat(group, member, outcome, now_ms)
        sync_end_ms = now_ms + member.facts.rebalance_timeout_ms
        group.deadlines.set(Wait.SYNC, member.member_id, outcome, at_ms=sync_end_ms)

    def _expect_heartbeat(self, group: ConsumerGroup, member: ConsumerMember, outcome: Outcome, now_ms: int) -> None:
        assert member.facts.classic is not None, "only classic members come here"
        session_end_ms = now_ms + member.facts.classic.session_timeout_ms
        group.deadlines.set(Wait.SESSION, member.member_id, outcome, at_ms=session_end_ms)

    # --- SyncGroup and Heartbeat -----------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Tell the member what it may have."""
        group = self._group(request.group_id)
        member, classic = self._classic_member(
            group, request.member_id, request.group_instance_id, generation=request.generation_id
        )
        protocol_name = classic.supported_protocols[0].name
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol_name):
            raise InconsistentGroupProtocol(
                f"group {request.group_id!r} has told {member.member_id!r} that its protocol is {protocol_name!r}"
            )
        # Whoever has still to give back has joined since the epoch rose, and has to sync to learn what to give back.
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            raise RebalanceInProgress(f"group {request.group_id!r} has moved on to epoch {group.epoch}")
        group.deadlines.cancel(Wait.SYNC, member.member_id, outcome)
        self._expect_heartbeat(group, member, outcome, now_ms)
        partitions = named(member.assigned, self._subscriptions.view())
        response = SyncGroupResponse(
            protocol_type=CONSUMER,
            protocol_name=protocol_name,
            assignment=write_assignment(partitions, version=version_of(classic)),
        )
        outcome.reply(ticket, response)

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """The member is alive; tell it to join again if there is something for it to do."""
        group = self._group(request.group_id)
        member, _ = self._classic_member(
            group, request.member_id, request.group_instance_id, generation=request.generation_id
        )
        self._expect_heartbeat(group, member, outcome, now_ms)
        # Nobody leads, so nobody but the broker looks whether there are other topics than before.
        self._progress.raise_epoch(group, outcome, now_ms, force=False)
        error_code = ErrorCode.NONE
        if _has_to_join(group, member):
            error_code = ErrorCode.REBALANCE_IN_PROGRESS
            join_end_ms = now_ms + member.facts.rebalance_timeout_ms
            group.deadlines.set_if_none(Wait.JOIN, member.member_id, outcome, at_ms=join_end_ms)
        outcome.reply(ticket, HeartbeatResponse(error_code=error_code))

    # --- LeaveGroup --------------------------------------------------------------------------------------------------

    def leave(
        self, request: LeaveGroupRequest, version: ApiVersion, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        """Let members go: one of its own will, or several at an admin's, who may name members of both protocols."""
        group = self._group(request.group_id)
        if version < LEAVE_VERSION_SEVERAL_MEMBERS:
            self._departures.dismiss(group, [group.member(request.member_id)], outcome, now_ms)
            outcome.reply(ticket, LeaveGroupResponse())
            return
        leaving: dict[str, ConsumerMember] = {}
        answers = []
        for identity in request.members:
            error_code = ErrorCode.NONE
            try:
                member = _leaving(group, identity)
                leaving[member.member_id] = member
            except Refusal as refusal:
                error_code = refusal.code
            answers.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error_code
                )
            )
        if leaving:
            self._departures.dismiss(group, leaving.values(), outcome, now_ms)
        outcome.reply(ticket, LeaveGroupResponse(members=tuple(answers)))

    # --- who is it -----------------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.of_kind(group_id, ConsumerGroup)
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id!r} to be a member of")
        return group

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, *, generation: int
    ) -> tuple[ConsumerMember, ClassicMemberMetadata]:
        """The classic member that a request comes from. Raises UnknownMemberId, FencedInstanceId, IllegalGeneration."""
        member = group.claimed_member(member_id, instance_id)
        if member.facts.classic is None:
            raise UnknownMemberId(f"{member_id!r} of group {group.group_id!r} does not speak the classic protocol")
        if generation != member.epoch:
            raise IllegalGeneration(f"{member_id!r} is in generation {member.epoch}, not {generation}")
        return member, member.facts.classic


def _speaks(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """Whether one of these protocols is every other classic member's as well, so that they could be a group again."""
    common = {protocol.name for protocol in request.protocols}
    for member in group.members.values():
        if member.facts.classic is not None and member.member_id != request.member_id:
            common &= {protocol.name for protocol in member.facts.classic.supported_protocols}
    return bool(common)


def _subscription(request: JoinGroupRequest) -> Subscription:
    """What the member wants, as it says in the protocol that it likes best."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except ProtocolError as problem:
        raise InconsistentGroupProtocol(f"the member's subscription cannot be read: {problem}") from None


def _facts(
    request: JoinGroupRequest, version: ApiVersion, client: ClientFacts, subscription: Subscription
) -> MemberFacts:
    timeout_ms = request.rebalance_timeout_ms
    if version < JOIN_VERSION_REBALANCE_TIMEOUT or timeout_ms < 0:
        timeout_ms = request.session_timeout_ms
    return MemberFacts(
        client=client,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=timeout_ms,
        topic_names=subscription.topics,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms, supported_protocols=_recorded(request.protocols)
        ),
    )


def _recorded(protocols: Sequence[JoinGroupRequestProtocol]) -> tuple[ClassicMemberProtocol, ...]:
    return tuple(ClassicMemberProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in protocols)


def _joined(member: ConsumerMember) -> JoinGroupResponse:
    classic = member.facts.classic
    assert classic is not None, "it has just joined as one"
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=classic.supported_protocols[0].name,
        member_id=member.member_id,
    )


def _has_to_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the epoch has risen, something is to be given back, or something that it waits for is free."""
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    target = group.target_of(member.member_id)
    return any(
        group.owner_of((topic_id, number)) is None
        for topic_id, numbers in target.items()
        for number in numbers - member.assigned.get(topic_id, frozenset())
    )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is not None and not identity.member_id:
        found = group.static_member(identity.group_instance_id)
        if found is None:
            raise UnknownMemberId(f"group {group.group_id!r} has no instance {identity.group_instance_id!r}")
        return found
    return group.claimed_member(identity.member_id, identity.group_instance_id)
