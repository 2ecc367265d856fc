"""A failed test is taken again only where the host had the processors meanwhile, and the report tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.neighbours import Reading
from bench.spark_cpu import TICKS_PER_SECOND
from tests.report import Report, collect
from tests.stolen import SECTION, STOLEN_S_MAX, TURNS_MAX, Watch

CONFTEST = """
from pathlib import Path
from bench.neighbours import Reading
from tests import stolen
from tests.report import Report

HERE = Path(__file__).parent

def ticks():
    return Reading(int((HERE / "ticks").read_text()), 0)

def pytest_collection_modifyitems(items):
    for item in items:
        stolen.watch(item, Report(HERE), ticks)

def pytest_runtest_setup(item):
    stolen.begin(item)
"""
TESTS = """
from pathlib import Path

HERE = Path(__file__).parent

def taken(more):
    runs, ticks = HERE / "runs", HERE / "ticks"
    runs.write_text(runs.read_text() + "x")
    ticks.write_text(str(int(ticks.read_text()) + more))
    return len(runs.read_text())

def test_quiet():
    assert taken(0) < 0

def test_disturbed_once():
    assert taken(0 if len((HERE / "runs").read_text()) == 2 else 9000) == 3

def test_always_disturbed():
    assert taken(9000) < 0
"""


@pytest.mark.parametrize(("stolen_s", "is_disturbed"), [(0.0, False), (STOLEN_S_MAX, False), (STOLEN_S_MAX + 1, True)])
def test_a_failure_counts_unless_others_had_the_processors(stolen_s: float, is_disturbed: bool, tmp_path: Path) -> None:
    ticks = [5_000]
    watch = Watch("tests/a.py::test_b", Report(tmp_path), lambda: Reading(ticks[0], ticks[0]))
    watch.begin()
    ticks[0] += round(stolen_s * TICKS_PER_SECOND)

    assert watch.is_disturbed(TimeoutError("no\nworker")) is is_disturbed
    said = [f"tests/a.py::test_b: {stolen_s:.1f} s taken; TimeoutError: no worker"]
    assert collect(tmp_path) == ({SECTION: said} if is_disturbed else {})


def test_what_was_taken_before_a_test_began_does_not_count(tmp_path: Path) -> None:
    ticks = [0]
    watch = Watch("t", Report(tmp_path), lambda: Reading(ticks[0], ticks[0]))
    ticks[0] = 90 * TICKS_PER_SECOND

    watch.begin()

    assert not watch.is_disturbed(TimeoutError())


@pytest.mark.slow
def test_a_run_takes_again_what_was_disturbed_and_at_most_so_often(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (tmp_path / "ticks").write_text("0")
    (tmp_path / "runs").write_text("")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path)]

    run = subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False)

    assert "2 failed, 1 passed, 3 rerun" in run.stdout, run.stdout + run.stderr
    assert (tmp_path / "runs").read_text() == "x" * (1 + 2 + TURNS_MAX)
    told = [line.split(": ")[0].rpartition("::")[2] for line in collect(tmp_path)[SECTION]]
    assert told == ["test_disturbed_once", *["test_always_disturbed"] * TURNS_MAX]
