"""How the leader of a classic group shares partitions out: range, round-robin, sticky, cooperative-sticky.

Pure: subscriptions and partition counts in, an assignment out. The names and the results of the first two are
Kafka's, since any member of a mixed group may lead. `sticky` holds the balancing of the other two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from types import MappingProxyType
from typing import NamedTuple

from ottla.client.sticky import balance
from ottla.client.subscriptions import MemberSubscription
from ottla.client.values import TopicPartition

Assignment = dict[str, list[TopicPartition]]
"""Each member's partitions; every member is there, also with none."""
Counts = Mapping[str, int]
"""How many partitions each topic has; a topic that is not there is left out."""


def assign_range(members: Sequence[MemberSubscription], counts: Counts) -> Assignment:
    """Topic by topic: neighbouring partitions to each member, one more to the first ones where it does not divide."""
    found: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: member.rank)
    for topic, count in sorted(counts.items()):
        readers = [member for member in ordered if topic in member.topics]
        if not readers:
            continue
        share, extra = divmod(count, len(readers))
        start = 0
        for index, member in enumerate(readers):
            end = start + share + (1 if index < extra else 0)
            found[member.member_id] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return found


def assign_round_robin(members: Sequence[MemberSubscription], counts: Counts) -> Assignment:
    """All partitions of all topics in order, to one member after the other."""
    found: Assignment = {member.member_id: [] for member in members}
    wanted = frozenset().union(*(member.topics for member in members)) if members else frozenset()
    turns = cycle(sorted(members, key=lambda member: member.rank))
    for topic, count in sorted(counts.items()):
        if topic not in wanted:
            continue
        for number in range(count):
            member = next(each for each in turns if topic in each.topics)
            found[member.member_id].append(TopicPartition(topic, number))
    return found


def assign_sticky(members: Sequence[MemberSubscription], counts: Counts) -> Assignment:
    """Balanced, with as many partitions as possible left where they are."""
    return balance(members, counts)


def assign_cooperative(members: Sequence[MemberSubscription], counts: Counts) -> Assignment:
    """The same in two steps: what another member still reads is taken from that one now, and given out next time."""
    found = balance(members, counts)
    claims: dict[TopicPartition, set[str]] = {}
    for member in members:
        for key in member.owned:
            claims.setdefault(key, set()).add(member.member_id)
    return {
        member_id: [key for key in partitions if claims.get(key, set()) <= {member_id}]
        for member_id, partitions in found.items()
    }


class Assignor(NamedTuple):
    """One way to share partitions out."""

    name: str
    assign: Callable[[Sequence[MemberSubscription], Counts], Assignment]
    is_cooperative: bool
    """Whether members keep reading during a rebalance."""
    previous_in_user_data: bool
    """Whether members tell what they had in the user data, as the eager sticky assignor has always done."""


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {
        each.name: each
        for each in (
            Assignor("range", assign_range, is_cooperative=False, previous_in_user_data=False),
            Assignor("roundrobin", assign_round_robin, is_cooperative=False, previous_in_user_data=False),
            Assignor("sticky", assign_sticky, is_cooperative=False, previous_in_user_data=True),
            Assignor("cooperative-sticky", assign_cooperative, is_cooperative=True, previous_in_user_data=False),
        )
    }
)
"""By the name that members agree on."""
