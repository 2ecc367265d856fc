"""A group of 500 members on 1,000 partitions, for both protocols: who has what after each change.

How long it takes is measured by `python -m bench.big_group`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from ottla.client.values import TopicPartition
from tests.coordinators.groups.big_group import ClassicMember, ConsumerMember, Coordinator, Member

MEMBERS = 500
TOPICS = {"orders": 600, "payments": 300, "refunds": 100}
PARTITIONS = sum(TOPICS.values())
SHARE = PARTITIONS // MEMBERS
BEAT_MS = 3_000
ROUNDS_MAX = 20

pytestmark = pytest.mark.slow

Owners = dict[TopicPartition, int]
"""The place of the member that has a partition."""


class Group:
    """The members, and what they have come to."""

    def __init__(self, new: Callable[[Coordinator, int], Member]) -> None:
        self.coordinator = Coordinator(dict(TOPICS))
        self._new = new
        self._made = 0
        self.members: dict[int, Member] = {}

    def join(self, count: int) -> None:
        for _ in range(count):
            self._made += 1
            self.members[self._made] = self._new(self.coordinator, self._made)

    def leave(self, places: list[int]) -> None:
        for place in places:
            self.members.pop(place).leave()

    def settle(self) -> Owners:
        """Let all speak in turn until they agree; no partition has two owners on the way."""
        for _ in range(ROUNDS_MAX):
            for member in self.members.values():
                member.turn()
                self.coordinator.scheduler.run()
            owners = self.owners()
            self.coordinator.scheduler.advance(BEAT_MS)
            if len({member.generation for member in self.members.values()}) == 1 and len(owners) == PARTITIONS:
                return owners
        pytest.fail(f"not stable after {ROUNDS_MAX} rounds")

    def owners(self) -> Owners:
        """Who has what among the members of the newest generation; nobody has what somebody else has."""
        newest = max(member.generation for member in self.members.values())
        owners: Owners = {}
        for place, member in self.members.items():
            if member.generation == newest:
                for key in member.owned:
                    assert key not in owners, f"{key} has two owners in generation {newest}"
                    owners[key] = place
        return owners


def shares(owners: Owners) -> set[int]:
    return set(Counter(owners.values()).values())


def moved(before: Owners, after: Owners) -> set[TopicPartition]:
    return {key for key, owner in before.items() if after[key] != owner}


@pytest.fixture(params=[ClassicMember, ConsumerMember], ids=["classic", "consumer"])
def group(request: pytest.FixtureRequest) -> Group:
    made = Group(request.param)
    made.join(MEMBERS)
    return made


def test_everybody_gets_the_same_share_and_changes_move_no_more_than_they_must(group: Group) -> None:
    before = group.settle()
    assert shares(before) == {SHARE}

    group.leave([MEMBERS // 2])
    without = group.settle()
    assert shares(without) == {SHARE, SHARE + 1}
    assert moved(before, without) == {key for key, owner in before.items() if owner == MEMBERS // 2}

    group.join(1)
    again = group.settle()
    assert shares(again) == {SHARE}
    assert len(moved(without, again)) == SHARE
    assert {again[key] for key in moved(without, again)} == {MEMBERS + 1}


def test_the_group_goes_on_as_it_was_when_the_coordinator_begins_anew(group: Group) -> None:
    before = group.settle()
    generation = group.members[1].generation
    group.coordinator.crash()
    for _ in range(2):
        assert group.settle() == before
        assert group.members[1].generation == generation
    group.leave([1])
    assert moved(before, group.settle()) == {key for key, owner in before.items() if owner == 1}


def test_many_leave_in_the_same_moment_and_the_others_share_what_they_had(group: Group) -> None:
    before = group.settle()
    leavers = list(range(1, 101))
    group.leave(leavers)
    after = group.settle()
    assert shares(after) == {2, 3}
    assert moved(before, after) == {key for key, owner in before.items() if owner in leavers}
