"""What goes on beside the user's own calls, in a task of the caller's event loop.

The task belongs to whoever opened this with `async with`, and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.client.background import Promise, Signal
from ottla.errors import InvalidRequest


class LoopSignal:
    """For tasks of one event loop."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_ms: int | None) -> None:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()


class LoopBackground:
    """A task in a group of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._tasks = await asyncio.TaskGroup().__aenter__()

    async def close(self, error: BaseException | None) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        self.abandon()
        if isinstance(error, asyncio.CancelledError):
            await tasks.__aexit__(type(error), error, error.__traceback__)
        else:
            # The body's own error goes on as it is, not in a group.
            await tasks.__aexit__(None, None, None)

    def signal(self) -> Signal:
        return LoopSignal()

    def promise(self) -> Promise:
        return asyncio.get_running_loop().create_future()

    def caller(self) -> object:
        return asyncio.current_task()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._tasks is None:
            raise InvalidRequest("a consumer that joins a group is used with `async with`: its heartbeats need a task")
        self._task = self._tasks.create_task(work(), name=self._name)

    async def finished(self, timeout_ms: int) -> bool:
        if self._task is None:
            return True
        await asyncio.wait([self._task], timeout=timeout_ms / 1000)
        return self._task.done()

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
