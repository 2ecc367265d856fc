"""A Spark driver as a process with all that it starts: the JVM, and Python workers in process groups of their own.

Knows how to start it and how to kill it, whole or only its head. What it computes is not known here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.clients.transactions.kill_producer import pause

GONE_SECONDS_MAX = 60
LOOK_SECONDS = 0.05
_STATE, _PARENT, _SESSION = 0, 1, 3
"""Fields of /proc/<pid>/stat, counted after the name of the program."""


class DriverProcess:
    """One life of a driver. It leads a session, so that all it starts can be found, whoever their parents are."""

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], cwd: Path) -> None:
        self.log = log
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=cwd,
                start_new_session=True,
            )
        self._java: int | None = None

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def find_java(self) -> bool:
        """Look for the JVM, so that a kill need not; whether it is there."""
        if self._java is None:
            for pid in self._members():
                if _name(pid) == "java":
                    self._java = pid
        return self._java is not None

    def kill_head(self) -> int:
        """Kill the driver itself and its JVM, as `kill -9`; how many workers outlive them, if only for a moment."""
        self.find_java()
        for pid in (self._java, self._process.pid):
            if pid is not None:
                _kill(pid)
        self._process.wait(GONE_SECONDS_MAX)
        return len(list(self._members()))

    def kill(self) -> None:
        """Kill all of it, as when its machine loses power; the JVM first, since it is the one that goes on."""
        self.kill_head()
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while members := list(self._members()):
            assert time.monotonic() < deadline, f"these do not end: {members}"
            for pid in members:
                _kill(pid)
            pause(LOOK_SECONDS)

    def freeze(self) -> None:
        """Stop all of it where it is; for everybody else it is as good as dead."""
        self._tell_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        self._tell_all(signal.SIGCONT)

    def _tell_all(self, what: signal.Signals) -> None:
        self.find_java()
        # The JVM first: it is the one that goes on.
        for pid in sorted(self._members(), key=lambda pid: pid != self._java):
            _tell(pid, what)

    def _members(self) -> Iterator[int]:
        """Who of its session is still there."""
        for directory in Path("/proc").iterdir():
            if directory.name.isdigit():
                fields = _fields(int(directory.name))
                if fields and int(fields[_SESSION]) == self._process.pid and fields[_STATE] not in {"Z", "X"}:
                    yield int(directory.name)


def _fields(pid: int) -> list[str]:
    """What /proc says of a process after its name, which may hold blanks and brackets; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _kill(pid: int) -> None:
    _tell(pid, signal.SIGKILL)


def _tell(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        # It was quicker.
        return
