"""What is kept of a run: round by round, beside the figures of the run before, until it is whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.peers.contract import KAFKA, NOT_PRODUCED, OURS, Load, Row, Turn
from bench.peers.store import Store, pick

ROW = Row(id="raw-100b", group="g", what="w", settings="s", fsync=NOT_PRODUCED, unit="records/s", expected=3.0)
LOAD = Load(wall_s=2.0, broker_cpu_s=1.0, client_cpu_s=1.0, gigabytes=1.0, rss_mb=10.0, hwm_mb=20.0)


def test_a_figure_comes_back_with_its_row_and_its_load(tmp_path: Path) -> None:
    store, turn = Store(tmp_path), Turn(value=12.5, load=LOAD)
    store.begin(ROW, is_resumed=False)
    store.add(ROW, OURS, turn)
    store.finish(ROW)

    kept = Store(tmp_path).result(ROW.id)

    assert kept is not None
    assert (kept.row, kept.turns) == (ROW, {OURS: [turn]})


def test_a_run_that_was_cut_off_leaves_the_figures_of_the_run_before_in_their_place(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.begin(ROW, is_resumed=False)
    store.add(ROW, OURS, Turn(value=1.0))
    store.finish(ROW)
    store.begin(ROW, is_resumed=False)
    store.add(ROW, OURS, Turn(value=2.0))

    kept = store.result(ROW.id)

    assert kept is not None
    assert kept.values(OURS) == [1.0]


def test_the_rounds_of_a_run_that_was_cut_off_show_where_there_are_no_others(tmp_path: Path) -> None:
    Store(tmp_path).add(ROW, OURS, Turn(value=2.0))

    kept = Store(tmp_path).result(ROW.id)

    assert kept is not None
    assert kept.values(OURS) == [2.0]


def test_a_resumed_run_counts_the_rounds_that_are_there(tmp_path: Path) -> None:
    Store(tmp_path).add(ROW, OURS, Turn(value=2.0))
    store = Store(tmp_path)

    store.begin(ROW, is_resumed=True)

    assert (store.taken(ROW, OURS), store.taken(ROW, KAFKA)) == (1, 0)


def test_a_resumed_run_counts_the_rounds_of_a_row_that_was_whole(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(ROW, OURS, Turn(value=2.0))
    store.finish(ROW)

    store.begin(ROW, is_resumed=True)

    assert store.taken(ROW, OURS) == 1


def test_a_new_run_counts_none_of_the_rounds_that_are_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(ROW, OURS, Turn(value=2.0))

    store.begin(ROW, is_resumed=False)

    assert store.taken(ROW, OURS) == 0


def test_a_side_that_is_missing_keeps_the_reason_until_it_is_measured(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.miss(ROW, KAFKA, "no Java")
    before = store.result(ROW.id)
    store.add(ROW, KAFKA, Turn(value=2.0))
    after = store.result(ROW.id)

    assert before is not None
    assert before.missing == {KAFKA: "no Java"}
    assert after is not None
    assert after.missing == {}


def test_a_row_is_shown_as_it_is_defined_now(tmp_path: Path) -> None:
    store, renamed = Store(tmp_path), replace(ROW, what="another")
    store.add(ROW, OURS, Turn(value=1.0))
    store.add(renamed, OURS, Turn(value=2.0))

    kept = store.result(ROW.id)

    assert kept is not None
    assert (kept.row.what, kept.values(OURS)) == ("another", [1.0, 2.0])


def test_the_conditions_of_the_last_run_are_kept_with_its_time(tmp_path: Path) -> None:
    taken = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    Store(tmp_path).keep_facts(["two cores"], taken=taken)

    assert Store(tmp_path).facts() == (["two cores"], taken)
    assert Store(tmp_path / "none").facts() == ([], None)


def test_rows_are_picked_by_whole_words_of_their_ids() -> None:
    rows = [replace(ROW, id=name) for name in ("raw-acks1-100b", "raw-acks1-1000b", "startup-new")]

    assert [row.id for row in pick(rows, ["raw-acks1-100b", "startup"])] == ["raw-acks1-100b", "startup-new"]
    assert pick(rows, []) == rows


def test_what_is_kept_comes_back_on_another_machine(tmp_path: Path) -> None:
    store, taken = Store(tmp_path / "here"), datetime(2026, 1, 2, tzinfo=UTC)
    for value in (1.0, 2.0):
        store.add(ROW, OURS, Turn(value=value, load=LOAD))
    store.miss(ROW, KAFKA, "not to be had")
    store.keep_facts(["two cores"], taken=taken)

    other = Store(tmp_path / "there")
    other.unbundle(store.bundle())

    assert other.results() == store.results()
    assert other.facts() == (["two cores"], taken)


def test_what_was_measured_here_is_not_replaced_by_what_came_along(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "here"), Store(tmp_path / "there")
    store.add(ROW, OURS, Turn(value=1.0))
    other.add(ROW, OURS, Turn(value=2.0))

    other.unbundle(store.bundle())

    assert [result.values(OURS) for result in other.results()] == [[2.0]]
