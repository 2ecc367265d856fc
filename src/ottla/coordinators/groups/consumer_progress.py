"""What follows when a member of a consumer group is heard of: the group's epoch, the target, the member's next step.

    wishes or topics changed  ->  the group's epoch rises
    epoch above the target's  ->  a new target is made, once, for all members
    member not at the target  ->  it goes one step towards it

The same for members of both protocols; which requests bring a member here, and what it is told, is not known here.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ottla.coordinators.groups.assignors import Wish, assignor
from ottla.coordinators.groups.consumer_deadlines import Wait
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_member import (
    ConsumerMember,
    MemberFacts,
    MemberState,
    recorded_target,
)
from ottla.coordinators.groups.consumer_subscriptions import PATTERNS_SLICE_INTERVAL_MS, Subscriptions
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.reconciliation import Owned, is_less, reconciled
from ottla.coordinators.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.coordinators.groups.regex_subscriptions import Pattern
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import Outcome

PATTERNS = "patterns"
"""What the timer is for that goes on with a look at topics."""

_logger = logging.getLogger(__name__)


class Progress:
    """Moves groups and members on. Holds nothing itself; everything has been checked when it comes here."""

    def __init__(self, groups: Groups, settings: GroupSettings, subscriptions: Subscriptions) -> None:
        self._groups = groups
        self._settings = settings
        self._subscriptions = subscriptions

    # --- a member is heard of ----------------------------------------------------------------------------------

    def advance(
        self,
        group_id: str,
        member_id: str,
        facts: MemberFacts,
        owned: Owned | None,
        pattern: Pattern | None,
        outcome: Outcome,
        now_ms: int,
        *,
        is_sure: bool,
    ) -> ConsumerMember:
        """Take in what a member says of itself, and go on from there; returns the member as it is then.

        `is_sure` where it cannot have been told anything that it is still to take over.
        """
        group, subscription_changed = self._update(group_id, member_id, facts, pattern, outcome, now_ms)
        self.raise_epoch(group, outcome, now_ms, force=subscription_changed)
        if group.epoch > group.target_epoch:
            self._make_target(group, outcome, now_ms)
        member = group.member(member_id)
        if not member.is_at(group.target_epoch) and (is_sure or not self._may_own_more(group, member, owned, now_ms)):
            member = self._reconcile(group, member, owned, outcome, now_ms)
        return member

    def _may_own_more(self, group: ConsumerGroup, member: ConsumerMember, owned: Owned | None, now_ms: int) -> bool:
        """Whether the member may be about to own more than it says, so that it must not go on yet.

        It has said what it owned when it sent the heartbeat; what it was told just before it takes over meanwhile.
        Who has not done so for as long as a session lasts has something else in mind.
        """
        if group.unconfirmed_for_ms(member.member_id, now_ms) >= self._settings.consumer_session_timeout_ms:
            return False
        # Of a topic that is gone nobody is about to own anything.
        known = self._subscriptions.partition_counts
        return is_less(owned, {topic_id: each for topic_id, each in member.assigned.items() if topic_id in known})

    def _update(
        self,
        group_id: str,
        member_id: str,
        facts: MemberFacts,
        pattern: Pattern | None,
        outcome: Outcome,
        now_ms: int,
    ) -> tuple[ConsumerGroup, bool]:
        """Record what the member wants, where that is new; also says whether its subscription is."""
        group = self._groups.of_kind(group_id, ConsumerGroup)
        before = None if group is None else group.members.get(member_id)
        if before is None or before.facts != facts:
            key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
            outcome.write(key, facts.recorded())
        group = self._groups.of_kind(group_id, ConsumerGroup)
        assert group is not None, "the record of a member brings its group into being"
        group.became_empty_ms = None
        pattern_before = "" if before is None else before.facts.pattern
        if pattern_before != facts.pattern:
            self.forget_pattern(group, pattern_before, outcome)
            if pattern is not None and facts.pattern not in group.resolved:
                group.patterns[facts.pattern] = pattern
                self._record_pattern(group, facts.pattern, self._subscriptions.resolve(pattern), outcome, now_ms)
                group.patterns_looked_ms = now_ms
                if not pattern.is_finished:
                    self._go_on_looking(group, outcome, now_ms)
        names_before = None if before is None else before.facts.topic_names
        return group, names_before != facts.topic_names or pattern_before != facts.pattern

    def _record_pattern(
        self, group: ConsumerGroup, text: str, topics: frozenset[str], outcome: Outcome, now_ms: int
    ) -> None:
        key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=text)
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=self._subscriptions.version, timestamp=now_ms
        )
        outcome.write(key, value)

    def forget_pattern(self, group: ConsumerGroup, text: str, outcome: Outcome) -> None:
        """Nobody may be subscribed by this pattern any longer: then nothing of it is kept."""
        if text in group.resolved and not group.subscribers(text):
            key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=text)
            outcome.write(key, None)
            group.patterns.pop(text, None)

    # --- epochs ------------------------------------------------------------------------------------------------

    def raise_epoch(self, group: ConsumerGroup, outcome: Outcome, now_ms: int, *, force: bool) -> None:
        """Raise the group's epoch if wishes or topics have changed since it was last raised."""
        changed = force or group.epoch == 0
        if self._subscriptions.patterns_are_due(group, now_ms):
            changed |= self._look(group, outcome, now_ms)
        if not changed and group.topics_version_looked == self._subscriptions.version:
            return
        metadata_hash = self._subscriptions.metadata_hash(group)
        group.topics_version_looked = self._subscriptions.version
        if not changed and metadata_hash == group.metadata_hash:
            return
        self._write_epoch(group, metadata_hash, outcome)

    def look_on(self, group: ConsumerGroup, outcome: Outcome, now_ms: int) -> None:
        """Compare more topics with the group's patterns; a new target is made when the next member is heard of."""
        if self._subscriptions.is_looking(group) and self._look(group, outcome, now_ms):
            self._write_epoch(group, self._subscriptions.metadata_hash(group), outcome)

    def _look(self, group: ConsumerGroup, outcome: Outcome, now_ms: int) -> bool:
        """Compare as much as one decision may; says whether a pattern stands for other topics than before."""
        changed = self._subscriptions.resolve_again(group, now_ms)
        for text, topics in changed.items():
            self._record_pattern(group, text, topics, outcome, now_ms)
        self._go_on_looking(group, outcome, now_ms)
        return bool(changed)

    def _go_on_looking(self, group: ConsumerGroup, outcome: Outcome, now_ms: int) -> None:
        if self._subscriptions.is_looking(group):
            key = ("consumer", PATTERNS, group.group_id, "")
            outcome.set_timer(key, at_ms=now_ms + PATTERNS_SLICE_INTERVAL_MS)

    def _write_epoch(self, group: ConsumerGroup, metadata_hash: int, outcome: Outcome) -> None:
        value = ConsumerGroupMetadataValue(epoch=group.epoch + 1, metadata_hash=metadata_hash)
        outcome.write(ConsumerGroupMetadataKey(group_id=group.group_id), value)
        _logger.debug("group %s is in epoch %d", group.group_id, group.epoch)

    def raise_epoch_without(self, group: ConsumerGroup, outcome: Outcome, now_ms: int) -> None:
        """Members have gone. A new target is made when the next one is heard of, once for all that went."""
        metadata_hash = self._subscriptions.metadata_hash(group)
        group.topics_version_looked = self._subscriptions.version
        self._write_epoch(group, metadata_hash, outcome)
        if group.is_empty:
            group.became_empty_ms = now_ms

    # --- the target --------------------------------------------------------------------------------------------

    def _make_target(self, group: ConsumerGroup, outcome: Outcome, now_ms: int) -> None:
        """Ask the assignor, and record what is new in its answer."""
        wishes = {
            member_id: Wish(
                self._subscriptions.wanted_ids(group, member.facts),
                group.target_of(member_id),
                member.facts.instance_id,
            )
            for member_id, member in group.members.items()
        }
        name = group.preferred_assignor(self._settings.consumer_assignors)
        for member_id, target in assignor(name)(wishes, self._subscriptions.partition_counts).items():
            if target is not wishes[member_id].target:
                key = ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
                outcome.write(key, recorded_target(target))
        value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.epoch, assignment_timestamp=now_ms)
        outcome.write(ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), value)

    # --- a member's next step ------------------------------------------------------------------------------------

    def _reconcile(
        self, group: ConsumerGroup, member: ConsumerMember, owned: Owned | None, outcome: Outcome, now_ms: int
    ) -> ConsumerMember:
        after = reconciled(
            member,
            target=group.target_of(member.member_id),
            target_epoch=group.target_epoch,
            wanted=self._subscriptions.wanted_ids(group, member.facts),
            owned=owned,
            owner_of=group.owner_of,
        )
        if after != member:
            self.record_step(group, after, outcome)
        if after.state is not MemberState.UNREVOKED_PARTITIONS:
            group.deadlines.cancel(Wait.REVOCATION, member.member_id, outcome)
        else:
            at_ms = now_ms + after.facts.rebalance_timeout_ms
            if _gave_back(member, after):
                group.deadlines.cancel(Wait.REVOCATION, member.member_id, outcome)
            group.deadlines.set_if_none(Wait.REVOCATION, member.member_id, outcome, at_ms=at_ms)
        return after

    def record_step(self, group: ConsumerGroup, member: ConsumerMember, outcome: Outcome) -> None:
        """Write down where a member has got to."""
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
        outcome.write(key, member.recorded())

    # --- members go and change places ------------------------------------------------------------------------------

    def remove(self, group: ConsumerGroup, member: ConsumerMember, outcome: Outcome) -> None:
        """Write the tombstones of a member; `raise_epoch_without` follows once all who go are gone."""
        group_id, member_id = group.group_id, member.member_id
        group.deadlines.cancel_all(member_id, outcome)
        outcome.write(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        outcome.write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        outcome.write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
        self.forget_pattern(group, member.facts.pattern, outcome)

    def put_in_place(
        self, group: ConsumerGroup, old: ConsumerMember, new_member_id: str, outcome: Outcome
    ) -> ConsumerMember:
        """A static member is back under a new id: it takes over all that the old one had."""
        group_id = group.group_id
        displaced = group.members.get(new_member_id)
        if displaced is not None:
            self.remove(group, displaced, outcome)
        target = group.target_of(old.member_id)
        new = replace(old, member_id=new_member_id, epoch=0, previous_epoch=0)
        group.deadlines.cancel_all(old.member_id, outcome)
        outcome.write(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=old.member_id), None)
        outcome.write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=old.member_id), None)
        outcome.write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=old.member_id), None)
        outcome.write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=new_member_id), new.facts.recorded())
        outcome.write(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=new_member_id), recorded_target(target)
        )
        self.record_step(group, new, outcome)
        return new


def _gave_back(before: ConsumerMember, after: ConsumerMember) -> bool:
    """Whether the member did what it was told, so that for the next thing it has as long as ever."""
    return any(
        not numbers <= after.revoking.get(topic_id, frozenset()) for topic_id, numbers in before.revoking.items()
    )
