"""A server whose loop is watched: how long it was held up at most, asked for by whoever started it.

    python -m bench.watched_server DIRECTORY [NAME=VALUE ...]

Prints `ready HOST:PORT` as the real one does. Then, for each line that comes, one line goes out: the longest pause
between two passes of the loop since the last line, in milliseconds by the wall clock and in milliseconds that the
loop's own thread computed meanwhile. The first also holds what the machine gave to other processes.
"""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter, thread_time

from ottla.cli.serve import say_ready
from ottla.config import Settings
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.server.lifecycle import raise_descriptor_limit, serve

TICK_S = 0.001


class Watch:
    """A timer that is due all the time, and notes how late it was."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wall_s = perf_counter()
        self._computed_s = thread_time()
        self._wall_s_max = self._computed_s_max = 0.0
        self._tick()

    def told(self) -> str:
        """The longest since the last time, which are forgotten now."""
        text = f"{self._wall_s_max * 1000:.1f} {self._computed_s_max * 1000:.1f}"
        self._wall_s_max = self._computed_s_max = 0.0
        return text

    def _tick(self) -> None:
        wall_s, computed_s = perf_counter(), thread_time()
        self._wall_s_max = max(self._wall_s_max, wall_s - self._wall_s - TICK_S)
        self._computed_s_max = max(self._computed_s_max, computed_s - self._computed_s)
        self._wall_s, self._computed_s = wall_s, computed_s
        self._loop.call_later(TICK_S, self._tick)


async def watched(settings: Settings) -> None:
    """Serve, and answer each line of standard input."""
    loop = asyncio.get_running_loop()
    watch = Watch(loop)

    def answer() -> None:
        if sys.stdin.readline():
            print(watch.told(), flush=True)
        else:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, answer)
    await serve(settings, say_ready)


def main(directory: str, *flags: str) -> None:
    """Run until it is ended."""
    import uvloop

    given = {"listeners": "127.0.0.1:0", "log.dir": directory, **dict(flag.split("=", 1) for flag in flags)}
    raise_descriptor_limit()
    uvloop.run(watched(Settings.resolve(BROKER_CONFIGS, flags=given)))


if __name__ == "__main__":
    main(*sys.argv[1:])
