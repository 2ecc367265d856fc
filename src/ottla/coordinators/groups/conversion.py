"""Groups between the protocols: classic to consumer when a member of the new protocol joins, and back after the last.

    upgrade     what the classic members have becomes what they own, so nothing is read twice meanwhile; they are told
                to join again, and go on with JoinGroup, SyncGroup and Heartbeat inside the consumer group
    downgrade   the classic members that are left get a classic group with what they own, and rebalance

An empty group is converted by beginning anew. Committed offsets belong to the name of a group, not to its kind.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ottla.coordinators.groups.assignors import NOTHING, Assignment
from ottla.coordinators.groups.classic_group import ASSIGNMENTS_BYTES_MAX, MEMBERS_BYTES_MAX, ClassicGroup
from ottla.coordinators.groups.classic_member import ClassicMember, session_key
from ottla.coordinators.groups.classic_rebalance import Rebalances
from ottla.coordinators.groups.classic_replies import refuse_all
from ottla.coordinators.groups.consumer_deadlines import Wait
from ottla.coordinators.groups.consumer_embedded import (
    EmbeddedReader,
    NamedPartitions,
    Subscription,
    version_of,
    write_assignment,
)
from ottla.coordinators.groups.consumer_group import CONSUMER, ConsumerGroup
from ottla.coordinators.groups.consumer_member import ConsumerMember, MemberFacts, holding, recorded_target
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.records import (
    ClassicMemberMetadata,
    ClassicMemberProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.coordinators.outcome import Outcome
from ottla.error_codes import ErrorCode
from ottla.errors import GroupIdNotFound, ProtocolError

_JOIN_VERSION_OWN_ID = 4
"""Before it, a member learns its id with the first generation that it is in."""

_logger = logging.getLogger(__name__)


class Upgrade(NamedTuple):
    """A classic group that can become a consumer group, and the members that it will have."""

    classic: ClassicGroup
    members: tuple[ConsumerMember, ...]

    def group(self) -> ConsumerGroup:
        """The group that there will be, held by nobody. Raises GroupMaxSizeReached if it would be too large."""
        group = ConsumerGroup(self.classic.group_id)
        for member in self.members:
            group.check_room(member.member_id, member.facts, None)
            group.put_member(member)
        return group


class Conversion:
    """Turns groups of one kind into groups of the other."""

    def __init__(self, groups: Groups, settings: GroupSettings) -> None:
        self._groups = groups
        self._settings = settings
        self._rebalances = Rebalances(groups, settings)

    # --- classic to consumer -----------------------------------------------------------------------------------

    def plan_upgrade(self, classic: ClassicGroup, view: TopicsView) -> Upgrade:
        """Look whether the group can be converted; nothing is written. Raises GroupIdNotFound, as Kafka answers."""
        if not classic.members:
            return Upgrade(classic, ())
        if not self._settings.consumer_migration_upgrade:
            raise GroupIdNotFound(
                f"group {classic.group_id!r} is a classic group, and group.consumer.migration.policy keeps it so"
            )
        if classic.protocol_type != CONSUMER:
            raise GroupIdNotFound(f"group {classic.group_id!r} is one of {classic.protocol_type!r}, not of consumers")
        if len(classic.members) > self._settings.consumer_members_max:
            raise GroupIdNotFound(f"group {classic.group_id!r} has too many members for a consumer group")
        try:
            return Upgrade(classic, _consumer_members(classic, view))
        except ProtocolError as problem:
            raise GroupIdNotFound(
                f"group {classic.group_id!r} cannot be converted to the consumer protocol: {problem}"
            ) from None

    def upgrade(self, plan: Upgrade, outcome: Outcome, now_ms: int) -> None:
        """Write the consumer group in the classic one's place."""
        classic, group_id = plan.classic, plan.classic.group_id
        # Whoever waits for the end of a rebalance is told to join again, and will find the new group.
        refuse_all(classic, ErrorCode.REBALANCE_IN_PROGRESS, outcome)
        sessions = (member.session_key for member in classic.members.values())
        for timer in (classic.join_key, classic.sync_key, *sessions):
            outcome.cancel_timer(timer)
        for member_id in classic.pending:
            outcome.cancel_timer(session_key(group_id, member_id))
        classic.delete(outcome)
        self._groups.remove(group_id)  # Where it was never recorded, no replay has done it.
        if not plan.members:
            return
        for member in plan.members:
            key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
            outcome.write(key, member.facts.recorded())
        epoch = ConsumerGroupMetadataValue(epoch=classic.generation)
        outcome.write(ConsumerGroupMetadataKey(group_id=group_id), epoch)
        for member in plan.members:
            target_key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member.member_id)
            outcome.write(target_key, recorded_target(member.assigned))
        target_epoch = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=classic.generation)
        outcome.write(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), target_epoch)
        group = self._groups.of_kind(group_id, ConsumerGroup)
        assert group is not None, "its records bring the group into being"
        for member in plan.members:
            step_key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
            outcome.write(step_key, member.recorded())
            assert member.facts.classic is not None
            session_end_ms = now_ms + member.facts.classic.session_timeout_ms
            group.deadlines.set(Wait.SESSION, member.member_id, outcome, at_ms=session_end_ms)
        _logger.info("group %s with %d members speaks the consumer protocol now", group_id, len(plan.members))

    # --- consumer to classic -----------------------------------------------------------------------------------

    def plan_downgrade(self, group: ConsumerGroup, view: TopicsView, now_ms: int) -> GroupMetadataValue | None:
        """What the classic group would be, if all who are left speak its protocol and may have a group of their own."""
        if not (
            self._settings.consumer_migration_downgrade
            and 0 < len(group.members) <= self._settings.members_max
            and all(member.is_classic for member in group.members.values())
        ):
            return None
        value = _classic_value(group, view, now_ms)
        if not _is_recordable(value):
            _logger.warning("group %s is too large for a classic group, and stays a consumer group", group.group_id)
            return None
        return value

    def downgrade(self, group: ConsumerGroup, value: GroupMetadataValue, outcome: Outcome, now_ms: int) -> None:
        """Write the classic group in the consumer group's place, and have its members rebalance."""
        group_id = group.group_id
        group.delete(outcome)
        outcome.write(GroupMetadataKey(group=group_id), value)
        classic = self._groups.of_kind(group_id, ClassicGroup)
        assert classic is not None, "its record brings the group into being"
        for member in classic.members.values():
            member.expect_heartbeat(outcome, now_ms)
        self._rebalances.begin(classic, "the last member of the consumer protocol has left", outcome, now_ms)
        _logger.info("group %s with %d members speaks the classic protocol again", group_id, len(classic.members))

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        """A restart may have come between a downgrade and the rebalance that it ends with: that begins now."""
        for group in self._groups:
            if isinstance(group, ClassicGroup) and group.members and group.leader_id is None:
                self._rebalances.begin(group, "it was a consumer group", outcome, now_ms)


