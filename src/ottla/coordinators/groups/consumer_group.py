"""A consumer group (KIP-848): its members, its epochs, and the questions that the rest of the broker asks of it.

What is recorded changes in `consumer_replay` only, through the few methods here that say so. Soft are the deadlines,
the compiled patterns, which version of the topics the group has looked at, and who has still to confirm its
assignment. What to do about any of it is decided in `consumer` and its neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.coordinators.groups.assignors import NOTHING, Assignment
from ottla.coordinators.groups.consumer_deadlines import Deadlines, Wait
from ottla.coordinators.groups.consumer_limits import check_room, member_bytes
from ottla.coordinators.groups.consumer_member import ConsumerMember, MemberFacts
from ottla.coordinators.groups.reconciliation import Owned
from ottla.coordinators.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.coordinators.groups.regex_subscriptions import Pattern
from ottla.coordinators.outcome import Outcome
from ottla.errors import FencedInstanceId, IllegalGeneration, StaleMemberEpoch, UnknownMemberId

CONSUMER = "consumer"
NEVER_LOOKED = -1
NO_GENERATION = -1


class ConsumerGroup:
    """One consumer group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        """Rises with every change of members' wishes or of the topics that they are subscribed to."""
        self.metadata_hash = 0
        self.target_epoch = 0
        """For which epoch the targets were made."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.resolved: dict[str, frozenset[str]] = {}
        """The topics of each pattern that members are subscribed by."""
        self.deadlines = Deadlines(group_id)
        self.patterns: dict[str, Pattern] = {}
        self.patterns_looked_ms = 0
        self.topics_version_looked = NEVER_LOOKED
        """Up to which change of the topics the metadata hash is known to hold."""
        self.names_version_looked = NEVER_LOOKED
        """Up to which change of the topics the patterns have been compared."""
        self.became_empty_ms: int | None = None
        self._unconfirmed_ms: dict[str, int] = {}
        self._static_ids: dict[str, str] = {}
        self._owners: dict[tuple[bytes, int], str] = {}
        self._subscriptions: dict[frozenset[str], frozenset[str]] = {}
        self._member_bytes: dict[str, int] = {}
        self._size_bytes = 0

    # --- questions that any group is asked ------------------------------------------------------------------

    @property
    def type_name(self) -> str:
        return "consumer"

    @property
    def protocol_type(self) -> str:
        return CONSUMER

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_at(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def empty_since_ms(self) -> int | None:
        # No record tells: it is known since the last member left, or since this broker read the group back.
        return None if self.members else self.became_empty_ms

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> None:
        """Raise the Refusal for a commit that does not come from a member of this epoch.

        A transaction need not say which member it commits for; if it does, that is checked.
        """
        if generation < 0 and not self.members:
            return  # An admin, or a consumer that assigns itself.
        if is_transactional and generation == NO_GENERATION and not member_id and group_instance_id is None:
            return
        self._check_epoch(self.member(member_id), generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise the Refusal for a question by a member that is none, or of another epoch."""
        if member_id is None and member_epoch < 0:
            return
        self._check_epoch(self.member(member_id or ""), member_epoch)

    def _check_epoch(self, member: ConsumerMember, epoch: int) -> None:
        if epoch != member.epoch:
            reason = f"{member.member_id!r} of group {self.group_id!r} is in epoch {member.epoch}, not {epoch}"
            raise IllegalGeneration(reason) if member.is_classic else StaleMemberEpoch(reason)

    def note_commit(self, member_id: str, outcome: Outcome, now_ms: int) -> None:
        """A commit says that a classic member is alive; others have to send heartbeats, whatever else they do."""
        member = self.members.get(member_id)
        if member is not None and member.facts.classic is not None:
            at_ms = now_ms + member.facts.classic.session_timeout_ms
            self.deadlines.set(Wait.SESSION, member_id, outcome, at_ms=at_ms)

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members read, by name or by pattern."""
        names = {id(subscription): subscription for subscription in self._each_subscription()}
        return frozenset().union(*names.values())

    def _each_subscription(self) -> Iterator[frozenset[str]]:
        for member in self.members.values():
            yield member.facts.topic_names
        yield from self.resolved.values()

    def delete(self, outcome: Outcome) -> None:
        """Write the tombstones that remove the group; the last one lets go of it."""
        group_id = self.group_id
        for member_id in list(self.members):
            outcome.write(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        for member_id in list(self.targets):
            outcome.write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        outcome.write(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
        for member_id in list(self.members):
            self.deadlines.cancel_all(member_id, outcome)
            outcome.write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
        for pattern in list(self.resolved):
            outcome.write(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)
        outcome.write(ConsumerGroupMetadataKey(group_id=group_id), None)

    # --- questions of the protocol ---------------------------------------------------------------------------

    def member(self, member_id: str) -> ConsumerMember:
        """The member of this id. Raises UnknownMemberId."""
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"group {self.group_id!r} has no member {member_id!r}")
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Whom the instance id belongs to."""
        if instance_id is None:
            return None
        return self.members.get(self._static_ids.get(instance_id, ""))

    def claimed_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that a request says it comes from. Raises UnknownMemberId, FencedInstanceId."""
        if instance_id is None:
            return self.member(member_id)
        found = self.static_member(instance_id)
        if found is None:
            raise UnknownMemberId(f"group {self.group_id!r} has no instance {instance_id!r}")
        if found.member_id != member_id:
            raise FencedInstanceId(f"instance {instance_id!r} of group {self.group_id!r} is now {found.member_id!r}")
        return found

    def check_room(self, member_id: str, facts: MemberFacts, holder: ConsumerMember | None) -> None:
        """Raise GroupMaxSizeReached if what a member brings does not fit; what it had, or who had its place, goes."""
        known = self.members.get(member_id)
        if known is not None and known.facts is facts:
            return
        present = {member_id} if holder is None else {member_id, holder.member_id}
        check_room(
            self.group_id,
            member_bytes=member_bytes(self.group_id, member_id, facts),
            before_bytes=sum(self._member_bytes.get(each, 0) for each in present),
            group_bytes=self._size_bytes,
        )

    def owner_of(self, partition: tuple[bytes, int]) -> str | None:
        """Who owns a partition, or has still to give it back."""
        return self._owners.get(partition)

    def note_owned(self, member: ConsumerMember, owned: Owned | None, now_ms: int, *, has_changed: bool) -> bool:
        """Note what a heartbeat says that its member owns; whether it has still to say that of all it is assigned.

        The answer that told it may have been lost. Not every client asks again then: librdkafka takes the next answer
        without an assignment for one to what it has, and would keep for ever what others wait for.
        """
        if owned is not None and owned == member.assigned:
            self._unconfirmed_ms.pop(member.member_id, None)
        elif has_changed:
            self._unconfirmed_ms[member.member_id] = now_ms
        elif owned is not None:
            self._unconfirmed_ms.setdefault(member.member_id, now_ms)
        return member.member_id in self._unconfirmed_ms

    def unconfirmed_for_ms(self, member_id: str, now_ms: int) -> int:
        """For how long a member has owed us a word that it owns what it was told; 0 where it owes none."""
        return now_ms - self._unconfirmed_ms.get(member_id, now_ms)

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def subscribers(self, pattern: str) -> int:
        """How many members are subscribed by this pattern."""
        return sum(member.facts.pattern == pattern for member in self.members.values())

    def preferred_assignor(self, offered: tuple[str, ...]) -> str:
        """What most members ask for, of those that the broker offers; at a tie, or if none does, its first."""
        votes = Counter(member.facts.assignor for member in self.members.values())
        return max(offered, key=lambda name: votes[name])

    # --- changed by records only -----------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        """Hold a member as it is now."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._release(before)
        if before is None or before.facts is not member.facts:
            self._count(member.member_id, member_bytes(self.group_id, member.member_id, member.facts))
        self.members[member.member_id] = member
        if member.facts.instance_id is not None:
            self._static_ids[member.facts.instance_id] = member.member_id
        for assignment in (member.assigned, member.revoking):
            for topic_id, numbers in assignment.items():
                for number in numbers:
                    self._owners[topic_id, number] = member.member_id

    def drop_member(self, member_id: str) -> None:
        """Let go of a member and of what it owned; fine if there is none."""
        member = self.members.pop(member_id, None)
        self._unconfirmed_ms.pop(member_id, None)
        if member is not None:
            self._release(member)
            self._count(member_id, 0)

    def _count(self, member_id: str, size_bytes: int) -> None:
        self._size_bytes += size_bytes - self._member_bytes.pop(member_id, 0)
        if size_bytes:
            self._member_bytes[member_id] = size_bytes

    def _release(self, member: ConsumerMember) -> None:
        instance_id = member.facts.instance_id
        if instance_id is not None and self._static_ids.get(instance_id) == member.member_id:
            del self._static_ids[instance_id]
        for assignment in (member.assigned, member.revoking):
            for topic_id, numbers in assignment.items():
                for number in numbers:
                    # Where records overlap, as they may while a log is read, the later one counts.
                    if self._owners.get((topic_id, number)) == member.member_id:
                        del self._owners[topic_id, number]

    def shared(self, topic_names: frozenset[str]) -> frozenset[str]:
        """One object for equal subscriptions, so that a look at the object tells that two are equal."""
        if len(self._subscriptions) > 2 * len(self.members) + 8:
            self._subscriptions = {names: names for names in self._each_subscription()}
        return self._subscriptions.setdefault(topic_names, topic_names)
