"""Where batches start and end, what was lost, what limits leave, and who reads which range."""

from __future__ import annotations

from itertools import groupby, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.values import TopicPartition
from ottla.spark.offsets import Offsets
from ottla.spark.packing import BYTES_WORTH_A_TASK, RECORDS_WORTH_A_TASK
from ottla.spark.planning import (
    RECORD_BYTES_DEFAULT,
    OffsetRange,
    described,
    is_held_back,
    limited,
    limited_by_bytes,
    limited_by_records,
    packed,
    ranges,
    split,
    starting_points,
    unknown_beginnings,
)

A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)

partitions = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 20))
starts_and_sizes = st.dictionaries(
    partitions, st.tuples(st.integers(0, 2**40), st.one_of(st.integers(0, 20), st.integers(0, 2**40))), max_size=30
)
range_lists = starts_and_sizes.map(
    lambda found: [OffsetRange(*key, start, start + size) for key, (start, size) in sorted(found.items())]
)
small_range_lists = st.dictionaries(partitions, st.tuples(st.integers(0, 99), st.integers(0, 300)), max_size=12).map(
    lambda found: [OffsetRange(*key, start, start + size) for key, (start, size) in sorted(found.items())]
)


def total(found: list[OffsetRange] | tuple[OffsetRange, ...]) -> int:
    return sum(each.size for each in found)


def offsets_read(pieces: list[OffsetRange]) -> list[tuple[str, int, int]]:
    return [(each.topic, each.partition, offset) for each in pieces for offset in range(each.start, each.end)]


# --- where a batch starts --------------------------------------------------------------------------------


def test_a_partition_that_is_known_goes_on_where_it_was() -> None:
    found = starting_points({A0: 5, A1: 7}, {A0: 9, A1: 7}, {})

    assert found.offsets == {A0: 5, A1: 7}
    assert found.lost == ()


def test_a_new_partition_starts_at_its_beginning() -> None:
    found = starting_points({A0: 5}, {A0: 9, A1: 4}, {A1: 0})

    assert found.offsets == {A0: 5, A1: 0}
    assert found.lost == ()


def test_a_new_partition_that_has_lost_its_first_records_already_is_told_of() -> None:
    found = starting_points({}, {A0: 9}, {A0: 3})

    assert found.offsets == {A0: 3}
    assert described(found.lost) == "a-0 offsets 0 to 2 (deleted before this new partition was first read)"


def test_a_partition_that_is_gone_is_told_of() -> None:
    found = starting_points({A0: 5, A1: 6}, {A0: 9}, {})

    assert found.offsets == {A0: 5}
    assert described(found.lost) == "a-1 from offset 6 on (the partition is gone)"


def test_a_partition_that_ends_before_its_start_is_told_of_and_read_from_its_beginning() -> None:
    found = starting_points({A0: 700}, {A0: 5}, {A0: 0})

    assert found.offsets == {A0: 0}
    assert described(found.lost) == "a-0 offsets 5 to 699 (the partition ends at 5: it was made anew or cut off)"


def test_a_log_that_was_cut_off_is_told_of_and_goes_on_at_its_new_end() -> None:
    found = starting_points({A0: 700, B0: 9}, {A0: 500, B0: 4}, {A0: 0, B0: 0}, same={"a"})

    assert found.offsets == {A0: 500, B0: 0}
    assert described(found.lost[:1]) == "a-0 offsets 500 to 699 (the log was cut off at 500)"


def test_records_that_were_deleted_before_they_were_read_are_told_of_by_their_offsets() -> None:
    found = starting_points({A0: 5}, {A0: 20}, {A0: 12})

    assert found.offsets == {A0: 12}
    assert described(found.lost) == "a-0 offsets 5 to 11 (deleted: the partition begins at 12)"


def test_a_range_that_was_deleted_whole_leaves_nothing_to_read() -> None:
    found = starting_points({A0: 5}, {A0: 20}, {A0: 100})

    assert ranges(found.offsets, {A0: 20}) == []
    assert len(found.lost) == 1


@pytest.mark.parametrize("starts", [{}, {A0: 700}])
def test_a_partition_that_went_away_while_it_was_asked_for_is_not_read(starts: Offsets) -> None:
    assert starting_points(starts, {A0: 5}, {}).offsets == {}


def test_beginnings_are_needed_of_new_and_of_shortened_partitions() -> None:
    assert unknown_beginnings({A0: 5, A1: 9, A2: 9}, {A0: 9, A1: 8, A2: 9, B0: 3}) == {A1: 8, B0: 3}