def _consumer_members(classic: ClassicGroup, view: TopicsView) -> tuple[ConsumerMember, ...]:
    """The members as the consumer group will have them: at the generation's epoch, with what the leader assigned."""
    taken: set[tuple[bytes, int]] = set()
    reader = EmbeddedReader.of_group()
    members = []
    claims = []
    for member in classic.members.values():
        if member.is_new and (member.parked_join is None or member.parked_join.version < _JOIN_VERSION_OWN_ID):
            continue  # It does not know its id, and would never be heard of under it again.
        subscription = reader.subscription(_best_metadata(member, classic.protocol_name))
        by_leader = reader.assignment(member.assignment)
        if by_leader.has_user_data:
            raise ProtocolError(f"the assignor of {member.member_id!r} sends its own data along, which would be lost")
        assigned = _not_taken(by_leader.partitions, view, taken)
        facts = _facts(member, subscription)
        epoch = classic.generation
        members.append(ConsumerMember(member.member_id, facts, epoch, previous_epoch=epoch, assigned=assigned))
        claims.append(subscription.owned)
    # A cooperative member may still own what the leader took from it: it has to give that back before others get it.
    return tuple(holding(member, _not_taken(claim, view, taken)) for member, claim in zip(members, claims, strict=True))


def _facts(member: ClassicMember, subscription: Subscription) -> MemberFacts:
    return MemberFacts(
        client=member.client,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=subscription.topics,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=tuple(
                ClassicMemberProtocol(name=name, metadata=metadata) for name, metadata in member.protocols.items()
            ),
        ),
    )


