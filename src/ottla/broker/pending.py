"""A response that comes later: a long poll, a sync, a change that must be durable first."""

from __future__ import annotations

from collections.abc import Callable

from ottla.protocol.schema import Message

Receiver = Callable[[Message], None]


class Pending:
    """Completed once, on the owner's thread; whoever sends the response says where it goes."""

    __slots__ = ("_on_cancel", "_on_hurry", "_receiver", "_response")

    def __init__(
        self, on_cancel: Callable[[], None] | None = None, *, on_hurry: Callable[[], None] | None = None
    ) -> None:
        self._receiver: Receiver | None = None
        self._response: Message | None = None
        self._on_cancel = on_cancel
        self._on_hurry = on_hurry

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def complete(self, response: Message) -> None:
        """The response is there."""
        assert self._response is None, "a request is answered once"
        self._response = response
        receiver = self._receiver
        self._let_go()
        if receiver is not None:
            receiver(response)

    def then(self, receiver: Receiver) -> None:
        """Hand the response to `receiver` when it is there."""
        assert self._receiver is None, "a response has one receiver"
        if self._response is not None:
            receiver(self._response)
        else:
            self._receiver = receiver

    def cancel(self) -> None:
        """Nobody waits any more: the connection is gone."""
        on_cancel = self._on_cancel
        self._let_go()
        if self._response is None and on_cancel is not None:
            on_cancel()

    def hurry(self) -> None:
        """Answer now with what there is, if that is an answer: the server is about to stop."""
        if self._on_hurry is not None:
            self._on_hurry()

    def _let_go(self) -> None:
        """Whoever waits and whoever answers know this object too: a cycle, which would keep every request's bytes."""
        self._receiver = self._on_cancel = self._on_hurry = None