def test_a_long_list_of_losses_is_cut() -> None:
    found = starting_points({TopicPartition("a", number): 1 for number in range(25)}, {}, {})

    assert described(found.lost).endswith("; and 5 more")


def test_ranges_are_in_order_and_have_only_what_is_new() -> None:
    found = ranges({B0: 1, A1: 4, A0: 0}, {B0: 5, A1: 4, A0: 2, A2: 9})

    assert found == [OffsetRange("a", 0, 0, 2), OffsetRange("b", 0, 1, 5)]


# --- whether there is enough for a batch -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("records_min", "now_ms", "last_trigger_ms", "expected"),
    [
        (None, 1_000, 900, False),
        (10, 1_000, None, False),
        (10, 1_000, 901, True),
        (9, 1_000, 901, False),
        (10, 1_099, 1_000, True),
        (10, 1_100, 1_000, False),
    ],
)
def test_a_batch_waits_for_enough_records_but_not_too_long(
    records_min: int | None, now_ms: int, last_trigger_ms: int | None, expected: bool
) -> None:
    held = is_held_back(
        {A0: 0, A1: 5},
        {A0: 9, A1: 5},
        records_min=records_min,
        delay_max_ms=100,
        now_ms=now_ms,
        last_trigger_ms=last_trigger_ms,
    )

    assert held is expected


# --- limits ----------------------------------------------------------------------------------------------


def test_a_limit_is_shared_out_in_proportion_and_nobody_goes_without() -> None:
    # What Spark's own connector makes of the same: 8, 1 and 1.
    starts, ends = {A0: 100, A1: 10, A2: 1}, {A0: 201, A1: 21, A2: 2}

    assert limited_by_records(starts, ends, records_max=10) == {A0: 108, A1: 11, A2: 2}


def test_what_the_smallest_get_beyond_their_share_is_taken_from_the_largest() -> None:
    starts = {A0: 0, A1: 0, A2: 0}

    assert limited_by_records(starts, {A0: 1_000, A1: 1, A2: 1}, records_max=10) == {A0: 8, A1: 1, A2: 1}


def test_a_limit_below_the_number_of_partitions_gives_each_one_record() -> None:
    starts = {A0: 0, A1: 0, A2: 0}

    assert limited_by_records(starts, {A0: 9, A1: 9, A2: 9}, records_max=1) == {A0: 1, A1: 1, A2: 1}


def test_a_partition_that_became_shorter_keeps_its_end_under_a_limit() -> None:
    assert limited_by_records({A0: 9, A1: 0}, {A0: 5, A1: 100}, records_max=10) == {A0: 5, A1: 10}


@given(starts_and_sizes, st.integers(1, 2**41))
def test_limits_hold_for_every_shape_of_backlog(found: dict[TopicPartition, tuple[int, int]], records_max: int) -> None:
    starts = {partition: start for partition, (start, _) in found.items()}
    ends = {partition: start + size for partition, (start, size) in found.items()}
    limits = limited_by_records(starts, ends, records_max=records_max)
    busy = [partition for partition in ends if ends[partition] > starts[partition]]
    taken = {partition: limits[partition] - starts[partition] for partition in busy}
    everything = sum(ends[partition] - starts[partition] for partition in busy)

    assert limits.keys() == ends.keys()
    assert all(starts[partition] < limits[partition] <= ends[partition] for partition in busy)
    assert sum(taken.values()) <= max(records_max, len(busy))
    if everything <= records_max:
        assert limits == ends
    else:
        # No share is off by more than what nobody may go without makes of it.
        for partition in busy:
            exact = records_max * (ends[partition] - starts[partition]) / everything
            assert exact - len(busy) - 1 <= taken[partition] <= exact * (1 + 1e-9) + 1


@given(small_range_lists, st.integers(1, 200))
def test_batches_under_a_limit_read_everything_once_and_come_to_an_end(
    wanted: list[OffsetRange], records_max: int
) -> None:
    starts = {TopicPartition(each.topic, each.partition): each.start for each in wanted}
    ends = {TopicPartition(each.topic, each.partition): each.end for each in wanted}
    read: list[tuple[str, int, int]] = []
    batches = 0
    while starts != ends:
        limits = limited_by_records(starts, ends, records_max=records_max)
        read += offsets_read(ranges(starts, limits))
        starts = limits
        batches += 1

    assert sorted(read) == offsets_read(wanted)
    assert batches <= total(wanted)


