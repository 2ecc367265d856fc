"""What the checks of the crash tests would say of outcomes that are not right. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.crashes import accounts, orders
from tests.pipelines.crashes.checkpoints import Checkpoints, Standing
from tests.pipelines.crashes.orders import Kind, Spot, Window

ACKNOWLEDGED = {0: Spot(0, 0), 1: Spot(1, 0), 2: Spot(0, 1), 4: Spot(0, 2)}


def test_every_kind_of_record_comes_within_a_few_dozen() -> None:
    numbers = range(60)

    assert {orders.kind_of(number) for number in numbers} == set(Kind)
    assert any(orders.leaves(number) for number in orders.of_kind(numbers, Kind.GOOD))
    assert len({orders.minute_of(number)[:10] for number in range(1, orders.SECONDS)}) == 2
    assert {orders.record(number).partition for number in numbers} == set(range(orders.PARTITIONS))


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([0, 1, 2, 4], None),
        ([4, 2, 1, 0], None),
        ([0, 1, 2], "missing"),
        ([0, 1, 2, 2, 4], "there more than once"),
        ([0, 1, 2, 3, 4], "there and not expected"),
    ],
)
def test_a_record_that_is_missing_twice_or_foreign_is_told(found: list[int], problem: str | None) -> None:
    said = accounts.once_each("topic", found, ACKNOWLEDGED)

    assert [problem in line for line in said if problem] == ([True] if problem else [])
    assert bool(said) == (problem is not None)


def test_a_row_that_says_that_it_comes_from_elsewhere_is_told() -> None:
    assert accounts.in_place("table", ACKNOWLEDGED.items(), ACKNOWLEDGED) == []
    assert accounts.in_place("table", [(2, Spot(0, 3))], ACKNOWLEDGED)


@pytest.mark.parametrize(("offsets", "is_fine"), [((0, 3, 4), True), ((0, 4, 3), False), ((0, 0), False)])
def test_records_that_changed_places_or_came_again_are_told(offsets: tuple[int, ...], is_fine: bool) -> None:
    said = accounts.in_order("topic", [(1, Spot(0, offset)) for offset in offsets])

    assert (said == []) == is_fine


def test_records_of_two_partitions_of_the_source_need_not_be_in_order() -> None:
    assert accounts.in_order("topic", [(0, Spot(1, 5)), (0, Spot(0, 2)), (1, Spot(1, 3))]) == []


@pytest.mark.parametrize(
    ("spots", "is_fine"),
    [
        ([Spot(0, 0), Spot(0, 1), Spot(0, 2), Spot(1, 0)], True),
        ([Spot(0, 0), Spot(0, 2), Spot(1, 0)], False),
        ([Spot(0, 0), Spot(0, 1), Spot(0, 1), Spot(0, 2), Spot(1, 0)], False),
        ([Spot(0, 0), Spot(0, 1), Spot(0, 2), Spot(0, 3), Spot(1, 0)], False),
    ],
    ids=["whole", "gap", "twice", "more"],
)
def test_a_gap_and_a_duplicate_are_told(spots: list[Spot], is_fine: bool) -> None:
    assert (accounts.dense("table", spots, ACKNOWLEDGED) == []) == is_fine


@pytest.mark.parametrize(
    ("updates", "is_fine"),
    [
        ([Window(1, 5), Window(3, 9)], True),
        ([Window(1, 5), Window(1, 5), Window(3, 9)], False),
        ([Window(1, 5), Window(2, 8)], False),
        ([Window(2, 8), Window(1, 5), Window(3, 9)], False),
        ([], False),
    ],
    ids=["right", "twice", "too little", "back", "nothing"],
)
def test_an_update_that_came_twice_or_is_too_little_is_told(updates: list[Window], is_fine: bool) -> None:
    said = accounts.growing("topic", [("12:00", window) for window in updates], {"12:00": Window(3, 9)})

    assert (said == []) == is_fine


def test_the_table_by_customers_has_the_last_order_of_each_who_has_not_left() -> None:
    own = [number for number in range(2_000) if orders.customer_of(number) == 0]
    good = orders.of_kind(own, Kind.GOOD)
    left = next(index for index, number in enumerate(good) if orders.leaves(number))

    at_leaving = {number: Spot(0, offset) for offset, number in enumerate(good[: left + 1])}
    after = {number: Spot(0, offset) for offset, number in enumerate(good[: left + 2])}

    assert orders.customers(at_leaving) == {}
    assert orders.customers(after) == {0: good[left + 1]}


def test_a_batch_that_was_begun_and_not_noted_is_in_flight(tmp_path: Path) -> None:
    for name, planned, done in (("begun", 2, 1), ("noted", 1, 1), ("first", 0, None)):
        for kind, last in (("offsets", planned), ("commits", done)):
            directory = tmp_path / name / kind
            directory.mkdir(parents=True)
            for number in range(-1 if last is None else last + 1):
                (directory / str(number)).touch()
        (tmp_path / name / "commits" / ".9.crc").touch()
    (tmp_path / "unborn" / "offsets").mkdir(parents=True)
    checkpoints = Checkpoints(tmp_path)

    assert checkpoints.standings()["begun"] == Standing(2, 1)
    assert checkpoints.in_flight() == {"begun": 2, "first": 0}
    assert checkpoints.planned_count() == 6
