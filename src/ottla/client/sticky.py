"""The balance of the sticky assignors: as even as subscriptions allow, with as few moves as possible.

Pure. Where all members want the same topics nobody has more than one partition more than anybody else, and no
partition moves that need not. Where they differ, what is kept stays, what is free goes to whoever has least, and
partitions then move along chains of members as long as that makes the shares more even.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from ottla.client.subscriptions import MemberSubscription
from ottla.client.values import TopicPartition


def balance(members: Sequence[MemberSubscription], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Every partition that somebody wants, to exactly one member."""
    ordered = sorted(members, key=lambda member: member.rank)
    if not ordered:
        return {}
    kept = _kept(ordered, counts)
    wanted = frozenset().union(*(member.topics for member in ordered))
    everything = [
        TopicPartition(topic, number) for topic in sorted(wanted & counts.keys()) for number in range(counts[topic])
    ]
    existing = [member.topics & counts.keys() for member in ordered]
    if all(topics == existing[0] for topics in existing):
        return _balance_equal(kept, everything)
    return _Chains(ordered, kept, everything).balanced()


def _kept(members: Sequence[MemberSubscription], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """What each member may keep of what it says it had."""
    claims: dict[TopicPartition, list[MemberSubscription]] = {}
    for member in members:
        for key in dict.fromkeys(member.owned):
            if key.topic in member.topics and 0 <= key.partition < counts.get(key.topic, 0):
                claims.setdefault(key, []).append(member)
    kept: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for key, claimants in sorted(claims.items()):
        newest = max(member.generation for member in claimants)
        owners = [member for member in claimants if member.generation == newest]
        # Two who had it in the same generation: one of them is wrong, and nobody can tell which.
        if len(owners) == 1:
            kept[owners[0].member_id].append(key)
    return kept


def _balance_equal(
    kept: dict[str, list[TopicPartition]], everything: Sequence[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    share, extra = divmod(len(everything), len(kept))
    found: dict[str, list[TopicPartition]] = {}
    # Those who have most come first: they keep one more without a move.
    for member_id, owned in sorted(kept.items(), key=lambda each: -len(each[1])):
        limit = share
        if extra and len(owned) > share:
            limit, extra = share + 1, extra - 1
        found[member_id] = owned[:limit]
    given = {key for owned in found.values() for key in owned}
    free = deque(key for key in everything if key not in given)
    for member_id in kept:
        while len(found[member_id]) < share:
            found[member_id].append(free.popleft())
    for member_id in kept:
        if extra and len(found[member_id]) == share:
            found[member_id].append(free.popleft())
            extra -= 1
    assert not free, "the shares add up to the whole"
    return {member_id: sorted(found[member_id]) for member_id in kept}


class _Chains:
    """Members that want different topics."""

    def __init__(
        self,
        members: Sequence[MemberSubscription],
        kept: dict[str, list[TopicPartition]],
        everything: Sequence[TopicPartition],
    ) -> None:
        self._held = {member_id: set(owned) for member_id, owned in kept.items()}
        topics = {key.topic for key in everything}
        self._readers = {
            topic: [member.member_id for member in members if topic in member.topics] for topic in sorted(topics)
        }
        self._everything = everything

    def balanced(self) -> dict[str, list[TopicPartition]]:
        given = set().union(*self._held.values())
        free = [key for key in self._everything if key not in given]
        # Those that few can read come first; the others even it out.
        for key in sorted(free, key=lambda key: (len(self._readers[key.topic]), key)):
            readers = self._readers[key.topic]
            self._held[min(readers, key=lambda reader: len(self._held[reader]))].add(key)
        # Every shift makes the sum of the squares smaller, so there is a last one.
        while any(self._shift_from(member_id) for member_id in self._by_load()):
            pass
        return {member_id: sorted(held) for member_id, held in self._held.items()}

    def _by_load(self) -> list[str]:
        return sorted(self._held, key=lambda member_id: -len(self._held[member_id]))

    def _shift_from(self, start: str) -> bool:
        """Hand one partition on, over as few members as possible, to one that has at least two less."""
        came_from: dict[str, tuple[str, TopicPartition]] = {}
        waiting = deque([start])
        while waiting:
            giver = waiting.popleft()
            for topic, key in sorted({key.topic: key for key in sorted(self._held[giver])}.items()):
                for taker in self._readers[topic]:
                    if taker == start or taker in came_from:
                        continue
                    came_from[taker] = (giver, key)
                    if len(self._held[taker]) + 2 <= len(self._held[start]):
                        self._hand_on(start, taker, came_from)
                        return True
                    waiting.append(taker)
        return False

    def _hand_on(self, start: str, taker: str, came_from: Mapping[str, tuple[str, TopicPartition]]) -> None:
        while taker != start:
            giver, key = came_from[taker]
            self._held[giver].remove(key)
            self._held[taker].add(key)
            taker = giver
