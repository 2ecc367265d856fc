"""Seeded lives of a shard's offsets: see `offsets_simulation` for what is promised.

GROUP_SEEDS says how many (default 400). To have one again: `OffsetsSimulation(seed, Counter()).run()`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.coordinators.groups.offsets_simulation import OffsetsSimulation
from tests.report import Report

SEEDS = int(os.environ.get("GROUP_SEEDS", "400"))
SECTION = "offsets in transactions: how often each thing happened in the simulation"

EVERYTHING = {
    "a plain commit",
    "a plain commit overtakes a transaction",
    "a transaction stores offsets",
    "a transaction ends: COMMIT",
    "a transaction ends: ABORT",
    "an end is told again",
    "a group is deleted",
    "an offset is deleted",
    "a topic is made again",
    "a crash",
    "a crash loses records",
    "a crash loses the end of a transaction",
    "the log is compacted",
}


def simulate(seeds: range) -> Counter[str]:
    """Run them all; returns what happened."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            OffsetsSimulation(seed, counts).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return counts


def test_a_few_shards_keep_every_promise() -> None:
    counts = simulate(range(40))

    assert {name for name, count in counts.items() if count} == EVERYTHING


@pytest.mark.slow
def test_every_shard_keeps_every_promise_and_everything_happens(report_lines: Report) -> None:
    counts = simulate(range(SEEDS))

    report_lines.count(SECTION, dict(counts))
    assert {name for name, count in counts.items() if count} == EVERYTHING


def test_the_same_seed_lives_the_same_life() -> None:
    first = [OffsetsSimulation(seed, Counter()).run() for seed in range(4)]
    second = [OffsetsSimulation(seed, Counter()).run() for seed in range(4)]

    assert first == second
    assert len(set(first)) == len(first)
