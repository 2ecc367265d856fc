"""Waits count from when a record was due, and the percentiles are those of all records."""

from __future__ import annotations

from bench.peers.intended import Schedule, percentile, percentiles, typical

SECOND_NS = 1_000_000_000


def test_records_are_due_at_equal_distances_from_the_start() -> None:
    schedule = Schedule(start_ns=100, rate=1_000.0)

    assert [schedule.due_ns(number) for number in (0, 1, 1_000)] == [100, 1_000_100, 100 + SECOND_NS]


def test_a_record_counts_as_due_from_the_moment_on_that_it_is_due() -> None:
    schedule = Schedule(start_ns=0, rate=1_000.0)

    assert [schedule.due(now_ns) for now_ns in (-1, 0, 999_999, 1_000_000, 1_000_001)] == [0, 1, 1, 2, 2]


def test_everything_that_a_stall_held_back_is_due_after_it_and_has_waited_since_it_was() -> None:
    schedule = Schedule(start_ns=0, rate=1_000.0)
    stalled_until_ns = SECOND_NS
    waits = [stalled_until_ns - schedule.due_ns(number) for number in range(schedule.due(stalled_until_ns))]

    assert len(waits) == 1_001
    assert percentile(sorted(waits), 0.5) == SECOND_NS // 2


def test_a_percentile_is_the_smallest_wait_that_so_many_did_not_exceed() -> None:
    waits = [float(wait) for wait in range(1, 1_001)]

    assert percentiles(waits) == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0}


def test_one_late_record_of_a_thousand_is_not_in_the_p99_and_is_the_last_thousandth() -> None:
    waits = [1.0] * 998 + [50.0] * 2

    assert percentiles(waits) == {"p50": 1.0, "p99": 1.0, "p99.9": 50.0}


def test_percentiles_do_not_need_waits_in_order() -> None:
    assert percentiles([3.0, 1.0, 2.0])["p50"] == 2.0


def test_what_disturbs_one_piece_of_a_phase_is_not_in_what_is_typical_of_it() -> None:
    calm, disturbed = [float(n) for n in range(1, 1001)], [5_000.0] * 1_000
    assert typical([calm, disturbed, calm]) == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0}
    assert typical([calm, disturbed, disturbed])["p50"] == 5_000.0


def test_a_piece_without_waits_tells_nothing() -> None:
    assert typical([[2.0], []]) == {"p50": 2.0, "p99": 2.0, "p99.9": 2.0}
    assert typical([[], []]) == {}
