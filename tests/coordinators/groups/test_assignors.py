"""The assignors, on plain values."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import pytest

from ottla.coordinators.groups.assignors import ASSIGNORS, Assignment, PartitionCounts, Wish, Wishes, assignor
from ottla.coordinators.groups.range_assignor import assign_ranges
from ottla.coordinators.groups.uniform import assign_uniformly

T, U, V = (name.encode() * 16 for name in "tuv")


def given(assigned: dict[str, Assignment]) -> dict[str, dict[bytes, list[int]]]:
    return {
        member_id: {topic_id: sorted(numbers) for topic_id, numbers in parts.items()}
        for member_id, parts in assigned.items()
    }


def load(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def kept(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    """Partitions that stayed where they were."""
    return sum(
        len(numbers & before.get(member_id, {}).get(topic_id, frozenset()))
        for member_id, parts in after.items()
        for topic_id, numbers in parts.items()
    )


def again(wishes: Wishes, assigned: dict[str, Assignment]) -> dict[str, Wish]:
    """The same wishes, of members that have what was assigned."""
    return {member_id: wish._replace(target=assigned.get(member_id, {})) for member_id, wish in wishes.items()}


def check_valid(wishes: Wishes, counts: PartitionCounts, assigned: dict[str, Assignment]) -> None:
    """Everything that somebody wants has one owner, who wants it."""
    assert set(assigned) == set(wishes)
    given_out = [
        (topic_id, number)
        for member_id, parts in assigned.items()
        for topic_id, numbers in parts.items()
        for number in numbers
        if topic_id in wishes[member_id].topics
    ]
    wanted = {topic_id for wish in wishes.values() for topic_id in wish.topics}
    assert sorted(given_out) == sorted((topic_id, n) for topic_id in wanted for n in range(counts[topic_id]))
    assert sum(map(load, assigned.values())) == len(given_out)


def random_case(random: Random, *, equal: bool) -> tuple[dict[str, Wish], PartitionCounts]:
    """Members that had something before, some of it gone by now."""
    topics = [bytes([n]) * 16 for n in range(random.randint(1, 4))]
    counts = {topic_id: random.randint(1, 5) for topic_id in topics}
    common = frozenset(random.sample(topics, random.randint(1, len(topics))))
    free = [(topic_id, n) for topic_id in topics for n in range(counts[topic_id] + 2)]
    random.shuffle(free)
    wishes = {}
    for n in range(random.randint(1, 5)):
        topics_of_member = common if equal else frozenset(random.sample(topics, random.randint(0, len(topics))))
        had: dict[bytes, set[int]] = {}
        for _ in range(random.randint(0, 4)):
            if free:
                topic_id, number = free.pop()
                had.setdefault(topic_id, set()).add(number)
        target = {topic_id: frozenset(numbers) for topic_id, numbers in had.items()}
        wishes[f"m{n}"] = Wish(topics_of_member, target)
    return wishes, counts


# --- uniform, equal wishes -------------------------------------------------------------------------------------


def test_equal_wishes_get_equal_shares_of_every_topic() -> None:
    wishes = {name: Wish(frozenset({T, U})) for name in ("a", "b")}

    assigned = given(assign_uniformly(wishes, {T: 4, U: 2}))

    assert assigned == {"a": {T: [0, 2], U: [0]}, "b": {T: [1, 3], U: [1]}}


def test_who_keeps_exactly_what_it_had_gets_the_same_object_back() -> None:
    had = {T: frozenset({0, 1})}
    wishes = {"a": Wish(frozenset({T}), had), "b": Wish(frozenset({T}))}

    assigned = assign_uniformly(wishes, {T: 4})

    assert assigned["a"] is had


def test_equal_wishes_differ_by_one_at_most_and_nothing_moves_without_need() -> None:
    for seed in range(300):
        wishes, counts = random_case(Random(seed), equal=True)

        assigned = assign_uniformly(wishes, counts)

        check_valid(wishes, counts, assigned)
        loads = [load(parts) for parts in assigned.values()]
        assert max(loads) - min(loads) <= 1, f"seed {seed}"
        had = [
            sum(n < counts[topic_id] for topic_id in wish.topics for n in wish.target.get(topic_id, ()))
            for wish in wishes.values()
        ]
        share, larger_shares = divmod(sum(loads), len(wishes))
        possible = sum(min(count, share) for count in had) + min(larger_shares, sum(count > share for count in had))
        assert kept({name: wish.target for name, wish in wishes.items()}, assigned) == possible, f"seed {seed}"


def test_five_hundred_members_on_a_thousand_partitions_move_two_when_one_leaves() -> None:
    wishes = {f"m{n:03}": Wish(frozenset({T})) for n in range(500)}
    before = assign_uniformly(wishes, {T: 1000})
    assert {load(parts) for parts in before.values()} == {2}

    del wishes["m123"]
    after = assign_uniformly(again(wishes, before), {T: 1000})

    assert kept(before, after) == 998


def test_members_that_want_nothing_that_exists_do_not_count() -> None:
    wishes = {"a": Wish(frozenset({T})), "b": Wish(frozenset({T})), "c": Wish(frozenset(), {T: frozenset({0})})}

    assigned = given(assign_uniformly(wishes, {T: 2}))

    assert assigned == {"a": {T: [0]}, "b": {T: [1]}, "c": {}}


def test_without_members_there_is_nothing_to_assign() -> None:
    assert assign_uniformly({}, {}) == {}


def test_one_state_has_one_answer_whatever_the_order_of_members() -> None:
    wishes, counts = random_case(Random(3), equal=False)
    backwards = dict(reversed(wishes.items()))

    assert assign_uniformly(wishes, counts) == assign_uniformly(backwards, counts)


# --- uniform, different wishes -----------------------------------------------------------------------------------


def could_be_more_even(wishes: Wishes, assigned: dict[str, Assignment]) -> bool:
    """Whether a way leads from some member to one with two partitions fewer: then, and only then, it is uneven."""
    passes_to = {
        giver: {taker for taker, wish in wishes.items() if any(parts.get(topic_id) for topic_id in wish.topics)}
        for giver, parts in assigned.items()
    }
    for start in wishes:
        reached, waiting = {start}, [start]
        while waiting:
            for taker in passes_to[waiting.pop()] - reached:
                reached.add(taker)
                waiting.append(taker)
        if any(load(assigned[taker]) <= load(assigned[start]) - 2 for taker in reached):
            return True
    return False


def test_different_wishes_are_as_even_as_they_can_be() -> None:
    for seed in range(500):
        wishes, counts = random_case(Random(seed), equal=False)

        assigned = assign_uniformly(wishes, counts)

        check_valid(wishes, counts, assigned)
        assert not could_be_more_even(wishes, assigned), f"seed {seed}"


def test_different_wishes_that_are_fulfilled_move_nothing() -> None:
    for seed in range(200):
        wishes, counts = random_case(Random(seed), equal=False)
        assigned = assign_uniformly(wishes, counts)

        repeated = assign_uniformly(again(wishes, assigned), counts)

        assert repeated == assigned, f"seed {seed}"


def test_a_partition_is_passed_on_through_a_member_that_shares_a_topic_with_both() -> None:
    wishes = {
        "a": Wish(frozenset({T}), {T: frozenset({0, 1, 2, 3})}),
        "b": Wish(frozenset({T, U}), {U: frozenset({0, 1, 2})}),
        "c": Wish(frozenset({U}), {U: frozenset({3, 4})}),
    }

    assigned = assign_uniformly(wishes, {T: 4, U: 5})

    assert [load(assigned[name]) for name in "abc"] == [3, 3, 3]
    assert kept({name: wish.target for name, wish in wishes.items()}, assigned) == 7


def test_one_that_joins_with_other_wishes_takes_no_more_than_its_share() -> None:
    wishes = {f"m{n}": Wish(frozenset({T, U})) for n in range(4)}
    before = assign_uniformly(wishes, {T: 8, U: 8, V: 2})

    after = assign_uniformly(again({**wishes, "new": Wish(frozenset({U, V}))}, before), {T: 8, U: 8, V: 2})

    assert load(after["new"]) == 3
    assert kept(before, after) == 15


def test_a_hopeless_search_ends_and_leaves_a_valid_assignment() -> None:
    """More members and topics than may be searched: everything is assigned, if not quite evenly."""
    topics = [n.to_bytes(2) * 8 for n in range(300)]
    wishes = {f"m{n:03}": Wish(frozenset(topics[n : n + 2])) for n in range(299)}
    counts = dict.fromkeys(topics, 1) | {topics[0]: 200}

    assigned = assign_uniformly(wishes, counts)

    check_valid(wishes, counts, assigned)


class CountedId(bytes):
    """The id of a topic that counts how often anybody looks for it."""

    looks = 0

    def __hash__(self) -> int:
        CountedId.looks += 1
        return super().__hash__()


@pytest.mark.parametrize("lonely_topics", [1, 1_000])
def test_those_who_do_not_want_a_topic_are_not_asked_for_each_of_its_partitions(lonely_topics: int) -> None:
    """The first members have least throughout, but want other topics than the one who has to take most of them."""
    ids: list[bytes] = [CountedId(n.to_bytes(2) * 8) for n in range(400 + lonely_topics)]
    wishes = {f"m{n:03}": Wish(frozenset({ids[0], ids[n]})) for n in range(400)}
    wishes["z"] = Wish(frozenset(ids[400:]))
    counts = dict.fromkeys(ids, 1) | dict.fromkeys(ids[400:], 1_000 // lonely_topics)
    CountedId.looks = 0

    assigned = assign_uniformly(wishes, counts)

    assert CountedId.looks < 30 * sum(counts.values())
    check_valid(wishes, counts, assigned)


class CountedTarget(dict[bytes, frozenset[int]]):
    """A target that counts how often anybody looks into it."""

    looks = 0

    def get(self, *args: Any) -> Any:
        self.looks += 1
        return super().get(*args)


def test_what_somebody_had_is_looked_at_once_however_much_of_it_is_handed_on() -> None:
    had = CountedTarget({T: frozenset(range(2_000))})
    wishes = {"a": Wish(frozenset({T}), had), "b": Wish(frozenset({T, U}))}

    assigned = assign_uniformly(wishes, {T: 2_000, U: 1})

    assert load(assigned["a"]) in (1_000, 1_001)
    assert had.looks < 10


def test_a_partition_that_comes_home_is_handed_on_before_others() -> None:
    wishes = {
        "a": Wish(frozenset({T}), {T: frozenset({0, 1, 2, 3})}),
        "b": Wish(frozenset({T}), {T: frozenset({0})}),
        "c": Wish(frozenset({U}), {U: frozenset({0, 1})}),
    }

    assigned = given(assign_uniformly(wishes, {T: 4, U: 2}))

    assert assigned == {"a": {T: [1, 2]}, "b": {T: [0, 3]}, "c": {U: [0, 1]}}


def test_very_many_wishes_are_as_even_as_few() -> None:
    random = Random(7)
    topics = [n.to_bytes(2) * 8 for n in range(600)]
    wishes = {f"m{n:03}": Wish(frozenset(random.sample(topics, 300))) for n in range(200)}

    assigned = assign_uniformly(wishes, dict.fromkeys(topics, 1))

    check_valid(wishes, dict.fromkeys(topics, 1), assigned)
    assert {load(parts) for parts in assigned.values()} == {3}


# --- range -------------------------------------------------------------------------------------------------------


def test_ranges_are_rows_and_the_first_members_get_what_is_left_over() -> None:
    wishes = {name: Wish(frozenset({T})) for name in ("b", "a", "c")}

    assert given(assign_ranges(wishes, {T: 8})) == {"a": {T: [0, 1, 2]}, "b": {T: [3, 4, 5]}, "c": {T: [6, 7]}}


def test_topics_of_one_size_go_together() -> None:
    wishes = {name: Wish(frozenset({T, U})) for name in ("a", "b", "c")}

    assigned = assign_ranges(wishes, {T: 7, U: 7})

    assert all(parts[T] == parts[U] for parts in assigned.values())


def test_who_comes_too_late_in_the_row_gets_nothing() -> None:
    wishes = {name: Wish(frozenset({T})) for name in ("a", "b", "c")}

    assert given(assign_ranges(wishes, {T: 2})) == {"a": {T: [0]}, "b": {T: [1]}, "c": {}}


def test_static_members_come_first_and_keep_their_place_under_a_new_id() -> None:
    before = {"x": Wish(frozenset({T})), "m1": Wish(frozenset({T}), instance_id="one")}
    after = {"x": Wish(frozenset({T})), "zz": Wish(frozenset({T}), instance_id="one")}

    assert given(assign_ranges(before, {T: 2}))["m1"] == {T: [0]}
    assert given(assign_ranges(after, {T: 2}))["zz"] == {T: [0]}


def test_ranges_are_valid_and_even_in_each_topic() -> None:
    for seed in range(200):
        wishes, counts = random_case(Random(seed), equal=False)

        assigned = assign_ranges(wishes, counts)

        check_valid(wishes, counts, assigned)
        for topic_id in counts:
            shares = [len(assigned[name].get(topic_id, ())) for name, wish in wishes.items() if topic_id in wish.topics]
            assert all(abs(one - other) <= 1 for one, other in combinations(shares, 2)), f"seed {seed}"


# --- the table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_assignor_is_found_by_its_name(name: str) -> None:
    wishes = {"a": Wish(frozenset({T}))}

    assert given(assignor(name)(wishes, {T: 2})) == {"a": {T: [0, 1]}}