def test_a_limit_in_bytes_takes_the_same_part_of_every_partition() -> None:
    sizes = {A0: 100.0, A1: 900.0}

    found = limited_by_bytes({A0: 0, A1: 0}, {A0: 100, A1: 100}, bytes_max=10_000, bytes_per_record=sizes)

    assert found == {A0: 10, A1: 10}


def test_a_partition_of_unknown_size_is_taken_to_be_like_the_others() -> None:
    found = limited_by_bytes({A0: 0, A1: 0}, {A0: 100, A1: 100}, bytes_max=10_000, bytes_per_record={A0: 100.0})

    assert found == {A0: 50, A1: 50}


def test_without_any_size_a_record_is_taken_to_be_of_ordinary_size() -> None:
    bytes_max = int(10 * RECORD_BYTES_DEFAULT)

    assert limited_by_bytes({A0: 0}, {A0: 100}, bytes_max=bytes_max, bytes_per_record={}) == {A0: 10}


def test_what_fits_into_the_bytes_is_not_cut() -> None:
    assert limited_by_bytes({A0: 0}, {A0: 100}, bytes_max=1_000, bytes_per_record={A0: 10.0}) == {A0: 100}


def test_a_record_larger_than_the_limit_in_bytes_is_read_all_the_same() -> None:
    assert limited_by_bytes({A0: 5}, {A0: 100}, bytes_max=1, bytes_per_record={A0: 1e9}) == {A0: 6}


@pytest.mark.parametrize(
    ("records_max", "bytes_max", "expected"),
    [(None, None, 100), (30, None, 30), (None, 200, 20), (30, 200, 20), (10, 200, 10)],
)
def test_the_tighter_of_two_limits_counts(records_max: int | None, bytes_max: int | None, expected: int) -> None:
    found = limited({A0: 0}, {A0: 100}, records_max=records_max, bytes_max=bytes_max, bytes_per_record={A0: 10.0})

    assert found == {A0: expected}


# --- splitting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "min_partitions", "records_max", "sizes"),
    [
        ([100, 200], None, None, [100, 200]),
        ([100, 0, 200], None, None, [100, 200]),
        ([100, 200], 2, None, [100, 200]),
        ([100, 100], 4, None, [50, 50, 50, 50]),
        ([1, 100], 3, None, [1, 50, 50]),
        ([1, 1, 100], 6, None, [1, 1, 25, 25, 25, 25]),
        ([3], 9, None, [1, 1, 1]),
        ([5, 5], 5, None, [1, 2, 2, 1, 2, 2]),
        ([100], None, 30, [25, 25, 25, 25]),
        ([100, 20], None, 30, [25, 25, 25, 25, 20]),
        ([100], 8, 50, [12, 12, 13, 13, 12, 12, 13, 13]),
        ([100], 2, 30, [25, 25, 25, 25]),
        ([10], None, 1, [1] * 10),
    ],
)
def test_ranges_are_cut_as_the_connector_cuts_them(
    wanted: list[int], min_partitions: int | None, records_max: int | None, sizes: list[int]
) -> None:
    whole = [OffsetRange("a", number, 7, 7 + size) for number, size in enumerate(wanted)]

    found = split(whole, min_partitions=min_partitions, records_per_partition_max=records_max)

    assert [each.size for each in found] == sizes


def test_offsets_beyond_what_a_float_holds_are_cut_exactly() -> None:
    whole = OffsetRange("a", 0, 1, 2**62 + 2)

    first, second = split([whole], min_partitions=2, records_per_partition_max=None)

    assert (first.start, first.end, second.end) == (1, second.start, whole.end)
    assert first.size == 2**61


