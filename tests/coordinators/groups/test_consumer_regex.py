"""Patterns of subscriptions."""

from __future__ import annotations

import sys

import pytest

from ottla.coordinators.groups.regex_subscriptions import PATTERN_BYTES_MAX, STEPS_MAX, Pattern
from ottla.errors import InvalidRegularExpression

NAMES = frozenset({"orders", "orders-eu", "reorders", "lögs"})


def test_a_pattern_matches_whole_names() -> None:
    pattern = Pattern("orders.*")

    pattern.look(NAMES, STEPS_MAX)

    assert pattern.matched == {"orders", "orders-eu"}
    assert pattern.is_finished


def test_names_are_read_as_text_and_not_as_bytes() -> None:
    pattern = Pattern("l.gs")

    pattern.look(NAMES, STEPS_MAX)

    assert pattern.matched == {"lögs"}


def test_topics_that_are_gone_are_matched_no_longer() -> None:
    pattern = Pattern("orders.*")
    pattern.look(NAMES, STEPS_MAX)

    pattern.look(frozenset({"orders-eu", "orders-us"}), STEPS_MAX)

    assert pattern.matched == {"orders-eu", "orders-us"}


def test_many_names_are_looked_at_in_slices() -> None:
    names = frozenset(f"topic-{n}" for n in range(10))
    pattern = Pattern("topic-.")

    left = pattern.look(names, 4 * 500 + 1)

    assert left == 1
    assert len(pattern.matched) == 4
    assert not pattern.is_finished
    pattern.look(names, STEPS_MAX)
    assert pattern.matched == names
    assert pattern.is_finished


def test_a_name_that_goes_while_it_waits_to_be_looked_at_is_forgotten() -> None:
    pattern = Pattern(".*")
    pattern.look(frozenset({"a", "b", "c"}), 500)

    pattern.look(frozenset({"b"}), STEPS_MAX)

    assert pattern.matched == {"b"}
    assert pattern.is_finished


def test_steps_below_nothing_are_none() -> None:
    pattern = Pattern(".*")

    pattern.look(NAMES, -5)

    assert pattern.matched == set()


@pytest.mark.parametrize("text", ["(", "[z-a]", "a{2000}", r"(a)\1", "(?=a)", "x" * (PATTERN_BYTES_MAX + 1)])
def test_a_pattern_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Pattern(text)


def test_a_pattern_that_would_take_too_much_memory_is_refused() -> None:
    with pytest.raises(InvalidRegularExpression, match="too large"):
        Pattern(r"\pL{900}\pN{900}")


def test_without_re2_the_refusal_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)

    with pytest.raises(InvalidRegularExpression, match="google-re2 is not installed"):
        Pattern("a")
