"""The uniform assignor: as even as subscriptions allow, and moving as little as that takes.

Where all members are subscribed to the same topics, as in most groups, nobody has more than one partition more
than anybody else, and this takes one pass over members and partitions. Where they are not, `uniform_mixed` does it.
"""

from __future__ import annotations

from ottla.coordinators.groups.assignors import NOTHING, Assignment, PartitionCounts, Wish, Wishes, same_if_equal
from ottla.coordinators.groups.uniform_mixed import assign_mixed


def assign_uniformly(wishes: Wishes, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """See the module."""
    # Members that want nothing, or nothing that exists, do not make the others' wishes unequal.
    takers = {member_id: wish for member_id, wish in wishes.items() if wish.topics}
    assigned: dict[str, Assignment]
    if len({wish.topics for wish in takers.values()}) <= 1:
        assigned = _assign_equal(takers, partition_counts)
    else:
        assigned = assign_mixed(takers, partition_counts)
    return {
        member_id: same_if_equal(wish.target, assigned.get(member_id, NOTHING)) for member_id, wish in wishes.items()
    }


def _assign_equal(wishes: Wishes, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """For members that are all subscribed to the same topics."""
    if not wishes:
        return {}
    # In the order of ids, so that one state of a group has one answer.
    topics = sorted(next(iter(wishes.values())).topics)
    free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in topics}
    share, larger_shares = divmod(sum(partition_counts[topic_id] for topic_id in topics), len(wishes))
    kept: dict[str, dict[bytes, set[int]]] = {}
    kept_counts: dict[str, int] = {}
    for member_id in sorted(wishes):
        # A larger share goes to whoever has so much already: each that keeps one more is one move less.
        quota = share + (larger_shares > 0)
        kept[member_id] = _keep(wishes[member_id], free, quota)
        kept_counts[member_id] = sum(map(len, kept[member_id].values()))
        larger_shares -= share < kept_counts[member_id]
    _deal(kept, kept_counts, free, share=share, larger_shares=larger_shares)
    return {
        member_id: {topic_id: frozenset(numbers) for topic_id, numbers in sorted(parts.items()) if numbers}
        for member_id, parts in kept.items()
    }


def _keep(wish: Wish, free: dict[bytes, set[int]], quota: int) -> dict[bytes, set[int]]:
    """What the member keeps of what it had: all that exists and fits, taken out of `free`."""
    kept: dict[bytes, set[int]] = {}
    for topic_id, numbers in sorted(wish.target.items()):
        there = free.get(topic_id)
        if there is None:
            continue
        mine = there & numbers
        if len(mine) > quota:
            mine = set(sorted(mine)[:quota])
        if mine:
            there -= mine
            kept[topic_id] = mine
            quota -= len(mine)
    return kept


def _deal(
    kept: dict[str, dict[bytes, set[int]]],
    kept_counts: dict[str, int],
    free: dict[bytes, set[int]],
    *,
    share: int,
    larger_shares: int,
) -> None:
    """Hand out what is free, in turn like cards, so that the partitions of one topic come to many members.

    Those who have least come first: they take up to the common share, then the larger shares are handed out.
    """
    cards = ((topic_id, number) for topic_id, numbers in free.items() for number in sorted(numbers))
    hands = sorted((count, member_id) for member_id, count in kept_counts.items() if count <= share)
    rising = 0
    for level in range(hands[0][0] if hands else share, share):
        while rising < len(hands) and hands[rising][0] <= level:
            rising += 1
        for _, member_id in hands[:rising]:
            topic_id, number = next(cards)
            kept[member_id].setdefault(topic_id, set()).add(number)
    for _, member_id in hands[:larger_shares]:
        topic_id, number = next(cards)
        kept[member_id].setdefault(topic_id, set()).add(number)
    assert next(cards, None) is None, "shares add up to all partitions"
