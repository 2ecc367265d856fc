"""Seeded lives of a log that loses its power, its process, its space and its syncs at every place there is.

CRASH_SEEDS says how many (default 1000). To have one again: `Simulation(seed, Counter()).run()`.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.report import Report
from tests.storage.crash import points
from tests.storage.crash.points import Point
from tests.storage.crash.simulation import OPERATIONS, Simulation

CHUNKS = 10
SEEDS = int(os.environ.get("CRASH_SEEDS", "1000"))
SEEDS_FOR_EVERY_POINT = 1000
"""With fewer, a rare place may not be hit by chance alone."""
SECTION = "crash points: how often a simulated log died there"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of recoveries warn of what they cut; that is what they are here for."""
    caplog.set_level(logging.CRITICAL, logger="ottla")


def simulate(seeds: range) -> tuple[Counter[Point], Counter[str]]:
    """Run them all; returns where they died and what they did."""
    hits: Counter[Point] = Counter()
    done: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(seed, hits)
        try:
            simulation.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        done += simulation.operations
    return hits, done


def test_a_few_lives_keep_every_promise() -> None:
    hits, done = simulate(range(20))
    assert len(hits) > 50
    assert done["sync"] > 50


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_life_keeps_every_promise_and_every_place_is_died_at(
    chunk: int, report_lines: Report, shared_directory: Path
) -> None:
    hits, done = simulate(range(chunk, SEEDS, CHUNKS))
    report_lines.count(SECTION, {f"{operation} ({moment})": count for (operation, moment), count in hits.items()})
    unfinished = shared_directory / f"crash-{chunk}.unfinished"
    unfinished.write_text(json.dumps([[*point, count] for point, count in hits.items()]), encoding="utf-8")
    unfinished.rename(shared_directory / f"crash-{chunk}.json")
    assert {name for name, *_ in OPERATIONS} <= {*done, "fail append"}, "every operation came to its end at times"
    # Whichever chunk is the last to end, in whichever process, sees the counts of all.
    finished = list(shared_directory.glob("crash-*.json"))
    if len(finished) == CHUNKS:
        total: Counter[Point] = Counter()
        for path in finished:
            for operation, moment, count in json.loads(path.read_text(encoding="utf-8")):
                total[operation, moment] += count
        assert set(total) <= set(points.ALL), "a place that is not listed"
        if SEEDS >= SEEDS_FOR_EVERY_POINT:
            assert set(points.ALL) <= set(total), "a place where nobody died"
        report_lines.say(SECTION, f"{SEEDS} seeds, {total.total()} deaths at {len(total)} of {len(points.ALL)} places")


def test_the_same_seed_lives_the_same_life() -> None:
    first = [Simulation(seed, Counter()).run() for seed in range(8)]
    second = [Simulation(seed, Counter()).run() for seed in range(8)]
    assert first == second
    assert len(set(first)) == len(first)
