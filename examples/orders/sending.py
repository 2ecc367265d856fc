"""The generator as seen by whoever started it: a process that reports what was acknowledged."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from examples.orders.events import Tally
from examples.orders.generator import Report

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS_MAX = 180
"""Longer than a record may take to be acknowledged: what was sent has to be counted."""
NOTHING_YET = Report(orders=0, bad=0, late=0, quarters_on_time=0, shop_time="", done=False)


class GeneratorFailed(Exception):
    """It ended without having counted everything; the message names its log."""


class GeneratorProcess:
    """Sends orders beside us."""

    def __init__(self, bootstrap: str, *, rate: int, speed: float, log: Path) -> None:
        self._log = log
        self.report = NOTHING_YET
        """The last one."""
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "examples.orders.generator", bootstrap, f"--rate={rate}", f"--speed={speed}"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                # Ctrl-C is for us, and we stop it in our own time.
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="generator reports", daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        """Whether it still sends."""
        return self._process.poll() is None

    def stop(self) -> Tally:
        """Tell it to stop, and return what was acknowledged in all."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise GeneratorFailed(f"the generator did not stop; its log is {self._log}") from None
        self._reader.join()
        if code != 0 or not self.report.done:
            raise GeneratorFailed(f"the generator ended with code {code}; its log is {self._log}")
        return self.report.tally()

    def kill(self) -> None:
        """End it at once, without a count. Nothing happens if it has ended."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.report = msgspec.json.decode(line, type=Report)
