"""What the main job says of its pace."""

from __future__ import annotations

from examples.orders.pace import Moment, Pace, second_half


def test_a_pipeline_that_keeps_up_deals_with_what_is_sent() -> None:
    moments = [Moment(second, 100 * second, 100 * (second - 1)) for second in range(1, 12)]

    assert second_half(moments) == Pace(5, 100.0, 100.0, 100, 100)


def test_one_that_falls_behind_is_told_by_what_waits() -> None:
    moments = [Moment(second, 100 * second, 60 * second) for second in range(1, 12)]

    assert second_half(moments) == Pace(5, 100.0, 60.0, 240, 440)


def test_only_whole_batches_are_counted() -> None:
    # A batch of 500 every five seconds, looked at each second.
    moments = [Moment(second, 100 * second, 500 * (second // 5)) for second in range(41)]

    assert second_half(moments) == Pace(20, 100.0, 100.0, 0, 0)


def test_of_a_run_that_was_too_short_nothing_is_said() -> None:
    assert second_half([Moment(1, 100, 0), Moment(2, 200, 100)]) is None
