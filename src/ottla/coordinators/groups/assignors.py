"""The assignors that a broker offers, and what they work on: plain values in, an assignment out.

An assignor is told who wants which topics and who shall have what so far, and says who shall have what from now
on. It knows no epochs, no sessions and no records; who owns a partition at the moment is not its business either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by the id of their topic; a topic without partitions is left out."""

NOTHING: Assignment = MappingProxyType({})


class Wish(NamedTuple):
    """A member, as an assignor sees it."""

    topics: frozenset[bytes]
    """The ids of the topics that it is subscribed to, of those that exist."""
    target: Assignment = NOTHING
    """What it was to have until now; some of it may not exist any more, or not be wanted."""
    instance_id: str | None = None


Wishes = Mapping[str, Wish]
"""By member id."""
PartitionCounts = Mapping[bytes, int]
"""How many partitions each topic has."""
Assignor = Callable[[Wishes, PartitionCounts], dict[str, Assignment]]
"""Every member of the wishes is in the answer; who keeps exactly what it had gets the same object back."""


def assignor(name: str) -> Assignor:
    """The assignor of this name. Names are checked when settings are read and when members ask for one."""
    return ASSIGNORS[name]()


def _uniform() -> Assignor:
    from ottla.coordinators.groups.uniform import assign_uniformly

    return assign_uniformly


def _range() -> Assignor:
    from ottla.coordinators.groups.range_assignor import assign_ranges

    return assign_ranges


ASSIGNORS: Mapping[str, Callable[[], Assignor]] = MappingProxyType({"uniform": _uniform, "range": _range})
"""All that there are, by the names that Kafka gave them."""


def same_if_equal(before: Assignment, after: Assignment) -> Assignment:
    """`before` where nothing has changed, so that a look at the object tells."""
    return before if before == after else after
