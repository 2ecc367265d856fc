"""The report after the last test: what several processes said and counted, put together."""

from __future__ import annotations

import json
from pathlib import Path

from tests.report import Report, collect


def test_lines_are_kept_in_the_order_in_which_they_were_said(tmp_path: Path) -> None:
    report = Report(tmp_path)
    report.say("seeds", "first")
    report.say("seeds", "second")

    assert collect(tmp_path) == {"seeds": ["first", "second"]}


def test_counts_of_the_same_name_are_summed_over_processes(tmp_path: Path) -> None:
    Report(tmp_path).count("crash points", {"append": 2})
    other = {"section": "crash points", "counts": {"append": 40, "sync": 1}}
    (tmp_path / "other.report").write_text(json.dumps(other) + "\n", encoding="utf-8")

    assert [line.split() for line in collect(tmp_path)["crash points"]] == [["append", "42"], ["sync", "1"]]


def test_a_run_that_reports_nothing_has_no_sections(tmp_path: Path) -> None:
    assert collect(tmp_path) == {}
