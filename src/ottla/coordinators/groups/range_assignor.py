"""The range assignor: the partitions of each topic in rows, the members in order, so that equal topics go together.

Two topics with as many partitions and the same subscribers give each member the same numbers of both, which is
what joins of two topics need. Not sticky: a member's place in the row decides, not what it had.
"""

from __future__ import annotations

from ottla.coordinators.groups.assignors import Assignment, PartitionCounts, Wishes, same_if_equal


def assign_ranges(wishes: Wishes, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """See the module."""
    drafts: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in wishes}
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(wishes, key=lambda member_id: _place(member_id, wishes[member_id].instance_id)):
        for topic_id in wishes[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, members in subscribers.items():
        share, larger_shares = divmod(partition_counts.get(topic_id, 0), len(members))
        start = 0
        for number, member_id in enumerate(members):
            end = start + share + (number < larger_shares)
            if end == start:
                break  # Whoever comes later in the row gets no more than this one.
            drafts[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {member_id: same_if_equal(wishes[member_id].target, draft) for member_id, draft in drafts.items()}


def _place(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    # Static members come first, by a name that survives a restart, so that their rows stay where they are.
    return (instance_id is None, member_id if instance_id is None else instance_id)
