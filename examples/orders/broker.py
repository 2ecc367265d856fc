"""A broker in a process of its own, that can be killed and started again where it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STOP_SECONDS_MAX = 60


class BrokerFailed(Exception):
    """The broker did not start; the message names its log."""


class Broker:
    """`ottla serve`, with its data and its log in a directory."""

    def __init__(self, directory: Path, *, listen: str = "127.0.0.1:0") -> None:
        self.address = listen
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when clients may connect. Started again, it listens where it did before."""
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._directory / "broker.log"
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "ottla",
                    "serve",
                    "--data-dir",
                    str(self._directory / "broker"),
                    "--listen",
                    self.address,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                # Ctrl-C is for us: the broker is stopped last, when nobody needs it any more.
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._process.stdout.close()
        if not line.startswith("ready "):
            self._process.wait()
            raise BrokerFailed(f"the broker did not start; its log is {log}")
        self.address = line.removeprefix("ready ").strip()

    def kill(self) -> None:
        """As a crash would: without any chance to write down what it knows."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """As an operator would. Nothing happens if it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