@given(small_range_lists, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_cutting_neither_loses_nor_doubles_an_offset(
    wanted: list[OffsetRange], min_partitions: int | None, records_max: int | None
) -> None:
    found = split(wanted, min_partitions=min_partitions, records_per_partition_max=records_max)

    assert offsets_read(found) == offsets_read(wanted)
    assert all(0 < each.size <= (records_max or 2**63) for each in found)


# --- packing ---------------------------------------------------------------------------------------------


def plainly_packed(wanted: list[OffsetRange], tasks: int) -> list[tuple[OffsetRange, ...]]:
    return packed(wanted, tasks=tasks, min_partitions=None, records_per_partition_max=None)


def test_many_ranges_become_as_many_groups_as_there_are_tasks() -> None:
    wanted = [OffsetRange("a", number, 0, RECORDS_WORTH_A_TASK) for number in range(64)]

    found = plainly_packed(wanted, 4)

    assert [total(group) for group in found] == [16 * RECORDS_WORTH_A_TASK] * 4


def test_a_small_batch_is_one_task() -> None:
    wanted = [OffsetRange("a", number, 0, 100) for number in range(64)]

    assert plainly_packed(wanted, 4) == [tuple(wanted)]


def test_few_records_that_are_large_are_worth_several_tasks() -> None:
    wanted = [OffsetRange("a", number, 0, 10) for number in range(4)]
    sizes = {TopicPartition("a", number): BYTES_WORTH_A_TASK / 20 for number in range(4)}

    found = packed(wanted, tasks=8, min_partitions=None, records_per_partition_max=None, bytes_per_record=sizes)

    assert [len(group) for group in found] == [2, 2]


def test_nothing_to_read_is_no_task() -> None:
    assert plainly_packed([], 4) == []
    assert plainly_packed([OffsetRange("a", 0, 5, 5)], 4) == []


def test_the_largest_group_comes_first() -> None:
    wanted = [OffsetRange("a", number, 0, size * RECORDS_WORTH_A_TASK) for number, size in enumerate([1, 5, 2])]

    assert [[each.partition for each in group] for group in plainly_packed(wanted, 3)] == [[1], [2], [0]]


def test_a_partition_is_not_cut_unless_that_was_asked_for() -> None:
    wanted = [OffsetRange("a", 0, 0, 100 * RECORDS_WORTH_A_TASK)]

    assert plainly_packed(wanted, 8) == [tuple(wanted)]


def test_as_many_partitions_as_the_user_wants_are_made_even_of_a_small_batch() -> None:
    found = packed([OffsetRange("a", 0, 0, 100)], tasks=2, min_partitions=4, records_per_partition_max=None)

    assert sorted(found) == [(OffsetRange("a", 0, start, start + 25),) for start in (0, 25, 50, 75)]


def test_many_ranges_become_as_few_groups_as_the_user_allows() -> None:
    wanted = [OffsetRange("a", number, 0, 100) for number in range(64)]

    assert len(packed(wanted, tasks=2, min_partitions=8, records_per_partition_max=None)) == 8


def test_no_group_has_more_records_than_a_partition_may_have() -> None:
    wanted = [OffsetRange("a", number, 0, 100) for number in range(10)]

    found = packed(wanted, tasks=2, min_partitions=None, records_per_partition_max=250)

    assert sorted(total(group) for group in found) == [200] * 5


@given(range_lists, st.integers(1, 9))
def test_groups_hold_every_range_once_and_in_order(wanted: list[OffsetRange], tasks: int) -> None:
    found = plainly_packed(wanted, tasks)

    assert sorted(each for group in found for each in group) == [each for each in wanted if each.size]
    assert all(list(group) == sorted(group) for group in found)
    assert len(found) <= tasks
    assert all(total(first) >= total(second) for first, second in pairwise(found))


@given(range_lists, st.integers(1, 9), st.randoms(use_true_random=False))
def test_packing_does_not_depend_on_the_order_of_what_comes_in(
    wanted: list[OffsetRange], tasks: int, chance: Random
) -> None:
    shuffled = list(wanted)
    chance.shuffle(shuffled)

    assert plainly_packed(shuffled, tasks) == plainly_packed(wanted, tasks)


@given(range_lists, st.integers(1, 9))
def test_no_group_is_larger_than_a_fair_share_and_one_range(wanted: list[OffsetRange], tasks: int) -> None:
    found = plainly_packed(wanted, tasks)
    if found:
        assert total(found[0]) <= total(wanted) // len(found) + max(each.size for each in wanted)


@given(
    small_range_lists,
    st.integers(1, 9),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 100),
)
def test_groups_of_cut_ranges_read_every_offset_once(
    wanted: list[OffsetRange], tasks: int, min_partitions: int | None, records_max: int | None
) -> None:
    found = packed(wanted, tasks=tasks, min_partitions=min_partitions, records_per_partition_max=records_max)
    read = [offset for group in found for offset in offsets_read(list(group))]

    assert sorted(read) == offsets_read(wanted)
    assert all(group for group in found)
    if records_max is not None:
        assert all(total(group) <= records_max for group in found)
    for group in found:
        for _, pieces in groupby(group, key=lambda each: each[:2]):
            assert all(first.end < second.start for first, second in pairwise(pieces))
