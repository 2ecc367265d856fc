"""Whole brokers that lose their power or their process at any moment and keep their word.

POWER_SEEDS says how many (default 150). To have one again: `Life(seed).run()`.
"""

from __future__ import annotations

import logging
import os
from collections import Counter

import pytest

from tests.report import Report
from tests.server.power_loss import Life

SEEDS = int(os.environ.get("POWER_SEEDS", "150"))
SECTION = "brokers that lost their power"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Hundreds of recoveries warn of what they cut; that is what they are here for."""
    caplog.set_level(logging.CRITICAL, logger="ottla")


def _live(seeds: range) -> Counter[str]:
    done: Counter[str] = Counter()
    for seed in seeds:
        life = Life(seed)
        try:
            life.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        done += life.done
    return done


def test_a_few_brokers_keep_every_promise_over_a_loss_of_power() -> None:
    done = _live(range(10))
    assert done["died"] > 5
    assert done["acks=-1"] > 300


@pytest.mark.slow
def test_every_broker_keeps_every_promise_over_a_loss_of_power(report_lines: Report) -> None:
    done = _live(range(10, SEEDS))
    report_lines.say(SECTION, f"{SEEDS} seeds: {', '.join(f'{name} {count}' for name, count in sorted(done.items()))}")
    assert {"died", "died at the start", "power lost", "timed out", "idempotent", "acks=1"} <= set(done)


def test_the_same_seed_lives_the_same_life() -> None:
    assert [Life(seed).run() for seed in range(3)] == [Life(seed).run() for seed in range(3)]
