"""A broker on a socket, in a thread of this process: ready in milliseconds, gone without a trace."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from ottla.config import Settings
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.server.lifecycle import Server

START_TIMEOUT_S = 30.0


class ServerThread:
    """Start it, give its address to any Kafka client, stop it."""

    def __init__(self, directory: str, config: Mapping[str, object] | None = None) -> None:
        given = {"listeners": "127.0.0.1:0", "log.dir": directory, **(config or {})}
        self._settings = Settings.resolve(BROKER_CONFIGS, flags={name: str(value) for name, value in given.items()})
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)
        self.host = ""
        self.port = 0

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Returns when clients may connect; raises what kept the broker from starting."""
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the broker was not ready within {START_TIMEOUT_S} s")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """A clean stop; a second call does nothing."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            server = await Server.start(self._settings)
        except BaseException as error:
            self._failure = error
            self._started.set()
            return
        self.host, self.port = server.addresses[0]
        self._started.set()
        await self._stop.wait()
        await server.stop()
