"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat, as Kafka 4's coordinator answers it.

Members say what they want and what they own, the broker says what they shall have. Requests are checked here, before
anything is written; what follows is in `consumer_progress`. Members of the classic protocol in a consumer group are in
`consumer_classic`, groups that change their kind in `conversion`.

Where Ottla does more than Kafka: a heartbeat for a group that is gone is told that its member is unknown, after which
clients join by themselves; a static member may repeat a join whose answer it missed; an assignment is told again with
every answer until the member says that it owns just that; and a heartbeat that says less may have been sent before
the member took over what it was told, so that nothing of it goes to others at once. Not done: racks have no say in
assignments, and patterns match topics whatever the member may read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ottla.coordinators.groups import consumer_describe, consumer_replay
from ottla.coordinators.groups.assignors import NOTHING
from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.classic_member import ApiVersion
from ottla.coordinators.groups.consumer_classic import ClassicMembers
from ottla.coordinators.groups.consumer_deadlines import Wait
from ottla.coordinators.groups.consumer_departures import Departures
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberFacts,
    MemberState,
)
from ottla.coordinators.groups.consumer_progress import PATTERNS, Progress
from ottla.coordinators.groups.consumer_requests import check_request, is_full, owned_partitions, told
from ottla.coordinators.groups.consumer_subscriptions import Subscriptions
from ottla.coordinators.groups.conversion import Conversion, Upgrade
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.reconciliation import Owned
from ottla.coordinators.groups.regex_subscriptions import Pattern
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from ottla.protocol.messages import consumer_group_describe, describe_groups
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.schema import Message

_logger = logging.getLogger(__name__)


class _Beat(NamedTuple):
    """A heartbeat, with what belongs to it."""

    request: ConsumerGroupHeartbeatRequest
    client: ClientFacts
    ticket: Ticket
    owned: Owned | None


