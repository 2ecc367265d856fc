"""A response whose parts come one by one.

It is sent when the last part is there, or when the request's time is over; what comes after that is dropped.
What a part is, and how the response is made of them, is the handler's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from ottla.broker.deadlines import Deadlines
from ottla.broker.pending import Pending
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, Refusal, StorageError
from ottla.protocol.schema import Message

A = TypeVar("A", bound=Message)


class TimedOut(Refusal):
    """The work was not done within the time that the request allowed; it may still be done."""

    code = ErrorCode.REQUEST_TIMED_OUT


def code_of(error: OttlaError) -> ErrorCode:
    """What a client is told of an error."""
    if isinstance(error, Refusal):
        return error.code
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, StorageError) else ErrorCode.UNKNOWN_SERVER_ERROR


def _over(*parts: object) -> NoReturn:
    raise AssertionError("a response is made once")


class Answers(Generic[A]):
    """The parts of one response, by their place in the request."""

    __slots__ = ("_bucket", "_deadlines", "_late", "_open", "_parts", "_pending", "_respond", "_timeout_ms")

    def __init__(
        self,
        count: int,
        *,
        deadlines: Deadlines,
        timeout_ms: int,
        late: Callable[[int, Refusal], A],
        respond: Callable[[list[A]], Message],
    ) -> None:
        self._parts: list[A | None] = [None] * count
        self._open = count
        self._deadlines = deadlines
        self._timeout_ms = timeout_ms
        self._late = late
        """Makes the part of a place whose time is over."""
        self._respond = respond
        self._pending: Pending | None = None
        self._bucket = 0

    def settle(self, place: int, part: A) -> None:
        """The part of one place is there; the first one counts."""
        if self._parts[place] is not None:
            return
        self._parts[place] = part
        self._open -= 1
        if not self._open and self._pending is not None:
            self._deadlines.remove(self, self._bucket)
            self._pending.complete(self._made())

    def response(self, *, hurry: Callable[[], None] | None = None) -> Message | Pending:
        """The response, or the promise of one. Call it when everything has been asked for.

        `hurry` is called when the server is about to stop, to settle what may wait for long.
        """
        if not self._open:
            return self._made()
        self._pending = Pending(on_hurry=hurry)
        self._bucket = self._deadlines.add(self, self._timeout_ms)
        return self._pending

    def time_out(self) -> None:
        """Answer without what is still missing."""
        error = TimedOut(f"not done after {self._timeout_ms} ms; it may still be done")
        for place, part in enumerate(self._parts):
            if part is None:
                self._parts[place] = self._late(place, error)
        self._open = 0
        assert self._pending is not None
        self._pending.complete(self._made())

    def _made(self) -> Message:
        """The response, of what there is. Whoever asked for it knows this object too: a cycle, which ends here."""
        respond, self._respond, self._late = self._respond, _over, _over
        return respond([part for part in self._parts if part is not None])
