"""A member of a consumer group: what it wants, what it has, and how its records tell both.

Plain values, replaced and never changed. What the group makes of them is in `consumer_group`, how a member gets
from what it has to what it shall have in `reconciliation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from ottla.coordinators.groups.assignors import NOTHING, Assignment
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member that says it will be back: it keeps its partitions until its session ends."""
NO_TIMEOUT = -1

_NOBODY = ClientFacts("", "")


class MemberState(IntEnum):
    """Where a member is on its way to the target; the numbers are those of its record."""

    STABLE = 0
    """It has what the epoch of its own gives it."""
    UNREVOKED_PARTITIONS = 1
    """It has been told to give partitions back, and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given back."""


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """What a member tells of itself."""

    client: ClientFacts = _NOBODY
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topic_names: frozenset[str] = frozenset()
    pattern: str = ""
    """Topics by regular expression; empty for none."""
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """What it said in JoinGroup, while it speaks the classic protocol."""

    def recorded(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client.client_id,
            client_host=self.client.client_host,
            subscribed_topic_names=tuple(sorted(self.topic_names)),
            subscribed_topic_regex=self.pattern,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )


def restored_facts(value: ConsumerGroupMemberMetadataValue) -> MemberFacts:
    """A member's facts, as its record tells them."""
    return MemberFacts(
        client=ClientFacts(value.client_id, value.client_host),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or "",
        assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


_NO_FACTS = MemberFacts()


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member."""

    member_id: str
    facts: MemberFacts = _NO_FACTS
    epoch: int = 0
    previous_epoch: int = 0
    """The one before: the member may come with it once more, when the answer that told it the next was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    """What it may use, and what it owns until it says otherwise."""
    revoking: Assignment = field(default_factory=lambda: NOTHING)
    """What it owns too, but has to give back."""

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.facts.classic is not None

    def is_at(self, target_epoch: int) -> bool:
        """Whether it has all that the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def with_epoch(self, epoch: int) -> ConsumerMember:
        if epoch == self.epoch:
            return self
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def recorded(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Where it has got to."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_recorded(self.assigned),
            partitions_pending_revocation=_recorded(self.revoking),
        )

    def restored(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """The same member, where its record says that it has got to."""
        revoking = _restored(value.partitions_pending_revocation)
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_state(value.state, is_revoking=bool(revoking)),
            assigned=_restored(value.assigned_partitions),
            revoking=revoking,
        )


def holding(member: ConsumerMember, claimed: Assignment) -> ConsumerMember:
    """The member, with partitions that it says it owns, that it should not, and that nobody else has: to give back."""
    if not claimed:
        return member
    revoking = {
        topic_id: member.revoking.get(topic_id, frozenset()) | claimed.get(topic_id, frozenset())
        for topic_id in (*member.revoking, *claimed)
    }
    return replace(member, state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)


def recorded_target(assignment: Assignment) -> ConsumerGroupTargetAssignmentMemberValue:
    """What a member shall have, as its record holds it."""
    parts = tuple(
        TopicPartition(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(assignment.items())
    )
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=parts)


def restored_target(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    """What a member shall have, from its record."""
    return {part.topic_id: frozenset(part.partitions) for part in value.topic_partitions if part.partitions}


def _recorded(assignment: Assignment) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(assignment.items())
    )


def _restored(parts: Sequence[TopicPartitions]) -> Assignment:
    return {part.topic_id: frozenset(part.partitions) for part in parts if part.partitions}


def _state(number: int, *, is_revoking: bool) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        # A state of a later Kafka. Either of these has the member looked at again, and gives nothing away.
        return MemberState.UNREVOKED_PARTITIONS if is_revoking else MemberState.UNRELEASED_PARTITIONS