def _best_metadata(member: ClassicMember, protocol_name: str | None) -> bytes:
    """What the member said in the protocol that the group had chosen; before any was, in the one it likes best."""
    if protocol_name in member.protocols:
        return member.protocols[protocol_name]
    return next(iter(member.protocols.values()), b"")


def _not_taken(partitions: NamedPartitions, view: TopicsView, taken: set[tuple[bytes, int]]) -> Assignment:
    """Those that exist and that nobody has; from now on they are taken."""
    found: dict[bytes, frozenset[int]] = {}
    for name, numbers in partitions.items():
        topic_id = view.topic_id(name)
        if topic_id is not None:
            count = view.partition_count(name)
            mine = frozenset(n for n in numbers if 0 <= n < count and (topic_id, n) not in taken)
            if mine:
                found[topic_id] = mine
                taken.update((topic_id, number) for number in mine)
    return found or NOTHING


def _classic_value(group: ConsumerGroup, view: TopicsView, now_ms: int) -> GroupMetadataValue:
    """A generation of the members that are left, with all that they own, so that nothing of it can go to others.

    It has no leader: nobody has assigned it, and it lasts until its members have joined the next one.
    """
    protocol = common_protocol(group)
    members = []
    for member in group.members.values():
        classic = member.facts.classic
        assert classic is not None, "only classic members are left"
        metadata = next((p.metadata for p in classic.supported_protocols if p.name == protocol), b"")
        owned = named(holding(member, member.assigned).revoking, view)
        members.append(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.facts.instance_id,
                client_id=member.facts.client.client_id,
                client_host=member.facts.client.client_host,
                rebalance_timeout=member.facts.rebalance_timeout_ms,
                session_timeout=classic.session_timeout_ms,
                subscription=metadata,
                assignment=write_assignment(owned, version=version_of(classic)),
            )
        )
    return GroupMetadataValue(
        protocol_type=CONSUMER,
        # Not the group's epoch: members that are up to date shall be told to join, not that their generation is over.
        # Nor a negative one, which would say that there is none: such is the epoch of a member that is away.
        generation=max(0, *(member.epoch for member in group.members.values())),
        protocol=protocol,
        leader=None,
        current_state_timestamp=now_ms,
        members=tuple(members),
    )


def _is_recordable(value: GroupMetadataValue) -> bool:
    """Whether the one record that holds a classic group, with all its members, is one that can be appended."""
    brought_bytes = sum(
        len(member.subscription)
        + len(member.member_id.encode())
        + len((member.group_instance_id or "").encode())
        + len(member.client_id.encode())
        for member in value.members
    )
    assigned_bytes = sum(len(member.assignment) for member in value.members)
    return brought_bytes <= MEMBERS_BYTES_MAX and assigned_bytes <= ASSIGNMENTS_BYTES_MAX


def common_protocol(group: ConsumerGroup) -> str:
    """A protocol that all classic members speak, the first one's favourite among them."""
    spoken = [
        [protocol.name for protocol in member.facts.classic.supported_protocols]
        for member in group.members.values()
        if member.facts.classic is not None
    ]
    return next((name for name in spoken[0] if all(name in names for names in spoken)), spoken[0][0])


def named(assignment: Assignment, view: TopicsView) -> dict[str, frozenset[int]]:
    """An assignment by the names of its topics, without those that are gone."""
    found = ((view.topic_name(topic_id), numbers) for topic_id, numbers in assignment.items())
    return {name: numbers for name, numbers in found if name is not None}
