"""How partitions are shared out by the leader of a classic group."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.assignors import (
    ASSIGNORS,
    Assignment,
    assign_cooperative,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from ottla.client.subscriptions import MemberSubscription
from ottla.client.values import TopicPartition

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

TOPICS = ("a", "b", "c")
COUNTS = st.fixed_dictionaries({"a": st.integers(1, 9)}, optional={"b": st.integers(1, 9), "c": st.integers(1, 9)})
SUBSCRIPTIONS = st.sampled_from([frozenset(text) for text in ("a", "b", "c", "ab", "ac", "bc", "abc")])
OWNED = st.lists(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 10)), max_size=6).map(tuple)


def member(name: str, *topics: str, owned: str = "", generation: int = -1) -> MemberSubscription:
    """`owned` names partitions of topic t, as in "0 1 2"."""
    partitions = tuple(TopicPartition("t", int(number)) for number in owned.split())
    return MemberSubscription(name, frozenset(topics or ("t",)), partitions, generation)


def numbers(assignment: Assignment) -> dict[str, list[int]]:
    return {name: sorted(key.partition for key in partitions) for name, partitions in assignment.items()}


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False) -> tuple[list[MemberSubscription], dict[str, int]]:
    """Members with what they had before, which may be out of date and contradict each other."""
    counts = draw(COUNTS)
    wanted = draw(SUBSCRIPTIONS)
    members = [
        MemberSubscription(
            f"m{number}", wanted if equal else draw(SUBSCRIPTIONS), draw(OWNED), draw(st.integers(-1, 3))
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    return members, counts


def wanted_partitions(members: list[MemberSubscription], counts: dict[str, int]) -> set[TopicPartition]:
    topics = set().union(*(each.topics for each in members))
    return {TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@given(group=groups())
def test_every_wanted_partition_has_one_owner_who_wants_it(
    name: str, group: tuple[list[MemberSubscription], dict[str, int]]
) -> None:
    members, counts = group

    found = ASSIGNORS[name].assign(members, counts)

    assert sorted(found) == sorted(each.member_id for each in members)
    given_out = [key for partitions in found.values() for key in partitions]
    assert sorted(given_out) == sorted(wanted_partitions(members, counts))
    for each in members:
        assert {key.topic for key in found[each.member_id]} <= each.topics


@given(group=groups(equal=True))
def test_the_sticky_assignor_is_balanced_and_moves_no_more_than_it_must(
    group: tuple[list[MemberSubscription], dict[str, int]],
) -> None:
    members, counts = group
    first = assign_sticky(members, counts)
    assert max(map(len, first.values())) - min(map(len, first.values())) <= 1
    # The next generation: one more member, and everybody tells what it had.
    again = [MemberSubscription(each.member_id, each.topics, tuple(first[each.member_id]), 7) for each in members] + [
        MemberSubscription("zz", members[0].topics)
    ]

    second = assign_sticky(again, counts)

    assert max(map(len, second.values())) - min(map(len, second.values())) <= 1
    moved = sum(len(set(first[each.member_id]) - set(second[each.member_id])) for each in members)
    assert moved == len(second["zz"])


@given(group=groups())
def test_nothing_moves_when_nothing_has_changed(group: tuple[list[MemberSubscription], dict[str, int]]) -> None:
    members, counts = group
    first = assign_sticky(members, counts)
    again = [MemberSubscription(each.member_id, each.topics, tuple(first[each.member_id]), 7) for each in members]

    assert assign_sticky(again, counts) == first


@given(group=groups())
def test_the_cooperative_assignor_gives_nobody_what_another_still_reads(
    group: tuple[list[MemberSubscription], dict[str, int]],
) -> None:
    members, counts = group

    found = assign_cooperative(members, counts)

    for each in members:
        others = {key for other in members if other is not each for key in other.owned}
        assert not set(found[each.member_id]) & others


@given(group=groups(equal=True))
def test_two_cooperative_rounds_reach_a_balanced_assignment(
    group: tuple[list[MemberSubscription], dict[str, int]],
) -> None:
    members, counts = group
    found = assign_cooperative(members, counts)
    for generation in (8, 9):
        members = [
            MemberSubscription(each.member_id, each.topics, tuple(found[each.member_id]), generation)
            for each in members
        ]
        found = assign_cooperative(members, counts)

    given_out = [key for partitions in found.values() for key in partitions]
    assert sorted(given_out) == sorted(wanted_partitions(members, counts))
    assert max(map(len, found.values())) - min(map(len, found.values())) <= 1


def test_six_partitions_of_two_members_become_two_each_with_a_third() -> None:
    members = [member("a", owned="0 1 2", generation=1), member("b", owned="3 4 5", generation=1), member("c")]

    assert numbers(assign_sticky(members, {"t": 6})) == {"a": [0, 1], "b": [3, 4], "c": [2, 5]}


def test_a_partition_that_two_claim_goes_to_the_one_of_the_later_generation() -> None:
    members = [member("a", owned="0", generation=1), member("b", owned="0", generation=2)]

    assert numbers(assign_sticky(members, {"t": 2})) == {"a": [1], "b": [0]}


def test_different_subscriptions_are_evened_out_over_a_chain_of_members() -> None:
    members = [
        MemberSubscription("a", frozenset("x"), (TopicPartition("x", 0), TopicPartition("x", 1)), 1),
        MemberSubscription("b", frozenset("xy"), (TopicPartition("y", 0),), 1),
        MemberSubscription("c", frozenset("y"), (), 1),
    ]

    found = assign_sticky(members, {"x": 2, "y": 1})

    assert {name: len(partitions) for name, partitions in found.items()} == {"a": 1, "b": 1, "c": 1}


def test_static_members_are_served_in_the_order_of_their_instance_ids() -> None:
    members = [
        MemberSubscription("a", frozenset("t"), instance_id="2"),
        MemberSubscription("b", frozenset("t"), instance_id="1"),
        MemberSubscription("0", frozenset("t")),
    ]

    assert numbers(assign_range(members, {"t": 3})) == {"b": [0], "a": [1], "0": [2]}


def as_another_client_would(
    theirs: Any, members: list[MemberSubscription], counts: dict[str, int]
) -> dict[str, list[TopicPartition]]:
    """What kafka-python makes of the same members."""
    cluster = SimpleNamespace(partitions_for_topic=lambda name: set(range(counts[name])) if name in counts else None)
    group = [
        SimpleNamespace(
            member_id=each.member_id, group_instance_id=None, metadata=SimpleNamespace(topics=sorted(each.topics))
        )
        for each in members
    ]
    return {
        name: sorted(TopicPartition(topic, number) for topic, found in one.assigned_partitions for number in found)
        for name, one in theirs.assign(cluster, group).items()
    }


@given(group=groups())
def test_range_is_what_another_client_makes_of_it(group: tuple[list[MemberSubscription], dict[str, int]]) -> None:
    found = {name: sorted(partitions) for name, partitions in assign_range(*group).items()}

    assert found == as_another_client_would(RangePartitionAssignor, *group)


@given(group=groups(equal=True))
def test_round_robin_is_what_another_client_makes_of_it(
    group: tuple[list[MemberSubscription], dict[str, int]],
) -> None:
    found = {name: sorted(partitions) for name, partitions in assign_round_robin(*group).items()}

    assert found == as_another_client_would(RoundRobinPartitionAssignor, *group)


def test_round_robin_passes_over_members_that_do_not_want_a_topic() -> None:
    members = [member("c0", "t0"), member("c1", "t0", "t1"), member("c2", "t0", "t1", "t2")]

    found = assign_round_robin(members, {"t0": 1, "t1": 2, "t2": 3})

    assert {name: [f"{topic}p{number}" for topic, number in partitions] for name, partitions in found.items()} == {
        "c0": ["t0p0"],
        "c1": ["t1p0"],
        "c2": ["t1p1", "t2p0", "t2p1", "t2p2"],
    }
