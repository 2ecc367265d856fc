"""Seeded lives of consumer groups with members of both protocols, restarts of the coordinator included.

GROUP_SEEDS says how many (default 400). To have one again: `Simulation(seed, Counter()).run()`.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.coordinators.groups.consumer_simulation import Simulation
from tests.report import Report

CHUNKS = 5
SEEDS = int(os.environ.get("GROUP_SEEDS", "400"))
SEEDS_FOR_EVERY_TRANSITION = 400
"""With fewer, a rare one may not be taken by chance alone."""
SECTION = "consumer groups: how often each transition was taken"

MEMBER_TRANSITIONS = {
    f"member: {before} > {after}"
    for before in ("-", "STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS")
    for after in ("-", "STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS")
    if (before, after) != ("-", "-")
}
GROUP_TRANSITIONS = {
    f"group: {before} > {after}"
    for before, afters in {
        "none": ("Stable", "classic"),
        "Empty": ("Stable", "classic"),
        "Assigning": ("Empty", "Reconciling", "Stable", "classic"),
        "Reconciling": ("Assigning", "Empty", "Stable", "classic"),
        "Stable": ("Assigning", "Empty", "Reconciling", "classic"),
        "classic": ("Reconciling", "Stable"),
    }.items()
    for after in afters
}
EVENTS = {
    "a decision is lost",
    "an answer is lost",
    "the log is compacted",
    "the coordinator restarts",
    "too late: join",
    "too late: revocation",
    "too late: session",
    "too late: sync",
    "refused: FENCED_INSTANCE_ID",
    "refused: FENCED_MEMBER_EPOCH",
    "refused: GROUP_MAX_SIZE_REACHED",
    "refused: ILLEGAL_GENERATION",
    "refused: REBALANCE_IN_PROGRESS",
    "refused: UNKNOWN_MEMBER_ID",
    "refused: UNRELEASED_INSTANCE_ID",
}
EVERY_TRANSITION = MEMBER_TRANSITIONS | GROUP_TRANSITIONS | EVENTS


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of members are let go; that is what they are here for."""
    caplog.set_level(logging.CRITICAL, logger="ottla")


def simulate(seeds: range) -> Counter[str]:
    """Run them all; returns what happened."""
    transitions: Counter[str] = Counter()
    for seed in seeds:
        try:
            Simulation(seed, transitions).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return transitions


def test_a_few_groups_keep_every_promise() -> None:
    transitions = simulate(range(20))
    assert len(transitions) > 20


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_group_keeps_every_promise_and_every_transition_is_taken(
    chunk: int, report_lines: Report, shared_directory: Path
) -> None:
    transitions = simulate(range(chunk, SEEDS, CHUNKS))
    report_lines.count(SECTION, transitions)
    unfinished = shared_directory / f"consumer-groups-{chunk}.unfinished"
    unfinished.write_text(json.dumps(transitions), encoding="utf-8")
    unfinished.rename(shared_directory / f"consumer-groups-{chunk}.json")
    # Whichever chunk is the last to end, in whichever process, sees the counts of all.
    finished = list(shared_directory.glob("consumer-groups-*.json"))
    if len(finished) == CHUNKS and SEEDS >= SEEDS_FOR_EVERY_TRANSITION:
        total: Counter[str] = Counter()
        for path in finished:
            total.update(json.loads(path.read_text(encoding="utf-8")))
        assert set(total) >= EVERY_TRANSITION, "a transition that was never taken"
        report_lines.say(SECTION, f"{SEEDS} seeds, {total.total()} events of {len(total)} kinds")


def test_the_same_seed_lives_the_same_life() -> None:
    first = [Simulation(seed, Counter()).run() for seed in range(6)]
    second = [Simulation(seed, Counter()).run() for seed in range(6)]
    assert first == second
    assert len(set(first)) == len(first)
