"""Patterns of subscriptions."""

from __future__ import annotations

import sys

import pytest

from ottla.coordinators.groups.regex_subscriptions import PATTERN_BYTES_MAX, STEPS_MAX, Pattern, is_plain
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
    names = frozenset(f"topic-{n:05}" for n in range(5_000))
    pattern = Pattern("topic-.*")
    matched: list[int] = []
    while not pattern.is_finished or not matched:
        pattern.look(names, STEPS_MAX)
        matched.append(len(pattern.matched))

    assert 1 < len(matched) < 10
    assert matched == sorted(set(matched))
    assert pattern.matched == names


@pytest.mark.parametrize(
    "text",
    ["[ab]*a[ab]{120}|[ab]*b[ab]{119}a[ab]*", ".*[a-m].{14}[n-z].*|.*[n-z].{15}[a-m].*|.*e.{13}.*r.{9}", ".*a.{60}"],
)
def test_a_slice_holds_few_names_where_a_large_pattern_meets_long_ones(text: str) -> None:
    names = frozenset(f"{n:0249b}".replace("0", "a").replace("1", "b") for n in range(1_000))
    pattern = Pattern(text)

    pattern.look(names, STEPS_MAX)
    pattern.look(names, STEPS_MAX)
    waiting_before = pattern.waiting_count
    pattern.look(names, STEPS_MAX)

    assert 1 <= waiting_before - pattern.waiting_count <= 16


def test_a_name_costs_as_much_as_it_is_long() -> None:
    pattern = Pattern("[ab]*a[ab]{50}")
    short, long = frozenset({"a" * 20}), frozenset({"a" * 20, "b" * 200})

    pattern.look(frozenset({"c"}), STEPS_MAX)
    first = STEPS_MAX - pattern.look(short, STEPS_MAX)
    second = STEPS_MAX - pattern.look(long, STEPS_MAX)

    assert second > 5 * first


def test_every_look_compares_something_however_large_pattern_and_name_are() -> None:
    pattern = Pattern("(" + "|".join(f"[ab]{{{n}}}a.*" for n in range(1, 70)) + ")z")
    names = frozenset({"a" * 5_000, "b" * 5_000})

    for _ in range(4):
        pattern.look(names, STEPS_MAX)

    assert pattern.is_finished


def test_a_name_that_goes_while_it_waits_to_be_looked_at_is_forgotten() -> None:
    pattern = Pattern(".*")
    pattern.look(frozenset({"a", "b", "c"}), 1)

    pattern.look(frozenset({"b"}), STEPS_MAX)

    assert pattern.matched == {"b"}
    assert pattern.is_finished


def test_names_that_came_when_there_were_no_steps_left_are_not_forgotten() -> None:
    pattern = Pattern("orders.*")
    pattern.look(NAMES, STEPS_MAX)
    names = NAMES | {"orders-us"}

    assert pattern.look(names, 0) == 0
    was_finished = pattern.is_finished
    pattern.look(names, STEPS_MAX)

    assert (was_finished, pattern.is_finished) == (False, True)
    assert "orders-us" in pattern.matched


def test_a_pattern_that_is_finished_costs_nothing() -> None:
    pattern = Pattern("orders.*")
    pattern.look(NAMES, STEPS_MAX)

    assert pattern.look(NAMES, 7) == 7


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


def test_a_pattern_that_comes_down_to_too_many_instructions_is_refused() -> None:
    with pytest.raises(InvalidRegularExpression, match="instructions"):
        Pattern("(" + "|".join(f"[ab]{{{n}}}a.*" for n in range(1, 100)) + ")z")


@pytest.mark.parametrize("text", [".*", "orders.*", r"^team\.(orders|payments)-.+\.v1$", "a.b", "()", ""])
def test_patterns_that_have_few_states_are_known_as_such(text: str) -> None:
    assert is_plain(text)


@pytest.mark.parametrize("text", [".*a.", "[ab]*", "a{3}", ".*(a|b)", "(.|a)", "a" * 200, "é", "(a)(b)", r"\w", "a?"])
def test_patterns_that_may_have_many_states_are_not_plain(text: str) -> None:
    assert not is_plain(text)


def test_without_re2_the_refusal_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)

    with pytest.raises(InvalidRegularExpression, match="google-re2 is not installed"):
        Pattern("a")
