"""What goes on beside the user's own calls, for either face: a coroutine in a thread, or in a task.

The contract, and the version with threads; `loop_background` has the one for event loops. The coroutine waits for
nothing but its transport and its signals, so that it is the same code in both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

from ottla.client.transport import run_now


class Signal(Protocol):
    """Something that one side sets and the other waits for."""

    def set(self) -> None:
        """Wake whoever waits, now or next; for any thread of the face."""
        ...

    async def wait(self, timeout_ms: int | None) -> None:
        """Until it is set or the time is over; then it is no longer set."""
        ...


class Promise(Protocol):
    """The half of a future that is filled in."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class Background(Protocol):
    """One coroutine that runs beside the user's calls, and what it needs to talk to them."""

    async def open(self) -> None:
        """At the beginning of `with`."""
        ...

    async def close(self, error: BaseException | None) -> None:
        """At its end; what was started ends with it."""
        ...

    def signal(self) -> Signal: ...

    def promise(self) -> Promise:
        """A future of the kind that this face gives to its users."""
        ...

    def caller(self) -> object:
        """Who calls: the thread, or the task."""
        ...

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin; called once."""
        ...

    async def finished(self, timeout_ms: int) -> bool:
        """Wait for the end of what was started; says whether it is over."""
        ...

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        ...


class ThreadSignal:
    """For threads. Waiting blocks, as everything in the blocking face does."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_ms: int | None) -> None:
        self._event.wait(None if timeout_ms is None else timeout_ms / 1000)
        self._event.clear()


class ThreadBackground:
    """A thread of its own, which does not keep the program from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None

    async def open(self) -> None:
        """A thread needs no owner."""

    async def close(self, error: BaseException | None) -> None:
        """Nor does its end."""

    def signal(self) -> Signal:
        return ThreadSignal()

    def promise(self) -> Promise:
        future: Future[None] = Future()
        # It is under way at once and cannot be cancelled.
        future.set_running_or_notify_cancel()
        return future

    def caller(self) -> object:
        return threading.get_ident()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._thread = threading.Thread(target=lambda: run_now(work()), name=self._name, daemon=True)
        self._thread.start()

    async def finished(self, timeout_ms: int) -> bool:
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """A thread cannot be stopped from outside; it ends when its transport is closed."""
