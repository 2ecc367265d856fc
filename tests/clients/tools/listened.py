"""Members of groups that are other programs: started, asked to leave, killed, and listened to.

What they say becomes what all members of the churn tests say, by a function of the program's own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.clients.groups.churn_members import END_SECONDS_MAX, Event, Life, News
from tests.clients.groups.members import Spec

TERMINATED = 128 + signal.SIGTERM
Translate = Callable[[dict[str, Any], Life], Event | None]
"""What one line means, after all that the member has said before; None for one that says nothing new."""


class ListenedMember:
    """A running member."""

    def __init__(self, spec: Spec, command: Sequence[str], translate: Translate, news: News, directory: Path) -> None:
        self.spec = spec
        self.life = Life(spec)
        self._translate = translate
        self._news = news
        self._transcript = directory / f"{spec.name}.events"
        with open(directory / f"{spec.name}.log", "wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        self._reader = threading.Thread(target=self._read, name=spec.name, daemon=True)
        self._reader.start()

    def ask_to_leave(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As `kill -9`; all that it said before has been read when this returns."""
        self.life.was_killed = True
        self._process.kill()
        self.join()

    def join(self) -> int:
        """Wait for its end; the exit code, or 0 for one that ended by the signal that asked it to, and said so."""
        code = self._process.wait(END_SECONDS_MAX)
        self._reader.join(END_SECONDS_MAX)
        return 0 if code == TERMINATED and self.life.tally["left"] else code

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self._process.poll() is None:
            self._process.kill()
        self.join()

    @property
    def is_alive(self) -> bool:
        return self.life.ended_ns is None

    @property
    def is_started(self) -> bool:
        return self.life.tally["started"] > 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines, open(self._transcript, "wb") as transcript:
            for line in lines:
                transcript.write(line)
                # A kill may leave half a line, and what Java says of itself is not JSON.
                if line.startswith(b"{") and line.endswith(b"}\n"):
                    self._hear(json.loads(line))
        with self._news.lock:
            self.life.ended_ns = time.monotonic_ns()
            self.life.held = frozenset()
            self._news.lock.notify_all()

    def _hear(self, told: dict[str, Any]) -> None:
        with self._news.lock:
            event = self._translate(told, self.life)
            if event is not None:
                self.life.add(event)
                self._news.lock.notify_all()
