"""The reader of copied topics finds what must not be: records twice, left out, moved, or without the rest of theirs."""

from __future__ import annotations

import pytest

from tests.clients.transactions.copy_reader import Seen, value_of

PARTITIONS = 2


def _seen(*places: tuple[int, int]) -> Seen:
    """A reader that was given these records of the source, in this order, each where it belongs."""
    seen = Seen([0] * PARTITIONS)
    for offset, (partition, number) in enumerate(places):
        seen.add(partition, offset, value_of(partition, number), "a/1")
    return seen


def test_a_copy_in_order_is_right_however_its_partitions_are_mixed() -> None:
    seen = _seen((0, 0), (1, 0), (1, 1), (0, 1))
    assert seen.wrong == []
    assert (seen.count, seen.next_numbers) == (4, [2, 2])


@pytest.mark.parametrize(
    ("places", "complaints"),
    [
        ([(0, 0), (0, 0)], 1),
        ([(0, 0), (0, 1), (0, 0), (0, 1)], 1),
        ([(0, 1)], 1),
        ([(0, 0), (0, 2), (0, 1)], 2),
    ],
    ids=["twice", "a whole transaction twice", "left out", "out of order"],
)
def test_a_record_that_is_not_the_next_one_is_wrong(places: list[tuple[int, int]], complaints: int) -> None:
    assert len(_seen(*places).wrong) == complaints


def test_a_record_of_another_partition_is_wrong() -> None:
    seen = Seen([0] * PARTITIONS)
    seen.add(1, 0, value_of(0, 0), None)
    assert len(seen.wrong) == 1


def test_a_transaction_that_is_seen_with_its_receipt_is_whole() -> None:
    seen = _seen((0, 0), (1, 0))
    seen.add_receipt("a/1", 2)
    assert seen.torn() == []


@pytest.mark.parametrize("size", [1, 3], ids=["too many", "too few"])
def test_a_transaction_of_another_size_than_its_receipt_tells_is_torn(size: int) -> None:
    seen = _seen((0, 0), (1, 0))
    seen.add_receipt("a/1", size)
    assert len(seen.torn()) == 1


def test_records_without_a_receipt_are_torn() -> None:
    assert len(_seen((0, 0)).torn()) == 1


def test_a_receipt_without_records_is_torn() -> None:
    seen = _seen()
    seen.add_receipt("a/1", 2)
    assert len(seen.torn()) == 1


def test_a_second_receipt_is_wrong() -> None:
    seen = _seen((0, 0))
    seen.add_receipt("a/1", 1)
    seen.add_receipt("a/1", 1)
    assert len(seen.wrong) == 1
