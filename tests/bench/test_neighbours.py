"""Turns that others on the host disturbed, with processors whose time is told by the test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, repeat
from pathlib import Path

import pytest

from bench.neighbours import LOOKS_MAX, TURNS_MAX, Neighbours, Reading, Speed, reading, spin_s

TURN = 1000


def told(*shares: float, then: float = 0.0) -> Iterator[Reading]:
    """Readings between which others took these shares of the time."""
    stolen = total = 0
    yield Reading(0, 0)
    for share in chain(shares, repeat(then)):
        stolen, total = stolen + int(TURN * share), total + TURN
        yield Reading(stolen, total)


def neighbours(*shares: float, then: float = 0.0) -> Neighbours:
    return Neighbours(told(*shares, then=then).__next__, lambda seconds: None)


def test_a_turn_that_was_not_disturbed_counts() -> None:
    assert neighbours(0.05).undisturbed(count(1).__next__) == 1


def test_a_turn_that_was_disturbed_is_taken_again_after_a_quiet_moment(capsys: pytest.CaptureFixture[str]) -> None:
    # A turn, a pause between two, a look that is not quiet, another pause, one that is, and the second turn.
    assert neighbours(0.4, 0.4, 0.4, 0.4, 0.0).undisturbed(count(1).__next__) == 2
    assert "others had 40.0% of the processors' time" in capsys.readouterr().err


@pytest.mark.parametrize(("stolen_max", "is_disturbed"), [(0.01, True), (0.02, False)])
def test_what_others_may_take_goes_by_what_is_measured(stolen_max: float, is_disturbed: bool) -> None:
    assert neighbours(0.02).watched(count(1).__next__, stolen_max=stolen_max) == (1, is_disturbed)


def test_the_last_of_a_few_turns_counts_however_much_it_was_disturbed() -> None:
    assert neighbours(then=0.4).undisturbed(count(1).__next__) == TURNS_MAX


def test_a_quiet_moment_is_not_waited_for_without_end() -> None:
    pauses: list[float] = []

    assert not Neighbours(told(then=0.4).__next__, pauses.append).await_quiet()

    assert len(pauses) == LOOKS_MAX


def test_of_a_short_time_nothing_is_said() -> None:
    assert Reading(5, 10).share(Reading(0, 0)) == 0.0


def test_the_system_tells_what_was_stolen(tmp_path: Path) -> None:
    told_by_system = tmp_path / "stat"
    told_by_system.write_text("cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\n")

    assert reading(told_by_system) == Reading(80, 360)
    assert reading(tmp_path / "absent") == Reading(0, 0)


def quiet(*spins: float) -> Neighbours:
    """Nobody takes any time, and a small computation takes so long each time."""
    return Neighbours(told().__next__, lambda seconds: None, speed=Speed(iter(spins).__next__))


def test_a_turn_at_about_the_greatest_speed_counts() -> None:
    watching = quiet(2.1, 2.0, 2.2, 2.1)
    assert [watching.undisturbed(count(1).__next__) for _ in range(2)] == [1, 1]


def test_a_turn_after_which_the_processor_is_slower_is_taken_again(capsys: pytest.CaptureFixture[str]) -> None:
    takes = count(1)
    # It is slower after the second turn, and still when it is looked at first.
    watching = quiet(2.0, 2.0, 2.0, 4.0, 4.0, 2.0, 2.0, 2.0)
    assert [watching.undisturbed(takes.__next__) for _ in range(2)] == [1, 3]
    assert capsys.readouterr().err.count("slower than it can be") == 1


def test_a_turn_does_not_begin_while_the_processor_is_slower_however_long_that_lasts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watching = quiet(2.0, 2.0, *[4.0] * 10, 2.0, 2.0, 2.0, 2.0)
    assert [watching.undisturbed(count(1).__next__) for _ in range(3)] == [1, 1, 1]
    assert capsys.readouterr().err == ""


def test_a_small_computation_takes_some_time() -> None:
    assert 0 < spin_s() < 60
