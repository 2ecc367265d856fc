"""How far a group has read: positions as users write them, and as a consumer has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ottla.client.errors import NoGroup
from ottla.client.group_member import GroupMember
from ottla.client.group_names import check_group_name
from ottla.client.values import Committed, TopicPartition
from ottla.errors import InvalidRequest

Positions = Mapping[tuple[str, int], "int | Committed"]
"""Where to go on in partitions, as a user writes it."""


class Progress(NamedTuple):
    """How far a group has read, and who says so."""

    group: str
    offsets: dict[TopicPartition, Committed]
    member: GroupMember | None = None
    """None: nobody in particular."""


class Reader(Protocol):
    """A consumer of either face."""

    def progress(self) -> Progress:
        """How far it has read."""
        ...


def checked_offset(value: int) -> int:
    """An offset or a time that can be."""
    if value < 0:
        raise InvalidRequest(f"{value} is neither an offset nor a time: both are 0 or more")
    return value


def as_committed(positions: Positions) -> dict[TopicPartition, Committed]:
    """Positions as a user writes them, checked."""
    found: dict[TopicPartition, Committed] = {}
    for (topic, partition), place in positions.items():
        entry = place if isinstance(place, Committed) else Committed(place)
        found[TopicPartition(topic, partition)] = entry._replace(offset=checked_offset(entry.offset))
    return found


def progress_of(source: Reader | Progress | Positions, group: str | None) -> Progress:
    """What a user wants to be stored: a consumer's progress, or positions of a group that is named."""
    if isinstance(source, Mapping):
        if group is None:
            raise NoGroup("positions are stored for a group: name it with group=")
        return Progress(check_group_name(group), as_committed(source))
    found = source if isinstance(source, Progress) else source.progress()
    if group is not None and group != found.group:
        raise InvalidRequest(f"the consumer is in group {found.group!r}, not in {group!r}")
    return found
