"""The groups of one shard, by their ids, whatever protocol they speak.

Holds them and no more: classic groups are made and changed by `classic`, consumer groups by `consumer`. What the
rest of a shard asks of a group, be it for offsets or for a listing, is the contract `Group`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from ottla.coordinators.outcome import Outcome
from ottla.errors import InvalidGroupId


def check_group_id(group_id: str) -> None:
    """Refuse the one name that no group may have. Our own client is stricter; on the wire Kafka's rule holds."""
    if not group_id:
        raise InvalidGroupId("a group's name may not be empty")


class Group(Protocol):
    """What any group can be asked."""

    @property
    def group_id(self) -> str: ...

    @property
    def type_name(self) -> str:
        """As ListGroups tells it: "classic" or "consumer"."""
        ...

    @property
    def protocol_type(self) -> str:
        """What the members are, as they say themselves; "consumer" for all that consume, empty before any joined."""
        ...

    @property
    def state_name(self) -> str:
        """As tools print it: "Empty", "Stable", ..."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no member, nor one that is about to join."""
        ...

    @property
    def empty_since_ms(self) -> int | None:
        """When it became empty, by the clock that its records carry; None where that is not known, or not so."""
        ...

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> None:
        """Raise the Refusal for a commit that does not come from a member of the present generation or epoch."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise the Refusal for a question for offsets by a member that is none; a null id and -1 may always ask.

        A classic group lets anybody ask.
        """
        ...

    def note_commit(self, member_id: str, outcome: Outcome, now_ms: int) -> None:
        """A member has committed, so it is alive."""
        ...

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members read; None where that cannot be told, so that no topic counts as abandoned."""
        ...

    def delete(self, outcome: Outcome) -> None:
        """Write the tombstones that remove the group; its offsets are not its own."""
        ...


G = TypeVar("G")


class Groups:
    """The groups of one shard."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, Group] = {}

    def get(self, group_id: str) -> Group | None:
        return self._by_id.get(group_id)

    def of_kind(self, group_id: str, kind: type[G]) -> G | None:
        """The group if it is of this kind; None too if there is one of another kind."""
        found = self._by_id.get(group_id)
        return found if isinstance(found, kind) else None

    def add(self, group: Group) -> None:
        """Hold a group, in the place of any other of its id. For replay, and for groups that are not recorded yet."""
        self._by_id[group.group_id] = group

    def remove(self, group_id: str) -> None:
        """Let go of a group; fine if there is none."""
        self._by_id.pop(group_id, None)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_id

    def __iter__(self) -> Iterator[Group]:
        """All of them, as they are now: the caller may add and remove meanwhile."""
        return iter(tuple(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)