class ConsumerProtocol:
    """Decides on the requests of consumer groups."""

    def __init__(
        self,
        groups: Groups,
        settings: GroupSettings,
        topics: Callable[[], TopicsView],
        new_member_id: Callable[[str], str],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._new_member_id = new_member_id
        self._subscriptions = Subscriptions(topics)
        self._progress = Progress(groups, settings, self._subscriptions)
        self._conversion = Conversion(groups, settings)
        self._departures = Departures(self._progress, self._conversion, self._subscriptions)
        self._classic = ClassicMembers(
            groups, settings, self._subscriptions, self._progress, self._departures, new_member_id
        )

    # --- ConsumerGroupHeartbeat --------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: ApiVersion,
        client: ClientFacts,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """A member joins, stays, or leaves."""
        check_request(request, version, self._settings)
        if request.member_epoch == LEAVE_EPOCH:
            self._leave(request, ticket, outcome, now_ms)
        elif request.member_epoch == STATIC_LEAVE_EPOCH:
            self._leave_for_a_while(request, ticket, outcome)
        elif request.member_epoch == JOIN_EPOCH:
            self._join(_Beat(request, client, ticket, {}), outcome, now_ms)
        else:
            self._stay(_Beat(request, client, ticket, owned_partitions(request.topic_partitions)), outcome, now_ms)

    def _stay(self, beat: _Beat, outcome: Outcome, now_ms: int) -> None:
        request = beat.request
        group = self._group(request.group_id)
        member = group.claimed_member(request.member_id, request.instance_id)
        _check_epoch(member, request.member_epoch, beat.owned)
        facts = _updated(member.facts, request, beat.client)
        group.check_room(member.member_id, facts, None)
        pattern = None
        if request.subscribed_topic_regex:
            pattern = self._subscriptions.compile(group, request.subscribed_topic_regex)
        self._go_on(beat, member, facts, pattern, outcome, now_ms)

    def _join(self, beat: _Beat, outcome: Outcome, now_ms: int) -> None:
        """Somebody new, a static member that is back, or a member that was fenced and begins anew."""
        request = beat.request
        member_id = request.member_id or self._new_member_id(beat.client.client_id)
        plan = self._plan_upgrade(request.group_id)
        group = self._groups.of_kind(request.group_id, ConsumerGroup)
        # Whatever refuses the join must be found before anything is written, so it is looked for in the group that
        # there will be.
        if plan is not None:
            joined = plan.group()
        else:
            joined = group or ConsumerGroup(request.group_id)
        self._check_count(request, member_id, joined)
        holder = joined.static_member(request.instance_id)
        if holder is not None and holder.member_id != member_id:
            _check_released(holder, request)
        member = holder or joined.members.get(member_id) or ConsumerMember(member_id)
        facts = _updated(member.facts, request, beat.client)
        joined.check_room(member_id, facts, holder)
        pattern = self._subscriptions.compile(group, request.subscribed_topic_regex or "")
        if plan is not None:
            self._conversion.upgrade(plan, outcome, now_ms)
            group = self._groups.of_kind(request.group_id, ConsumerGroup)
        if group is not None and holder is not None and holder.member_id != member_id:
            member = self._progress.put_in_place(group, holder, member_id, outcome)
        self._go_on(beat, member, facts, pattern, outcome, now_ms)

    def _go_on(
        self,
        beat: _Beat,
        member: ConsumerMember,
        facts: MemberFacts,
        pattern: Pattern | None,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """Take in what the member says, move it on, and tell it where it is."""
        request = beat.request
        before = member
        # Who joins owns nothing, whatever it was told before.
        is_joining = request.member_epoch == JOIN_EPOCH
        member = self._progress.advance(
            request.group_id, member.member_id, facts, beat.owned, pattern, outcome, now_ms, is_sure=is_joining
        )
        group = self._group(request.group_id)
        if before.is_classic:
            # What only classic members are waited for with. It may have to give back as before.
            group.deadlines.cancel(Wait.JOIN, member.member_id, outcome)
            group.deadlines.cancel(Wait.SYNC, member.member_id, outcome)
        session_end_ms = now_ms + self._settings.consumer_session_timeout_ms
        group.deadlines.set(Wait.SESSION, member.member_id, outcome, at_ms=session_end_ms)
        is_open = group.note_owned(member, beat.owned, now_ms, has_changed=member.assigned != before.assigned)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._settings.consumer_heartbeat_interval_ms,
            assignment=told(member.assigned) if is_open or is_full(request) else None,
        )
        outcome.reply(ticket=beat.ticket, response=response)

    def _plan_upgrade(self, group_id: str) -> Upgrade | None:
        classic = self._groups.of_kind(group_id, ClassicGroup)
        return None if classic is None else self._conversion.plan_upgrade(classic, self._subscriptions.view())

    def _check_count(self, request: ConsumerGroupHeartbeatRequest, member_id: str, group: ConsumerGroup) -> None:
        is_there = member_id in group.members or group.static_member(request.instance_id) is not None
        if not is_there and len(group.members) >= self._settings.consumer_members_max:
            raise GroupMaxSizeReached(
                f"group {request.group_id!r} has {len(group.members)} members, "
                "as many as group.consumer.max.size allows"
            )

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.of_kind(group_id, ConsumerGroup)
        if group is None:
            raise UnknownMemberId(f"there is no consumer group {group_id!r} to be a member of")
        return group

    # --- leaving -------------------------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeatRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        group = self._group(request.group_id)
        member = group.claimed_member(request.member_id, request.instance_id)
        _logger.debug("%s leaves group %s", member.member_id, group.group_id)
        self._departures.dismiss(group, [member], outcome, now_ms)
        outcome.reply(ticket, ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH))

    def _leave_for_a_while(self, request: ConsumerGroupHeartbeatRequest, ticket: Ticket, outcome: Outcome) -> None:
        """A static member goes and says that it will be back: until its session ends, all that it has stays its own."""
        group = self._group(request.group_id)
        member = group.claimed_member(request.member_id, request.instance_id)
        if member.is_classic:
            # It never learned an epoch to go on from, and in a classic group this one would be a generation.
            raise UnknownMemberId(f"{member.member_id!r} of group {group.group_id!r} speaks the classic protocol")
        # It consumes no more, so what it was giving back is free; what it has waits for whoever takes its place.
        gone = replace(
            member,
            epoch=STATIC_LEAVE_EPOCH,
            previous_epoch=STATIC_LEAVE_EPOCH,
            state=MemberState.STABLE,
            revoking=NOTHING,
        )
        self._progress.record_step(group, gone, outcome)
        group.deadlines.cancel(Wait.REVOCATION, member.member_id, outcome)
        outcome.reply(
            ticket, ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=STATIC_LEAVE_EPOCH)
        )

    # --- classic members ---------------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        version: ApiVersion,
        client: ClientFacts,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """JoinGroup for a consumer group."""
        self._classic.join(request, version, client, ticket, outcome, now_ms)

    def sync(self, request: SyncGroupRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """SyncGroup for a consumer group."""
        self._classic.sync(request, ticket, outcome, now_ms)

    def heartbeat_classic(self, request: HeartbeatRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Heartbeat for a consumer group."""
        self._classic.heartbeat(request, ticket, outcome, now_ms)

    def leave(
        self, request: LeaveGroupRequest, version: ApiVersion, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        """LeaveGroup for a consumer group."""
        self._classic.leave(request, version, ticket, outcome, now_ms)

    # --- tools ---------------------------------------------------------------------------------------------------

    def described(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        """A consumer group, as ConsumerGroupDescribe answers."""
        group = self._groups.of_kind(group_id, ConsumerGroup)
        if group is None:
            raise GroupIdNotFound(f"there is no consumer group {group_id!r}")
        return consumer_describe.described(group, self._subscriptions.view(), self._settings)

    def described_as_classic(self, group_id: str) -> describe_groups.DescribedGroup:
        """A consumer group, as DescribeGroups would answer if it were classic, for tools that know no other API."""
        group = self._groups.of_kind(group_id, ConsumerGroup)
        if group is None:
            raise GroupIdNotFound(f"there is no consumer group {group_id!r}")
        return consumer_describe.described_as_classic(group, self._subscriptions.view(), self._settings)

    # --- the rest of a state machine -----------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None) -> None:
        """Let the groups follow a record."""
        consumer_replay.replay(self._groups, key, value)

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        """All that was recorded is here again: members get a fresh session, and as long as ever to give back."""
        for group in self._groups:
            if isinstance(group, ConsumerGroup):
                group.became_empty_ms = None if group.members else now_ms
                for member in group.members.values():
                    self._departures.expect(group, member, outcome, now_ms, self._settings)
        self._conversion.loaded(outcome, now_ms)

    def expire_embedded(self, outcome: Outcome, now_ms: int) -> None:
        """The process is a new one: members that ran in the old one are not waited for."""
        for group in self._groups:
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    if member.facts.client.ends_with_broker:
                        group.deadlines.set(Wait.SESSION, member.member_id, outcome, at_ms=now_ms)

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        """A member was not heard of in time, or did not do in time what it was told."""
        _, wait, group_id, member_id = key
        group = self._groups.of_kind(group_id, ConsumerGroup)
        if group is not None and wait == PATTERNS:
            self._progress.look_on(group, outcome, now_ms)
            return
        if group is None or not group.deadlines.take_due(key, outcome, now_ms):
            return
        member = group.members.get(member_id)
        if member is not None:
            _logger.info("group %s lets go of %s: its %s took too long", group_id, member_id, wait)
            self._departures.dismiss(group, [member], outcome, now_ms)

    def topics_changed(self, outcome: Outcome, now_ms: int) -> None:
        """Topics came, went or grew: groups look at theirs when one of their members is next heard of."""
        self._subscriptions.topics_changed()


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raise FencedMemberEpoch for a member that is not where it thinks it is."""
    if epoch == member.epoch:
        return
    # The answer that brought it the present epoch may have been lost. What it owns tells that it goes on from there.
    if epoch == member.previous_epoch and owned is not None and _is_part(owned, member):
        return
    raise FencedMemberEpoch(
        f"{member.member_id!r} is in epoch {member.epoch}, not {epoch}; it has to give up its partitions and join again"
    )


def _is_part(owned: Owned, member: ConsumerMember) -> bool:
    return all(numbers <= member.assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items())


def _check_released(holder: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise UnreleasedInstanceId unless the instance id's holder has said that it leaves, or is a classic member.

    Classic members cannot say it, so whoever comes with their instance id takes their place, as among themselves.
    """
    if holder.epoch != STATIC_LEAVE_EPOCH and not holder.is_classic:
        raise UnreleasedInstanceId(
            f"instance {request.instance_id!r} of group {request.group_id!r} still belongs to {holder.member_id!r}"
        )


def _updated(before: MemberFacts, request: ConsumerGroupHeartbeatRequest, client: ClientFacts) -> MemberFacts:
    """What is known of the member after this heartbeat; what it leaves out is as before."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    after = MemberFacts(
        client=client,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms,
        topic_names=before.topic_names if names is None else frozenset(names),
        pattern=before.pattern if pattern is None else pattern,
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
    )
    return before if after == before else after
