"""A real server process on loopback, for tests: started, killed and started again over one data directory.

Knows how to run the server and how to end what it started. What is asked of it is the tests' business.
"""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
PORTS = range(20_000, 32_000)
"""Below the ports that the system hands out by itself, so that nobody takes ours between two lives of a server."""

ROOT = Path(__file__).resolve().parents[2]

Make = Callable[..., "ServerProcess"]


class ServerFailed(AssertionError):
    """The server did not come up, or did not go down; carries what it said."""


class ServerProcess:
    """One data directory and one port, served by one process at a time."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, *, prefix: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.port = free_port()
        self.settings = dict(settings or {})
        self.prefix = prefix
        """Another program that runs the server, such as one that limits what it may use."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server has not been started"
        return self._process

    @property
    def said(self) -> str:
        """All that it has logged, in all its lives."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    @property
    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise ServerFailed(f"the server is gone\n{self.said}")

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def command(self) -> list[str]:
        options = [f"--set={name}={value}" for name, value in self.settings.items()]
        serve = [sys.executable, "-m", "ottla", "serve", f"--data-dir={self.data}", f"--listen={self.address}"]
        return [*self.prefix, *serve, *options]

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
        environment["PYTHONPATH"] = str(ROOT / "src")
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment
            )

    def start(self) -> ServerProcess:
        """Start, and wait until clients may connect."""
        self.launch()
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_SECONDS_MAX)
        line = self.process.stdout.readline().decode() if readable else ""
        if not line.startswith("ready "):
            self.end()
            raise ServerFailed(f"the server did not get ready: {line!r}\n{self.said}")
        return self

    def refused_start(self) -> tuple[int, str]:
        """Start a server that must not get ready: its exit code and what it said this time."""
        before = len(self.said)
        self.launch()
        try:
            output, _ = self.process.communicate(timeout=READY_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.end()
            raise ServerFailed(f"the server is still running\n{self.said}") from None
        assert b"ready" not in output
        return self.process.returncode, self.said[before:]

    def kill(self) -> None:
        """As `kill -9`: nothing is flushed, nothing is said."""
        self.process.kill()
        self._reap()

    def terminate(self) -> int:
        """As a service manager stops it; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def restart(self) -> ServerProcess:
        """Stop in order and start again."""
        self.terminate()
        return self.start()

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._reap()

    def _reap(self) -> int:
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise ServerFailed(f"the server did not stop within {STOP_SECONDS_MAX} s\n{self.said}") from None
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def free_port() -> int:
    """A port on loopback that nobody uses."""
    chance = random.Random(os.getpid() * 1_000_003 + time.monotonic_ns())
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


@contextmanager
def running(
    directory: Path, settings: Mapping[str, str] | None = None, *, prefix: Sequence[str] = ()
) -> Iterator[ServerProcess]:
    """A server that is there while the block runs."""
    server = ServerProcess(directory, settings, prefix=prefix)
    try:
        yield server.start()
    finally:
        server.end()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Make]:
    """Makes servers with settings of their own, not started yet; all are gone after the test."""
    made: list[ServerProcess] = []

    def make(
        name: str = "server", *, settings: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> ServerProcess:
        made.append(ServerProcess(tmp_path / name, settings, prefix=prefix))
        return made[-1]

    yield make
    for server in made:
        server.end()


@pytest.fixture(scope="module")
def ottla_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with default settings that the tests of a file share."""
    with running(tmp_path_factory.mktemp("ottla")) as server:
        yield server
