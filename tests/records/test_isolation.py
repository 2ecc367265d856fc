"""Which batches a reader of committed records sees."""

from __future__ import annotations

from ottla.records.batch import peek
from ottla.records.builder import build_batch
from ottla.records.control import MarkerType, build_marker
from ottla.records.isolation import AbortedTransactions
from tests.records.samples import NOW_MS


def data(offset: int, producer_id: int = -1) -> bytes:
    """A batch of two records, in a transaction when it has a producer."""
    records = [(b"k", b"v", NOW_MS, ())] * 2
    return bytes(build_batch(records, base_offset=offset, producer_id=producer_id, transactional=producer_id >= 0))


def marker(offset: int, producer_id: int, marker_type: MarkerType) -> bytes:
    return bytes(
        build_marker(
            marker_type,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
            base_offset=offset,
        )
    )


def visible(batches: list[bytes], aborted: list[tuple[int, int]]) -> list[int]:
    """The base offsets of the batches that are left."""
    transactions = AbortedTransactions(aborted)
    return [peek(batch).base_offset for batch in batches if not transactions.hides(peek(batch), batch)]


def test_control_batches_are_never_seen() -> None:
    assert visible([data(0), marker(2, 1, MarkerType.COMMIT), data(3)], []) == [0, 3]


def test_an_aborted_transaction_is_hidden_from_its_first_offset_to_its_marker() -> None:
    batches = [data(0, 1), marker(2, 1, MarkerType.COMMIT), data(3, 1), marker(5, 1, MarkerType.ABORT), data(6, 1)]
    assert visible(batches, [(1, 3)]) == [0, 6]


def test_other_producers_in_between_are_seen() -> None:
    batches = [data(0, 1), data(2, 2), data(4), data(6, 1), marker(8, 1, MarkerType.ABORT)]
    assert visible(batches, [(1, 0)]) == [2, 4]


def test_a_record_outside_a_transaction_of_the_same_producer_is_seen() -> None:
    plain = bytes(build_batch([(None, b"v", NOW_MS, ())], base_offset=2, producer_id=1))
    assert visible([data(0, 1), plain, marker(3, 1, MarkerType.ABORT)], [(1, 0)]) == [2]


def test_two_aborted_transactions_of_one_producer_are_both_hidden() -> None:
    batches = [data(0, 1), marker(2, 1, MarkerType.ABORT), data(3, 1), marker(5, 1, MarkerType.ABORT), data(6, 1)]
    assert visible(batches, [(1, 3), (1, 0)]) == [6]


def test_a_marker_of_another_producer_does_not_end_the_transaction() -> None:
    batches = [data(0, 1), marker(2, 2, MarkerType.ABORT), data(3, 1), marker(5, 1, MarkerType.ABORT)]
    assert visible(batches, [(1, 0)]) == []


def test_reading_may_begin_in_the_middle_of_an_aborted_transaction() -> None:
    assert visible([data(10, 1), marker(12, 1, MarkerType.ABORT), data(13, 1)], [(1, 3)]) == [13]
