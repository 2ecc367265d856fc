"""What a run on the Spark side concludes from its figures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.spark_bars import LABEL_WIDTH, svg
from bench.spark_kept import Part, keep, kept
from bench.spark_page import Findings, table
from bench.spark_rows import Row, Turn, Unit, cheaper, in_turns, measured, quicker, spread, within

TAKEN = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)


def _row(*figures: float, unit: Unit = "records/s", side: str = "ottla", broker_cpu_s: float = 1.0) -> Row:
    return Row("topic to noop", side, unit, tuple(Turn(figure, 2.0, broker_cpu_s) for figure in figures))


def test_the_sides_take_turns_after_one_turn_each_to_warm_up() -> None:
    order: list[str] = []

    def take(side: str) -> int:
        order.append(side)
        return len(order)

    taken = in_turns({side: partial(take, side) for side in ("a", "b")}, rounds=2)

    assert order == ["a", "b", "a", "b", "a", "b"]
    assert taken == {"a": (3, 5), "b": (4, 6)}


def test_more_records_a_second_are_quicker() -> None:
    judged = quicker(_row(200, 220, 210), _row(100, 101, 99, side="kafka"), times_min=2)

    assert (judged.measured, judged.verdict) == ("2.10 times as quick", "met")


def test_fewer_milliseconds_are_quicker() -> None:
    judged = quicker(_row(150, 150, 150, unit="ms"), _row(100, 100, 100, unit="ms", side="kafka"), times_min=1)

    assert (judged.measured, judged.verdict) == ("0.67 times as quick", "NOT MET")


def test_figures_that_lie_far_apart_on_either_side_say_nothing() -> None:
    assert spread([80, 100, 121]) == 0.41
    assert quicker(_row(1_000, 1_000, 1_000), _row(80, 100, 121, side="kafka"), times_min=2).verdict == "not known yet"


def test_one_turn_has_no_spread_and_so_no_verdict() -> None:
    assert quicker(_row(1_000), _row(100, side="kafka"), times_min=2).verdict == "not known yet"
    assert cheaper(_row(1, broker_cpu_s=0.1), _row(1, side="kafka"), share_max=1 / 3).verdict == "not known yet"
    assert within(_row(10, unit="ms"), limit_ms=250).verdict == "not known yet"


def test_the_share_of_the_brokers_computing_is_judged_by_its_own_spread() -> None:
    ours = Row("w", "ottla", "records/s", tuple(Turn(figure, 1.0, 0.1) for figure in (1.0, 5.0, 9.0)))

    judged = cheaper(ours, _row(1, 1, 1, side="kafka", broker_cpu_s=0.4), share_max=1 / 3)

    assert (judged.measured, judged.verdict) == ("0.25 of it", "met")


def test_a_time_at_the_limit_is_too_long() -> None:
    assert within(_row(250, 250, 250, unit="ms"), limit_ms=250).verdict == "NOT MET"
    assert within(_row(249, 249, 249, unit="ms"), limit_ms=250).verdict == "met"


def test_a_time_that_is_short_in_every_turn_is_known_to_be_short_however_far_the_turns_are_apart() -> None:
    judged = within(_row(20, 40, 240, unit="ms"), limit_ms=250)

    assert (judged.measured, judged.verdict) == ("40 ms, at most 240 ms", "met")


def test_a_time_that_is_too_long_in_one_turn_of_many_is_not_known() -> None:
    assert within(_row(20, 40, 260, unit="ms"), limit_ms=250).verdict == "not known yet"
    assert within(_row(240, 250, 260, unit="ms"), limit_ms=250).verdict == "NOT MET"


def test_all_sides_of_a_row_are_measured_again_when_one_is_not_known() -> None:
    figures = {"a": iter([1, 10, 20, 30, 1, 10, 10, 10]), "b": iter([1, 5, 5, 5, 1, 6, 6, 6])}
    sides = {side: lambda given=given: Turn(next(given), 1.0, 1.0) for side, given in figures.items()}

    rows = measured("work", "ms", sides, rounds=3)

    assert [(row.side, row.median) for row in rows] == [("a", 10), ("b", 6)]


def test_a_row_that_stays_unknown_is_measured_twice_at_most() -> None:
    count = iter(range(1, 100))

    rows = measured("work", "ms", {"a": lambda: Turn(next(count) ** 3, 1.0, 1.0)}, rounds=3)

    assert next(count) == 9
    assert not rows[0].is_known


def test_the_page_names_every_side_and_every_verdict() -> None:
    ours, peer = _row(2e6, 2e6, 2e6), _row(1e6, 1e6, 1e6, side="kafka")
    found = Findings({"sources": [ours, peer]}, [quicker(ours, peer, times_min=2)])

    text = found.page(taken={"sources": TAKEN}, counts=["few"], notes=["a machine"])

    assert "sources on 15 November 2026 at 08:30 (UTC)" in text
    assert "3 turns of each" in text
    assert "| topic to noop | kafka | 1.00 M ±0% | 2.00 s      | 1.00 s       |" in text
    assert "| topic to noop: ottla against kafka | 2.00 times as quick | at least 2 | met |" in text


def test_the_page_marks_a_figure_whose_turns_lie_far_apart() -> None:
    found = Findings({"batches": [_row(50, 100, 150, unit="ms")]}, [])

    text = found.page(taken={"batches": TAKEN}, counts=[], notes=[])

    assert "| 100 ms ±100%, not known yet |" in text


def test_a_part_is_kept_until_it_is_measured_again(tmp_path: Path) -> None:
    first, second = Part(TAKEN, [_row(1.5, 2.5)]), Part(TAKEN, [_row(3, unit="ms")])
    keep(tmp_path, "sinks", first)
    keep(tmp_path, "latency", first)
    keep(tmp_path, "latency", second)

    assert kept(tmp_path, ("sources", "sinks", "latency")) == {"sinks": first, "latency": second}


def test_columns_of_a_table_are_as_wide_as_their_widest_cell() -> None:
    assert table(("a", "b"), [("long", "c")]) == ["| a    | b |", "|------|---|", "| long | c |"]


def test_the_picture_is_well_formed_and_its_bars_are_as_long_as_their_figures() -> None:
    found = Findings({"sinks": [_row(2_000_000), _row(1_000_000, side='kafka <"&">')]}, [])

    picture = ElementTree.fromstring(svg(found.panels()))

    bars = [each for each in picture.findall("{*}rect") if each.get("x") == str(LABEL_WIDTH)]
    assert [float(bar.attrib["width"]) for bar in bars][:2] == [560.0, 280.0]
