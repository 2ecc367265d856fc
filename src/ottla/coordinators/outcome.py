"""What a decision of a coordinator comes to: records to append, replies and orders to release, timers to set.

A state machine decides and fills an `Outcome`; the runtime appends the records as one batch and releases the
replies and orders once they are durable. A record changes the state at once, through `replay` and nothing else, so that
what is decided next already sees it. That is safe because a batch that cannot be appended ends the shard: its
state is thrown away and rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.errors import Refusal
from ottla.protocol.schema import Message

Ticket = int
"""Stands for somebody who waits for a reply; given out by the runtime, honoured once."""
TimerKey = tuple[str, ...]
"""What a timer is for, as ("session", group id, member id). One key has one timer."""


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic; without a value it is a tombstone."""

    key: Message
    value: Message | None


class Outcome:
    """Filled by one decision. Check first, then write: a decision that raises a Refusal must have left it empty."""

    __slots__ = ("_replay", "orders", "records", "replies", "timers")

    def __init__(self, replay: Callable[[Message, Message | None], None]) -> None:
        self._replay = replay
        self.records: list[CoordinatorRecord] = []
        self.replies: list[tuple[Ticket, Message | Refusal]] = []
        self.orders: list[object] = []
        """What others are to do once the records are durable; which orders there are is the coordinator's business."""
        self.timers: dict[TimerKey, int | None] = {}
        """When each is due, in the clock's milliseconds; None to forget it."""

    def write(self, key: Message, value: Message | None) -> None:
        """Append a record, and let the state follow."""
        self.records.append(CoordinatorRecord(key, value))
        self._replay(key, value)

    def reply(self, ticket: Ticket, response: Message | Refusal) -> None:
        """Release the reply that somebody waits for; a refusal to one whose request was decided late."""
        self.replies.append((ticket, response))

    def order(self, order: object) -> None:
        """Have something done elsewhere. It may be lost with the process: whoever gives it gives it again at a load."""
        self.orders.append(order)

    def set_timer(self, key: TimerKey, *, at_ms: int) -> None:
        """Have `on_timer` called with this key at that time; instead of any earlier wish for the same key."""
        self.timers[key] = at_ms

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers[key] = None
