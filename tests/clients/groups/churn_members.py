"""Members of groups as seen from outside: started, asked to leave, killed, frozen, and listened to.

A thread for each member reads what it says. All of it is kept, and whoever waits for something is woken at each line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.groups.members import Place, Spec
from tests.clients.server_process import ROOT

END_SECONDS_MAX = 60
LOOK_SECONDS = 0.2
"""How often a condition that no member tells of is looked at."""
LAST_WORDS_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Event:
    """One line of one member."""

    at_ns: int
    kind: str
    held: frozenset[Place] | None
    facts: dict[str, Any]


@dataclass(slots=True)
class Life:
    """What one process was, did and said."""

    spec: Spec
    events: list[Event] = field(default_factory=list)
    held: frozenset[Place] = frozenset()
    """What it owns in its own view, while it lives."""
    ended_ns: int | None = None
    """When it was seen to be at its end, for the reader: not before it stopped to use what it held."""
    was_killed: bool = False
    tally: Counter[str] = field(default_factory=Counter)
    """How often it said each kind of thing."""

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.tally[event.kind] += 1
        if event.held is not None:
            self.held = event.held


class NotInTime(AssertionError):
    """What had to happen has not happened; carries what is known."""


class News:
    """Wakes whoever waits for something that a member does."""

    def __init__(self) -> None:
        self.lock = threading.Condition()

    def wait_until(self, is_so: Callable[[], bool], *, seconds: float, what: Callable[[], str]) -> None:
        """Look at each piece of news, and now and then; raises NotInTime with `what` there is to say."""
        deadline = time.monotonic() + seconds
        while True:
            with self.lock:
                if is_so():
                    return
                self.lock.wait(LOOK_SECONDS)
            if time.monotonic() > deadline:
                raise NotInTime(what())

    def wait_for_answer(self, ask: Callable[[], bool], *, seconds: float, what: Callable[[], str]) -> None:
        """The same for a question to the broker, which must not hold up the readers."""
        deadline = time.monotonic() + seconds
        while not ask():
            if time.monotonic() > deadline:
                raise NotInTime(what())
            with self.lock:
                self.lock.wait(LOOK_SECONDS)


Understand = Callable[[bytes, Life], Event | None]
"""What one line means, after all that the member has said before; None for one that says nothing new."""


class RunningMember:
    """A member in a process of its own, and what it has said so far."""

    def __init__(
        self,
        spec: Spec,
        command: Sequence[str],
        understand: Understand,
        news: News,
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.spec = spec
        self.life = Life(spec)
        self._understand = understand
        self._news = news
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / f"{spec.name}.log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=cwd
            )
        self._transcript = directory / f"{spec.name}.events"
        self._reader = threading.Thread(target=self._read, name=spec.name, daemon=True)
        self._reader.start()

    # --- what is done to it ----------------------------------------------------------------------------

    def ask_to_leave(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As `kill -9`; all that it said before has been read when this returns."""
        self.life.was_killed = True
        self._process.kill()
        self.join()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def join(self) -> int:
        """Wait for its end; the exit code."""
        code = self._process.wait(END_SECONDS_MAX)
        self._reader.join(END_SECONDS_MAX)
        return code

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self._process.poll() is None:
            self._process.kill()
        self.join()

    # --- what is known of it ---------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        return self.life.ended_ns is None

    @property
    def is_started(self) -> bool:
        return self.life.tally["started"] > 0

    def last_words(self) -> str:
        """How it ended, for whoever did not expect it to, or not so."""
        last = self._log.read_text(errors="replace")[-LAST_WORDS_MAX:]
        return f"{self.spec.name} ended with exit code {self.join()}; the end of its log:\n{last}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines, open(self._transcript, "wb") as transcript:
            for line in lines:
                transcript.write(line)
                with self._news.lock:
                    event = self._understand(line, self.life)
                    if event is not None:
                        self.life.add(event)
                        self._news.lock.notify_all()
        with self._news.lock:
            self.life.ended_ns = time.monotonic_ns()
            self.life.held = frozenset()
            self._news.lock.notify_all()


class MemberProcess(RunningMember):
    """One that runs `members`, for a Python client."""

    def __init__(self, spec: Spec, news: News, directory: Path) -> None:
        super().__init__(
            spec,
            [sys.executable, "-m", "tests.clients.groups.members", spec.to_json()],
            lambda line, life: parse(line),
            news,
            directory,
            environment={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            cwd=ROOT,
        )


def parse(line: bytes) -> Event:
    """One line of a member as an event."""
    facts = json.loads(line)
    held = facts.get("held")
    places = None if held is None else frozenset((topic, partition) for topic, partition in held)
    return Event(facts["at"], facts["event"], places, facts)


class Company:
    """All members that a test has ever started."""

    def __init__(self, directory: Path, news: News) -> None:
        self.news = news
        self.members: list[MemberProcess] = []
        self._directory = directory

    def start(self, spec: Spec) -> MemberProcess:
        member = MemberProcess(spec, self.news, self._directory)
        self.members.append(member)
        return member

    @property
    def living(self) -> list[MemberProcess]:
        return [member for member in self.members if member.is_alive]

    @property
    def lives(self) -> list[Life]:
        return [member.life for member in self.members]

    def revive_the_fallen(self) -> None:
        """Do what a service manager does: start members anew that have ended without being asked to.

        A static member of the consumer protocol that returns before its old session is over is refused for good by
        some clients, and has to be tried again.
        """
        for member in list(self.members):
            life = member.life
            if member.is_alive or life.was_killed or life.tally["left"] or life.tally["revived"]:
                continue
            assert life.tally["fatal"], member.last_words()
            life.add(Event(time.monotonic_ns(), "revived", None, {}))
            self.start(member.spec.again(f"{member.spec.name}+"))

    def end(self) -> None:
        for member in self.members:
            member.end()


@contextmanager
def company(directory: Path) -> Iterator[Company]:
    """Members that are all gone when the block ends."""
    gathered = Company(directory, News())
    try:
        yield gathered
    finally:
        gathered.end()
