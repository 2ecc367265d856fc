"""Ratios, spreads and verdicts of a row, and who was the limit, from figures made up for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.peers.contract import KAFKA, NOT_PRODUCED, OURS, Load, Result, Row, Turn, counted, limit

MORE = Row(id="rate", group="g", what="w", settings="s", fsync=NOT_PRODUCED, unit="records/s", expected=1.0)
LESS = replace(MORE, id="wait", unit="ms", better="less")
LOAD = Load(wall_s=2.0, broker_cpu_s=1.0, client_cpu_s=1.0, gigabytes=1.0, rss_mb=10.0, hwm_mb=20.0)


def result(row: Row, ours: list[float], peer: list[float]) -> Result:
    return Result(row, {OURS: [Turn(value=each) for each in ours], KAFKA: [Turn(value=each) for each in peer]}, {})


def test_where_more_is_better_the_ratio_is_ours_over_the_peers() -> None:
    assert result(MORE, [20, 20, 22], [10, 10, 11]).ratio == 2.0


def test_where_less_is_better_the_ratio_is_the_peers_over_ours() -> None:
    assert result(LESS, [5, 5, 5], [10, 10, 10]).ratio == 2.0


def test_the_range_goes_from_our_worst_against_the_peers_best_to_the_other_way_round() -> None:
    assert result(MORE, [10, 12, 14], [5, 6, 7]).ratio_range == (10 / 7, 14 / 5)
    assert result(LESS, [10, 12, 14], [5, 6, 7]).ratio_range == (5 / 14, 7 / 10)


def test_an_expectation_is_met_when_the_ratio_reaches_it() -> None:
    assert result(MORE, [10, 10, 10], [10, 10, 10]).verdict == "met"


def test_an_expectation_is_not_met_when_the_ratio_stays_below_it() -> None:
    assert result(MORE, [9, 9, 9], [10, 10, 10]).verdict == "NOT MET"


def test_a_row_without_an_expectation_has_no_verdict() -> None:
    assert result(replace(MORE, expected=None), [9, 9, 9], [10, 10, 10]).verdict == ""


@pytest.mark.parametrize("wide", [([10, 10, 15], [1, 1, 1]), ([10, 10, 10], [2, 2, 3])])
def test_a_wide_spread_on_either_side_leaves_a_row_unknown(wide: tuple[list[float], list[float]]) -> None:
    assert result(MORE, *wide).verdict == "not known yet"


def test_fewer_than_three_rounds_leave_a_row_unknown_however_alike_they_are() -> None:
    assert result(MORE, [10, 10], [1, 1]).verdict == "not known yet"


def test_a_row_without_its_peer_is_not_measured() -> None:
    alone = Result(MORE, {OURS: [Turn(value=1.0)] * 3}, {KAFKA: "no Java"})

    assert alone.ratio is None
    assert alone.verdict == "not measured"


def test_the_load_of_a_side_is_the_median_of_its_rounds_figure_by_figure() -> None:
    loads = [replace(LOAD, broker_cpu_s=cpu, rss_mb=rss) for cpu, rss in ((1.0, 30.0), (2.0, 10.0), (9.0, 20.0))]
    measured = Result(MORE, {OURS: [Turn(value=1.0, load=load) for load in loads]}, {})

    middle = measured.load(OURS)

    assert middle is not None
    assert (middle.broker_cpu_s, middle.rss_mb) == (2.0, 20.0)


def test_a_row_has_to_say_what_an_acknowledgement_means() -> None:
    with pytest.raises(ValueError, match="does not say"):
        replace(MORE, fsync="")


def test_an_id_that_could_not_be_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match="no id"):
        replace(MORE, id="a/b")


def test_a_client_with_a_thread_that_never_rests_is_the_limit() -> None:
    assert limit(replace(LOAD, client_thread_s=1.9), cores=2) == "client"


def test_the_machine_is_the_limit_when_broker_and_client_use_all_of_it() -> None:
    assert limit(replace(LOAD, broker_cpu_s=2.2, client_cpu_s=1.6, client_thread_s=1.0), cores=2) == "machine"


def test_the_broker_is_the_limit_when_it_has_a_core_and_the_client_has_time() -> None:
    assert limit(replace(LOAD, broker_cpu_s=1.9, client_cpu_s=0.5), cores=2) == "broker"


def test_nobody_is_the_limit_when_all_wait_for_something_else() -> None:
    assert limit(LOAD, cores=2) == ""


def test_a_count_has_a_plural() -> None:
    assert [counted(number, "partition") for number in (1, 1_000)] == ["1 partition", "1,000 partitions"]
