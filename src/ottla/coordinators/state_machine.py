"""The contract between the runtime and what it runs: one state machine for each partition of an internal topic."""

from __future__ import annotations

from typing import Protocol

from ottla.coordinators.outcome import Outcome, TimerKey
from ottla.protocol.schema import Message


class StateMachine(Protocol):
    """State that one partition of an internal topic holds.

    Decisions are methods of the machine itself; the runtime calls them with an `Outcome` to fill. They run on the
    owner's thread, one after the other, and read no clock: the time is handed in.
    """

    def replay(self, key: Message, value: Message | None) -> None:
        """The one way in which recorded state changes: for a record just decided, and for each at a restart."""
        ...

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        """All that was recorded has been replayed: set the timers that the state asks for."""
        ...

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        """A timer is due. It may be out of date by a decision that came in the same moment: look first."""
        ...
