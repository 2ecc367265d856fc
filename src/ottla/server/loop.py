"""The event loop as the owner's thread of a broker."""

from __future__ import annotations

import asyncio

from ottla.scheduler import Timer, Work


class LoopScheduler:
    """Work goes to the loop that runs the server."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_soon(self, work: Work) -> None:
        self._loop.call_soon(work)

    def post(self, work: Work) -> None:
        self._loop.call_soon_threadsafe(work)

    def call_later(self, delay_ms: int, work: Work) -> Timer:
        return self._loop.call_later(delay_ms / 1000, work)
