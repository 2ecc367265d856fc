"""What is checked of groups under churn can fail: each check finds what it is there to find."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.groups import churn_checks
from tests.clients.groups.churn_members import Event, Life
from tests.clients.groups.members import Place, Spec

PLACE = ("orders", 0)


def _life(name: str, *events: Event, instance: str | None = None) -> Life:
    life = Life(Spec(name=name, client="none", address="nowhere", group="g", instance=instance))
    for event in events:
        life.add(event)
    return life


def _holds(at_ns: int, kind: str, places: Sequence[Place], generation: int = 1) -> Event:
    return Event(at_ns, kind, frozenset(places), {"generation": generation})


def test_two_owners_in_one_generation_are_found() -> None:
    lives = [_life("a", _holds(1, "assigned", [PLACE])), _life("b", _holds(5, "assigned", [PLACE]))]

    assert churn_checks.double_owners_in_a_generation(lives) == ["orders-0 in generation 1: a, b"]


def test_two_owners_in_two_generations_are_fine() -> None:
    lives = [_life("a", _holds(1, "assigned", [PLACE])), _life("b", _holds(5, "assigned", [PLACE], 2))]

    assert churn_checks.double_owners_in_a_generation(lives) == []


def test_a_static_member_that_returns_is_the_same_owner() -> None:
    lives = [_life(name, _holds(1, "assigned", [PLACE]), instance="i") for name in ("a", "b")]

    assert churn_checks.double_owners_in_a_generation(lives) == []


def test_two_owners_at_the_same_time_are_found() -> None:
    lives = [
        _life("a", _holds(1_000_000, "assigned", [PLACE]), _holds(5_000_000, "revoked", [])),
        _life("b", _holds(3_000_000, "assigned", [PLACE]), _holds(9_000_000, "left", [])),
    ]

    assert churn_checks.overlapping_tenures(lives) == ["orders-0: a and b for 2.0 ms"]


def test_owners_one_after_the_other_are_fine() -> None:
    lives = [
        _life("a", _holds(1, "assigned", [PLACE]), _holds(5, "revoked", [])),
        _life("b", _holds(6, "assigned", [PLACE])),
    ]

    assert churn_checks.overlapping_tenures(lives) == []


def test_what_a_killed_member_held_is_its_own_until_it_says_its_last() -> None:
    killed = _life("a", _holds(1, "assigned", [PLACE]), Event(7_000_000, "processed", None, {}))

    assert churn_checks.overlapping_tenures([killed, _life("b", _holds(6_000_000, "assigned", [PLACE]))]) != []
    assert churn_checks.overlapping_tenures([killed, _life("b", _holds(8_000_000, "assigned", [PLACE]))]) == []


def test_a_member_that_was_shut_out_may_have_believed_for_too_long() -> None:
    lives = [
        _life("a", _holds(1, "assigned", [PLACE]), _holds(9, "lost", [])),
        _life("b", _holds(5, "assigned", [PLACE])),
    ]

    assert churn_checks.overlapping_tenures(lives) == []


def test_an_acknowledged_commit_that_is_gone_is_found() -> None:
    told = Event(1, "committed", None, {"offsets": [["orders", 0, 7], ["orders", 1, 3]]})
    acknowledged = churn_checks.acknowledged_commits([_life("a", told)])

    assert churn_checks.went_backwards(acknowledged, {("orders", 0): 6, ("orders", 1): 3}) == [
        "orders-0: 7 was acknowledged, 6 is there"
    ]
