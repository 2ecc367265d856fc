"""Seeded lives of a transaction coordinator that crashes: see `ledger` for what is promised, `simulation` for the rest.

TRANSACTION_SEEDS says how many (default 400). To have one again: `Simulation(seed, Counter()).run()`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.coordinators.transactions.broker_model import CRASH_POINTS
from tests.coordinators.transactions.simulation import Simulation
from tests.report import Report

CHUNKS = 4
SEEDS = int(os.environ.get("TRANSACTION_SEEDS", "400"))
SEEDS_FOR_EVERYTHING = 400
"""With fewer, what is rare may not happen by chance alone."""
SECTION = "transactions: how often each thing happened in the simulation"

AT_REST = ("Empty", "CompleteCommit", "CompleteAbort")
TRANSITIONS = {
    f"{before} -> {after}"
    for before, afters in {
        "Nothing": ("Empty",),
        "Ongoing": ("Ongoing", "PrepareCommit", "PrepareAbort"),
        "PrepareCommit": ("CompleteCommit",),
        "PrepareAbort": ("CompleteAbort",),
        **dict.fromkeys(AT_REST, ("Empty", "Ongoing", "PrepareAbort", "Nothing")),
    }.items()
    for after in afters
}
ANSWERS = {
    "InitProducerId": "NONE PRODUCER_FENCED CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS "
    "COORDINATOR_NOT_AVAILABLE",
    "AddPartitionsToTxn": "NONE PRODUCER_FENCED CONCURRENT_TRANSACTIONS INVALID_PRODUCER_ID_MAPPING",
    "EndTxn": "NONE PRODUCER_FENCED CONCURRENT_TRANSACTIONS INVALID_PRODUCER_ID_MAPPING INVALID_TXN_STATE",
    "EndTxn of version 1": "NONE PRODUCER_FENCED",
    "Produce": "NONE PRODUCER_FENCED CONCURRENT_TRANSACTIONS INVALID_PRODUCER_ID_MAPPING INVALID_TXN_STATE "
    "TRANSACTION_ABORTABLE NOT_LEADER_OR_FOLLOWER",
    "CommitTogether": "NONE PRODUCER_FENCED",
    "KeepTransactions": "NONE PRODUCER_FENCED INVALID_TXN_STATE",
    "abort": "NONE INVALID_TXN_STATE CONCURRENT_TRANSACTIONS",
}
EVENTS = {
    "a batch finds its transaction open",
    "a decision is lost with the disk's tail",
    "a key is committed already",
    "a load comes to its end",
    "a marker waits for an offline partition",
    "a producer goes on under another id",
    "after a timeout a producer goes on by an abort",
    "after a timeout a producer goes on by naming itself",
    "an order is given again while it is carried out",
    "an order is not due any more",
    "group commits",
    "the log is compacted",
    "the shard begins anew",
    "timer: expire",
    "timer: park",
    "timer: timeout",
    "transaction aborted, told ABORT",
    "transaction aborted, told nobody",
    "transaction committed, told COMMIT",
    "transaction committed, told nobody",
}
EVERYTHING = (
    TRANSITIONS
    | EVENTS
    | {f"crash: {point}" for point in CRASH_POINTS}
    | {f"{asked} {code}" for asked, codes in ANSWERS.items() for code in codes.split()}
)


def simulate(seeds: range) -> Counter[str]:
    """Run them all; returns what happened."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            Simulation(seed, counts).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return counts


def test_a_few_coordinators_keep_every_promise() -> None:
    counts = simulate(range(20))

    assert sum(count for name, count in counts.items() if name.startswith("crash: ")) > 20
    assert counts["transaction committed, told COMMIT"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_coordinator_keeps_every_promise_and_everything_happens(
    chunk: int, report_lines: Report, shared_directory: Path
) -> None:
    counts = simulate(range(chunk, SEEDS, CHUNKS))
    report_lines.count(SECTION, counts)
    unfinished = shared_directory / f"transactions-{chunk}.unfinished"
    unfinished.write_text(json.dumps(counts), encoding="utf-8")
    unfinished.rename(shared_directory / f"transactions-{chunk}.json")
    # Whichever chunk is the last to end, in whichever process, sees the counts of all.
    finished = list(shared_directory.glob("transactions-*.json"))
    if len(finished) == CHUNKS:
        total: Counter[str] = Counter()
        for path in finished:
            total.update(json.loads(path.read_text(encoding="utf-8")))
        taken = {name for name in total if " -> " in name}
        assert taken <= TRANSITIONS, "an id went where none should"
        if SEEDS >= SEEDS_FOR_EVERYTHING:
            assert EVERYTHING - set(total) == set(), "what never happened"
        crashes = sum(count for name, count in total.items() if name.startswith("crash: "))
        report_lines.say(SECTION, f"{SEEDS} seeds; {crashes:,} crash points hit, {len(CRASH_POINTS)} kinds")


def test_the_same_seed_lives_the_same_life() -> None:
    first = [Simulation(seed, Counter()).run() for seed in range(4)]
    second = [Simulation(seed, Counter()).run() for seed in range(4)]

    assert first == second
    assert len(set(first)) == len(first)
