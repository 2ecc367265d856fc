"""ListGroups, DescribeGroups and DeleteGroups for one shard: what groups there are, and the end of one.

A group that has offsets and no more, be they committed or pending, is a group too: it is listed as an empty classic
one, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.coordinators.groups.groups import Group, Groups
from ottla.coordinators.groups.offsets import Offsets
from ottla.coordinators.groups.offsets_pending import PendingOffsets
from ottla.coordinators.outcome import Outcome
from ottla.errors import GroupIdNotFound, NonEmptyGroup
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest

CLASSIC = "classic"
EMPTY = "Empty"
DEAD = "Dead"


class Listing:
    """The groups of one shard, as tools see them."""

    def __init__(self, groups: Groups, offsets: Offsets, pending: PendingOffsets) -> None:
        self._groups = groups
        self._offsets = offsets
        self._pending = pending

    def listed(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """The groups that pass the filters; upper and lower case make no difference."""
        states = _folded(request.states_filter)
        types = _folded(request.types_filter)
        return [
            listed
            for listed in self._all()
            if (not states or listed.group_state.lower() in states)
            and (not types or listed.group_type.lower() in types)
        ]

    def is_group(self, group_id: str) -> bool:
        return group_id in self._groups or self._offsets.has_group(group_id) or self._pending.has_group(group_id)

    def delete(self, group_id: str, outcome: Outcome) -> None:
        """Delete a group that nobody is in, and its offsets, also those of transactions that have not ended."""
        group = self._groups.get(group_id)
        if not self.is_group(group_id):
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        if group is not None and not group.is_empty:
            raise NonEmptyGroup(f"group {group_id!r} still has members; stop them first")
        self._offsets.delete_group(group_id, outcome)
        self._pending.delete_group(group_id, outcome)
        if group is not None:
            group.delete(outcome)

    def _all(self) -> Iterator[ListedGroup]:
        for group in self._groups:
            yield _listed(group)
        for group_id in dict.fromkeys(self._offsets.group_ids() + self._pending.group_ids()):
            if group_id not in self._groups:
                yield ListedGroup(group_id=group_id, group_state=EMPTY, group_type=CLASSIC)


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state_name,
        group_type=group.type_name,
    )


def _folded(filters: Sequence[str]) -> frozenset[str]:
    return frozenset(text.lower() for text in filters)
