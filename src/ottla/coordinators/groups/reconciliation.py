"""How a member gets from what it has to what it shall have, one heartbeat at a time. Pure.

First it gives back what it shall not have; only when it says that it did, it moves on to the target's epoch and
gets what is free; what others still hold it gets in later heartbeats. So no partition ever has two owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from ottla.coordinators.groups.assignors import NOTHING, Assignment
from ottla.coordinators.groups.consumer_member import ConsumerMember, MemberState

Owned = Mapping[bytes, Set[int]]
"""What a member says that it owns."""
OwnerOf = Callable[[tuple[bytes, int]], str | None]
"""Who owns a partition, or has still to give it back."""

_NO_PARTITIONS: frozenset[int] = frozenset()


def reconciled(
    member: ConsumerMember,
    *,
    target: Assignment,
    target_epoch: int,
    wanted: Set[bytes],
    owned: Owned | None,
    owner_of: OwnerOf,
) -> ConsumerMember:
    """The member one step further, or as it is where it cannot go on. It is not at the target yet.

    `wanted` are the ids of the topics that it is subscribed to now: whatever the target says, it gets no others.
    `owned` is None where the member did not say.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(owned, member.revoking):
        return _without_unwanted(member, wanted)
    return _next(member, target, target_epoch, wanted, owned, owner_of)


def is_less(owned: Owned | None, assigned: Assignment) -> bool:
    """Whether the member says that it does not own all of these."""
    if owned is None:
        return False
    return any(not numbers <= owned.get(topic_id, _NO_PARTITIONS) for topic_id, numbers in assigned.items())


def _still_owns(owned: Owned | None, revoking: Assignment) -> bool:
    """Whether the member has still to give some of these back; a member that does not say has not."""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(owned.get(topic_id, _NO_PARTITIONS)) for topic_id, numbers in revoking.items())


def _next(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    wanted: Set[bytes],
    owned: Owned | None,
    owner_of: OwnerOf,
) -> ConsumerMember:
    kept: dict[bytes, frozenset[int]] = {}
    revoking: dict[bytes, frozenset[int]] = {}
    for topic_id, numbers in member.assigned.items():
        stays = numbers & target.get(topic_id, _NO_PARTITIONS) if topic_id in wanted else _NO_PARTITIONS
        if stays:
            kept[topic_id] = stays
        if len(stays) < len(numbers):
            revoking[topic_id] = numbers - stays
    if revoking and _still_owns(owned, revoking):
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    waits = False
    assigned = dict(kept)
    for topic_id, numbers in target.items():
        if topic_id not in wanted:
            continue
        here = kept.get(topic_id, _NO_PARTITIONS)
        # What the member was to give back and has given back is free for itself, too.
        free = frozenset(
            number for number in numbers - here if owner_of((topic_id, number)) in (None, member.member_id)
        )
        waits = waits or len(here) + len(free) < len(numbers)
        if free:
            assigned[topic_id] = here | free
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return replace(member.with_epoch(target_epoch), state=state, assigned=assigned, revoking=NOTHING)


def _without_unwanted(member: ConsumerMember, wanted: Set[bytes]) -> ConsumerMember:
    """A member that is still giving back, without topics that it has left meanwhile: these it gives back as well."""
    unwanted = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id not in wanted}
    if not unwanted:
        return member
    kept = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id in wanted}
    revoking = dict(member.revoking)
    for topic_id, numbers in unwanted.items():
        revoking[topic_id] = revoking.get(topic_id, _NO_PARTITIONS) | numbers
    return replace(member, assigned=kept, revoking=revoking)
