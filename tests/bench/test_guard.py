"""The guard must fail when a path is broken or slow: it is handed brokers that are, and ratios that say so."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from bench import guard
from bench.guard_client import BrokenPath
from bench.guard_paths import OVER_SOCKETS, PATHS, Effort, measure, serve

TINY = Effort(rounds=1, requests=16, is_once=True)
LENIENT = 0.01
"""A stored ratio that any broker that works reaches by far on any machine, and one that sleeps does not."""
ANSWERED_IN_TURN, IN_PROCESS = "produce-100", [path for path in PATHS if path not in OVER_SOCKETS]


def stand_in(fault: str, directory: Path) -> Sequence[str]:
    return [sys.executable, "-m", "tests.bench.stand_in_broker", fault, str(directory)]


def watch(path: str, directory: Path, fault: str, *, effort: Effort = TINY, attempts_max: int = 5) -> guard.Finding:
    (finding,) = guard.watch(
        [path], {path: LENIENT}, directory, effort=effort, serve=partial(stand_in, fault), attempts_max=attempts_max
    )
    return finding


# --- what a ratio is worth ----------------------------------------------------------------------------


def test_a_ratio_a_little_below_the_stored_one_is_fine() -> None:
    assert guard.judge("append", 0.61, 1.0).complaint == ""


def test_a_ratio_below_half_of_the_stored_one_is_not() -> None:
    assert "below 50% of what is stored" in guard.judge("append", 0.49, 1.0).complaint


def test_a_path_without_a_stored_ratio_is_not_fine() -> None:
    assert "no stored ratio" in guard.judge("append", 1.0, None).complaint


@pytest.mark.parametrize("ratio", [math.nan, math.inf, 0.0, -1.0])
def test_a_figure_that_is_no_ratio_is_not_fine(ratio: float) -> None:
    assert "which is none" in guard.judge("append", ratio, 1.0).complaint


@pytest.mark.parametrize("stored", [math.nan, math.inf, 0.0, -1.0])
def test_a_stored_figure_that_is_no_ratio_lets_nothing_pass(stored: float) -> None:
    assert "which is none" in guard.judge("append", 1.0, stored).complaint


def test_a_guard_that_watches_nothing_does_not_pass(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="watches nothing"):
        guard.watch([], {}, tmp_path, effort=TINY)


def test_what_is_stored_is_read_again() -> None:
    text = guard.render({"append": 0.75, "durable-16": 0.5}, taken=datetime(2026, 1, 1, tzinfo=UTC), where="here")

    assert guard.read(text) == {"append": 0.75, "durable-16": 0.5}


def test_every_path_has_a_stored_ratio_and_every_stored_ratio_a_path() -> None:
    assert set(guard.read(guard.STORED.read_text(encoding="utf-8"))) == set(PATHS)


def test_the_stored_file_says_where_and_when_it_was_taken() -> None:
    stored = json.loads(guard.STORED.read_text(encoding="utf-8"))

    assert stored["machine"]
    assert datetime.fromisoformat(stored["taken"]).year >= 2026


# --- brokers that work --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", OVER_SOCKETS)
def test_our_own_broker_passes(path: str, tmp_path: Path) -> None:
    assert measure(path, tmp_path / "place", serve=serve, effort=TINY) > 0


@pytest.mark.parametrize("path", IN_PROCESS)
def test_our_own_code_in_this_process_passes(path: str, tmp_path: Path) -> None:
    assert measure(path, tmp_path / "place", effort=TINY) > 0


@pytest.mark.slow
def test_a_relay_that_passes_everything_on_is_taken_for_a_broker(tmp_path: Path) -> None:
    assert watch(ANSWERED_IN_TURN, tmp_path, "none").complaint == ""


# --- brokers that do not ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_broker_that_sleeps_before_each_request_fails(tmp_path: Path) -> None:
    # On a busy machine the bare broker is slow too in this round or that.
    several = replace(TINY, rounds=5)

    finding = watch(ANSWERED_IN_TURN, tmp_path, "slow", effort=several, attempts_max=1)

    assert "below 50% of what is stored" in finding.complaint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("forgetful", "records were acknowledged and 1 are there"),
        ("mistaken", "offset 0 was given after 0"),
        ("closing", "the connection was closed"),
    ],
)
def test_a_broker_whose_answers_are_not_true_fails(fault: str, complaint: str, tmp_path: Path) -> None:
    finding = watch(ANSWERED_IN_TURN, tmp_path, fault)

    assert "is BROKEN" in finding.complaint
    assert complaint in finding.complaint


@pytest.mark.slow
def test_a_broken_broker_is_not_measured_again(tmp_path: Path) -> None:
    starts = itertools.count()

    def counted(directory: Path) -> Sequence[str]:
        next(starts)
        return stand_in("closing", directory)

    guard.watch([ANSWERED_IN_TURN], {ANSWERED_IN_TURN: LENIENT}, tmp_path, effort=TINY, serve=counted)

    assert next(starts) == 1


@pytest.mark.slow
def test_a_broker_that_refuses_requests_fails(tmp_path: Path) -> None:
    def refusing(directory: Path) -> Sequence[str]:
        return [*serve(directory), "--set", "message.max.bytes=80"]

    with pytest.raises(BrokenPath, match="an answer is not what it must be"):
        measure(ANSWERED_IN_TURN, tmp_path / "place", serve=refusing, effort=TINY)


@pytest.mark.slow
def test_a_broker_that_has_lost_what_it_acknowledged_when_it_comes_back_fails(tmp_path: Path) -> None:
    lives = itertools.count()

    def forgetting(directory: Path) -> Sequence[str]:
        return serve(directory / str(next(lives)))

    with pytest.raises(BrokenPath, match="records were acknowledged"):
        measure("durable-16", tmp_path / "place", serve=forgetting, effort=TINY)


def test_a_broker_that_does_not_start_fails(tmp_path: Path) -> None:
    with pytest.raises(BrokenPath, match="did not say"):
        measure(ANSWERED_IN_TURN, tmp_path / "place", serve=lambda _: [sys.executable, "-c", ""], effort=TINY)
