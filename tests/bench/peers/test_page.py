"""The page and its pictures, from figures made up for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree

from bench.peers import page, ratio_plot
from bench.peers.contract import KAFKA, OURS, Load, Result, Row, Turn

ROW = Row(
    id="raw-100b", group="Request rate", what="produce 100 B", settings="s", fsync="acks=1", unit="r/s", expected=3.0
)
LOAD = Load(
    wall_s=2.0, broker_cpu_s=3.0, client_cpu_s=0.5, gigabytes=2.0, rss_mb=41.0, hwm_mb=52.0, client_thread_s=0.5
)
MET = Result(ROW, {OURS: [Turn(value=4_000.0, load=LOAD)] * 3, KAFKA: [Turn(value=1_000.0)] * 3}, {})
SHORT = Result(replace(ROW, id="raw-1000b"), {OURS: [Turn(value=1.0)] * 3, KAFKA: [Turn(value=1.0)] * 3}, {})
ALONE = Result(replace(ROW, id="raw-alone"), {OURS: [Turn(value=1.0)] * 3}, {KAFKA: "no Java"})
TAKEN = datetime(2026, 1, 2, tzinfo=UTC)


def rendered(*results: Result) -> str:
    return page.render(results, taken=TAKEN, rounds="3 rounds", facts=["a machine"], commands=["make it"], cores=2)


def cells(text: str, result: Result) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| `{result.row.id}`"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_shows_figures_ratio_verdict_cost_and_limit() -> None:
    shown = cells(rendered(MET), MET)

    assert shown[3:] == [
        "acks=1",
        "r/s",
        "4,000 ±0%",
        "kafka",
        "1,000 ±0%",
        "4.00",
        "3",
        "met",
        "1.50 / -",
        "41 (most 52) / -",
        "broker / -",
    ]


def test_the_summary_counts_the_verdicts_and_names_those_that_fell_short() -> None:
    text = rendered(MET, SHORT, ALONE)

    assert "Of 3 rows with an expectation: 1 met, 1 NOT MET, 0 not known yet, 1 not measured." in text
    assert "- `raw-1000b` (produce 100 B; against kafka): 1.00, expected 3" in text


def test_of_a_row_that_is_not_known_yet_the_summary_tells_what_any_two_rounds_say() -> None:
    peer = [Turn(value=1_000.0)] * 3
    ahead, either = (
        Result(replace(ROW, id=name), {OURS: [Turn(value=value) for value in values], KAFKA: peer}, {})
        for name, values in (("ahead", (3_000.0, 5_000.0, 9_000.0)), ("either", (2_900.0, 5_000.0, 9_000.0)))
    )
    text = rendered(ahead, either)

    assert "Not known yet (1 of 2 reach it whichever rounds are compared):" in text
    assert "5.00, expected 3, 3.00 to 9.00 by the rounds that are compared" in text


def test_a_row_of_cpu_seconds_that_fell_short_tells_what_the_kernel_alone_would_leave() -> None:
    row = replace(ROW, id="cpu-1000b", unit="s/GB", better="less")
    ours = Turn(value=1.5, load=replace(LOAD, broker_kernel_s=2.0))
    peer = Turn(value=2.0, load=replace(LOAD, broker_cpu_s=4.0, broker_kernel_s=1.0))
    result = Result(row, {OURS: [ours] * 3, KAFKA: [peer] * 3}, {})
    text = rendered(result)

    assert cells(text, result)[11] == "1.50 (1.00) / 2.00 (0.500)"
    assert (
        "1.33, expected 3; with the kernel's part of ours alone, and no code of the broker's, it would be 2.00" in text
    )


def test_the_page_tells_how_many_rows_are_not_on_it() -> None:
    whole = page.render([MET], taken=TAKEN, rounds="", facts=[], commands=[], cores=2)
    part = page.render([MET], taken=TAKEN, rounds="", facts=[], commands=[], cores=2, unmeasured=7)

    assert "not been measured yet" not in whole
    assert "7 more rows have not been measured yet" in part


def test_a_side_that_is_missing_is_told_with_its_reason() -> None:
    text = rendered(ALONE)

    assert "- kafka was not measured (`raw-alone`): no Java" in text
    assert cells(text, ALONE)[7:11] == ["-", "-", "3", "not measured"]


def test_rows_stand_as_they_are_defined_and_those_without_a_definition_are_dropped() -> None:
    shown = page.in_order([SHORT, MET, replace_id(MET, "gone")], ["raw-100b", "not-measured-yet", "raw-1000b"])

    assert [result.row.id for result in shown] == ["raw-100b", "raw-1000b"]


def replace_id(result: Result, row_id: str) -> Result:
    return replace(result, row=replace(result.row, id=row_id))


def test_there_is_one_picture_for_each_group_that_has_a_ratio() -> None:
    alone = replace(ALONE, row=replace(ALONE.row, group="Alone"))

    assert list(page.pictures([MET, SHORT, alone])) == ["peers-request-rate.svg"]
    assert "](peers-request-rate.svg)" in rendered(MET)


def test_a_figure_has_three_digits_that_count() -> None:
    assert [page.number(value) for value in (12_345.6, 12.34, 1.234, 0.1234)] == ["12,346", "12.3", "1.23", "0.123"]


def bars(*ratios: ratio_plot.Ratio) -> list[ElementTree.Element]:
    picture = ElementTree.fromstring(ratio_plot.svg("a < b", ratios))
    return list(picture.iter("{http://www.w3.org/2000/svg}rect"))[1:]


def ratio(value: float, *, expected: float | None = None, is_known: bool = True) -> ratio_plot.Ratio:
    return ratio_plot.Ratio(
        label="x & y", value=value, low=value / 2, high=value * 2, expected=expected, is_known=is_known
    )


def test_twice_as_good_and_half_as_good_are_bars_of_the_same_length_on_either_side_of_level() -> None:
    ahead, behind = bars(ratio(2.0), ratio(0.5))

    assert ahead.get("width") == behind.get("width")
    assert float(behind.get("x", "")) + float(behind.get("width", "")) == float(ahead.get("x", ""))


def test_the_colour_tells_whether_an_expectation_is_met_missed_or_not_known() -> None:
    shown = bars(ratio(2.0, expected=2.0), ratio(2.0, expected=3.0), ratio(2.0, is_known=False))

    assert [bar.get("fill") for bar in shown] == [ratio_plot.AHEAD, ratio_plot.BEHIND, ratio_plot.UNKNOWN]


def test_a_ratio_without_end_is_left_out_of_the_picture() -> None:
    assert bars(ratio(float("inf"))) == []
