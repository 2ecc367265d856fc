"""Seeded lives of a classic group: see `classic_simulation` for what is promised.

GROUP_SEEDS says how many (default 400). To have one again: `Simulation(seed, Counter()).run()`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.coordinators.groups.classic_simulation import Simulation
from tests.report import Report

SEEDS = int(os.environ.get("GROUP_SEEDS", "400"))
SEEDS_FOR_EVERYTHING = 400
"""With fewer, what is rare may not happen by chance alone."""
SECTION = "classic groups: how often each thing happened in the simulation"

TRANSITIONS = {
    "Empty -> PreparingRebalance",
    "PreparingRebalance -> CompletingRebalance",
    "PreparingRebalance -> Empty",
    "CompletingRebalance -> Stable",
    "CompletingRebalance -> PreparingRebalance",
    "Stable -> PreparingRebalance",
    "Empty -> Dead",
}
ANSWERS = {
    "JoinGroup": "NONE MEMBER_ID_REQUIRED UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID "
    "INCONSISTENT_GROUP_PROTOCOL INVALID_SESSION_TIMEOUT GROUP_MAX_SIZE_REACHED",
    "SyncGroup": "NONE UNKNOWN_MEMBER_ID ILLEGAL_GENERATION REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID "
    "INCONSISTENT_GROUP_PROTOCOL",
    "Heartbeat": "NONE UNKNOWN_MEMBER_ID ILLEGAL_GENERATION REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID",
    "LeaveGroup": "NONE UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID",
}
EVENTS = {
    "timer session",
    "timer join",
    "timer sync",
    "restart in Empty",
    "restart in PreparingRebalance",
    "restart in CompletingRebalance",
    "restart in Stable",
    "records lost in a restart",
    "a static leader skips the assignment",
    "came to rest with members",
}
EVERYTHING = TRANSITIONS | EVENTS | {f"{api} {code}" for api, codes in ANSWERS.items() for code in codes.split()}


def simulate(seeds: range) -> Counter[str]:
    """Run them all; returns what happened."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            Simulation(seed, counts).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return counts


def test_a_few_groups_keep_every_promise() -> None:
    counts = simulate(range(20))

    assert set(counts) >= TRANSITIONS


@pytest.mark.slow
def test_every_group_keeps_every_promise_and_everything_happens(report_lines: Report) -> None:
    counts = simulate(range(SEEDS))

    report_lines.count(SECTION, dict(counts))
    taken = {name for name in counts if " -> " in name}
    assert taken <= TRANSITIONS, "a group went where no group should"
    if SEEDS >= SEEDS_FOR_EVERYTHING:
        assert EVERYTHING - set(counts) == set(), "what never happened"


def test_the_same_seed_lives_the_same_life() -> None:
    first = [Simulation(seed, Counter()).run() for seed in range(4)]
    second = [Simulation(seed, Counter()).run() for seed in range(4)]

    assert first == second
    assert len(set(first)) == len(first)
