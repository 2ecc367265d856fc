"""When a query that failed is started again, and when it is given up."""

from __future__ import annotations

from ottla.pipelines.restarts import DELAY_MAX_MS, Restarts


def test_each_failure_in_a_row_doubles_the_delay_up_to_a_minute() -> None:
    restarts = Restarts(in_a_row_max=8)

    delays_ms = [restarts.after_failure() for _ in range(8)]

    assert delays_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_a_query_is_given_up_after_so_many_restarts_in_a_row() -> None:
    restarts = Restarts(in_a_row_max=2)

    assert [restarts.after_failure() is None for _ in range(3)] == [False, False, True]


def test_a_batch_in_between_lets_the_count_begin_anew() -> None:
    restarts = Restarts(in_a_row_max=2)
    restarts.after_failure()
    restarts.after_failure()
    restarts.batch_done()

    assert restarts.after_failure() == 1_000


def test_a_batch_does_not_make_the_restarts_before_it_unseen() -> None:
    restarts = Restarts(in_a_row_max=1)
    for _ in range(3):
        restarts.after_failure()
        restarts.batch_done()

    assert restarts.total == 3


def test_a_limit_of_zero_restarts_nothing() -> None:
    assert Restarts(in_a_row_max=0).after_failure() is None


def test_the_delay_stays_within_its_bound_however_often_it_is_doubled() -> None:
    restarts = Restarts(in_a_row_max=10_000)

    assert max(restarts.after_failure() or 0 for _ in range(10_000)) == DELAY_MAX_MS
