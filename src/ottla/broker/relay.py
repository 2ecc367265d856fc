"""A response that comes from somebody who can be asked only later.

A request may have to wait for one thing before it can be handed to whoever answers it: for a topic to be made, for an
id, for another coordinator's word. What it waits for is the handler's business.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.answers import TimedOut
from ottla.broker.deadlines import TIMEOUT_MS_DEFAULT, Deadlines
from ottla.broker.pending import Pending
from ottla.errors import CoordinatorNotAvailable, Refusal
from ottla.protocol.schema import Message


class Relay:
    """The place that a request keeps while it is passed on."""

    __slots__ = ("_bucket", "_deadlines", "_is_over", "_passed_to", "_pending", "_refused", "_response")

    def __init__(self, refused: Callable[[Refusal], Message], deadlines: Deadlines | None = None) -> None:
        """`refused` makes the response that says so; with `deadlines` the wait ends when a request's time is over."""
        self._refused = refused
        self._deadlines = deadlines
        self._bucket = 0
        self._response: Message | None = None
        self._pending: Pending | None = None
        self._passed_to: Pending | None = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any more: then there is no need to ask anybody."""
        return self._is_over

    def follow(self, outcome: Message | Pending | Refusal) -> None:
        """Somebody has been asked: this is the response, or becomes it."""
        if isinstance(outcome, Pending):
            self._passed_to = outcome
            outcome.then(self._settle)
        elif isinstance(outcome, Refusal):
            self._settle(self._refused(outcome))
        else:
            self._settle(outcome)

    def response(self) -> Message | Pending:
        """The response, or the promise of one. Call it when the first thing has been asked for."""
        if self._response is not None:
            return self._response
        self._pending = Pending(self._cancel, on_hurry=self._hurry)
        if self._deadlines is not None:
            self._bucket = self._deadlines.add(self, TIMEOUT_MS_DEFAULT)
        return self._pending

    def time_out(self) -> None:
        """Answer without whoever has not."""
        passed_to = self._passed_to
        self._settle(self._refused(TimedOut(f"not done after {TIMEOUT_MS_DEFAULT} ms; it may still be done")))
        if passed_to is not None:
            passed_to.cancel()

    def _settle(self, response: Message) -> None:
        if self._is_over:
            return
        self._end()
        if self._pending is None:
            self._response = response
        else:
            self._pending.complete(response)

    def _end(self) -> None:
        self._is_over = True
        if self._deadlines is not None:
            self._deadlines.remove(self, self._bucket)

    def _cancel(self) -> None:
        self._end()
        if self._passed_to is not None:
            self._passed_to.cancel()

    def _hurry(self) -> None:
        if self._passed_to is not None:
            self._passed_to.hurry()
        else:
            self._settle(self._refused(CoordinatorNotAvailable("the broker stops")))
