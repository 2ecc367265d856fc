"""The main job as `make run` runs it, but smaller: everything adds up although the broker is killed half-way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.clients.missing import missing
from tests.peers import kafka

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 900
"""On a machine that is busy with other tests; it takes less than a minute when it has two cores to itself."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A run that is over, with the broker killed once."""
    if find_spec("pyspark") is None:
        missing("pyspark is not installed; `make setup` brings it")
    try:
        kafka.java()
    except kafka.PeerMissing as reason:
        missing(f"Spark needs Java: {reason}")
    directory = tmp_path_factory.mktemp("run") / "orders"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTTLA_", "RUN_"))}
    environment |= {
        "PYTHONPATH": str(ROOT / "src"),
        "RUN_SECONDS": "8",
        "RUN_KILL_BROKER": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "examples.orders.main", str(directory), "--rate=500", "--listen=127.0.0.1:0"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def _numbers(output: str, pattern: str) -> list[int]:
    found = re.search(pattern, output)
    assert found, output
    return [int(number.replace(",", "")) for number in found.groups()]


def test_the_run_ends_well_by_itself(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.returncode == 0, finished.stdout
    assert "Everything adds up, and nothing is there twice." in finished.stdout


def test_the_broker_was_killed_and_came_back(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.stdout.index("killing the broker") < finished.stdout.index("the broker is back")


def test_what_was_generated_is_in_the_table_or_bad(finished: subprocess.CompletedProcess[str]) -> None:
    generated, rows, bad = _numbers(finished.stdout, r"generated ([\d,]+) = in the table ([\d,]+) \+ bad ([\d,]+)")

    assert generated == rows + bad
    assert bad > 0


def test_what_is_clean_is_in_a_window_or_late(finished: subprocess.CompletedProcess[str]) -> None:
    pattern = r"clean ([\d,]+) = in ([\d,]+) windows ([\d,]+) \+ late ([\d,]+)"
    clean, windows, in_windows, late = _numbers(finished.stdout, pattern)

    assert clean == in_windows + late
    assert windows > 1
    assert late > 0
