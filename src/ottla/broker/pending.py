"""A response that comes later: a long poll, a sync, a change that must be durable first."""

from __future__ import annotations

from collections.abc import Callable

from ottla.protocol.schema import Message

Receiver = Callable[[Message], None]


class Pending:
    """Completed once, on the owner's thread; whoever sends the response says where it goes."""

    __slots__ = ("_on_cancel", "_receiver", "_response")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self._receiver: Receiver | None = None
        self._response: Message | None = None
        self._on_cancel = on_cancel

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def complete(self, response: Message) -> None:
        """The response is there."""
        assert self._response is None, "a request is answered once"
        self._response = response
        if self._receiver is not None:
            self._receiver(response)

    def then(self, receiver: Receiver) -> None:
        """Hand the response to `receiver` when it is there."""
        assert self._receiver is None, "a response has one receiver"
        self._receiver = receiver
        if self._response is not None:
            receiver(self._response)

    def cancel(self) -> None:
        """Nobody waits any more: the connection is gone."""
        if self._response is None and self._on_cancel is not None:
            self._on_cancel()
