"""The deadlines of one consumer group's members. Soft: gone after a restart, and set anew by what happens next.

A timer that fires may be out of date by a decision of the same moment, so the deadline itself is kept beside it.
"""

from __future__ import annotations

from enum import StrEnum

from ottla.coordinators.outcome import Outcome, TimerKey


class Wait(StrEnum):
    """What a member is waited for with."""

    SESSION = "session"
    """Any sign of life."""
    REVOCATION = "revocation"
    """To give back what it was told to."""
    JOIN = "join"
    """To join again, as a classic member that was told of a rebalance."""
    SYNC = "sync"
    """To ask for its assignment, as a classic member that has joined."""


class Deadlines:
    """When each wait ends."""

    __slots__ = ("_at_ms", "_group_id")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._at_ms: dict[TimerKey, int] = {}

    def set(self, wait: Wait, member_id: str, outcome: Outcome, *, at_ms: int) -> None:
        """Wait until then, instead of any earlier time."""
        key = self._key(wait, member_id)
        self._at_ms[key] = at_ms
        outcome.set_timer(key, at_ms=at_ms)

    def set_if_none(self, wait: Wait, member_id: str, outcome: Outcome, *, at_ms: int) -> None:
        """Wait until then, unless that is waited for already."""
        if self._key(wait, member_id) not in self._at_ms:
            self.set(wait, member_id, outcome, at_ms=at_ms)

    def cancel(self, wait: Wait, member_id: str, outcome: Outcome) -> None:
        """It has come; fine if it was not waited for."""
        key = self._key(wait, member_id)
        if self._at_ms.pop(key, None) is not None:
            outcome.cancel_timer(key)

    def cancel_all(self, member_id: str, outcome: Outcome) -> None:
        """The member is gone."""
        for wait in Wait:
            self.cancel(wait, member_id, outcome)

    def take_due(self, key: TimerKey, outcome: Outcome, now_ms: int) -> bool:
        """Whether this wait has really come to its end; then it is over. Otherwise the timer goes on."""
        at_ms = self._at_ms.get(key)
        if at_ms is None:
            return False
        if at_ms > now_ms:
            outcome.set_timer(key, at_ms=at_ms)
            return False
        del self._at_ms[key]
        return True

    def _key(self, wait: Wait, member_id: str) -> TimerKey:
        return ("consumer", wait.value, self._group_id, member_id)
