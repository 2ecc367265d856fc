"""A streaming copy in all its lives: who is killed at which moment, and what that has hit.

Says what happens, and when. What must hold is in the test.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path

from tests.clients.server_process import ROOT, ServerProcess
from tests.clients.transactions import kill_files
from tests.clients.transactions.kill_producer import pause
from tests.spark.kills.driver_process import DriverProcess
from tests.spark.kills.follower import Follower
from tests.spark.kills.streaming_copy import Errand
from tests.spark.kills.watch import Watch
from tests.spark.programs import environment

MOMENT_SECONDS_MAX = 600
"""From the start of a life, or from one blow, until the moment for the next; most of it is for busy machines."""
LOOK_SECONDS = 0.02
COMMIT_LOOK_SECONDS = 0.001
"""Between the commit and Spark's note of it there is little time."""
WRITING_SECONDS_MAX = 0.1
"""How long after the first record of a batch was seen a kill comes, at most."""
STARTING_SECONDS_MAX = 10.0
DOWN_SECONDS_MAX = 1.5
"""How long the broker stays away."""
TASK_COUNTS = (4, 2, 3)
"""A life may have fewer tasks than the one before it, so that some slots are left as they were, or more."""


class Moment(Enum):
    """How far a batch has got when a blow falls."""

    STARTING = "while the driver starts"
    WRITING = "between the first write and the commit"
    COMMITTED = "between the commit and Spark's own note of it"


class OutOfBatches(AssertionError):
    """The copy was complete before all blows had fallen."""


class KilledCopy:
    """The query, and all that is done to it."""

    def __init__(
        self, errand: Errand, server: ServerProcess, watch: Watch, follower: Follower, directory: Path, *, seed: int
    ) -> None:
        self.lives: list[DriverProcess] = []
        self.counts: Counter[str] = Counter()
        self.hits: Counter[Moment] = Counter()
        """Kills of the driver, by the moment that they have really hit."""
        self._errand = errand
        self._server = server
        self._watch = watch
        self._follower = follower
        self._directory = directory
        self._chance = random.Random(seed)

    @property
    def driver(self) -> DriverProcess:
        return self.lives[-1]

    def said(self, pattern: re.Pattern[str]) -> set[tuple[int, tuple[str, ...]]]:
        """What the driver and its workers have said that fits: in which life, and the groups of the pattern."""
        return {
            (number, found.groups()) for number, life in enumerate(self.lives) for found in pattern.finditer(life.said)
        }

    def start(self) -> None:
        """Start the driver, for the first time or again."""
        number = len(self.lives)
        errand = replace(
            self._errand, seed=self._chance.randrange(1 << 32), task_count=self._chance.choice(TASK_COUNTS)
        )
        self.lives.append(
            DriverProcess(
                [sys.executable, "-m", "tests.spark.kills.streaming_copy", errand.to_json()],
                log=self._directory / f"driver-{number}.log",
                environment=environment({"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}),
                cwd=ROOT,
            )
        )

    def kill_broker(self, moment: Moment) -> None:
        """Kill the broker at such a moment of the query, and start it again."""
        self._come(moment)
        self._server.kill()
        hit = kill_files.Hit.of(self._server.data)
        self.counts["kills of the broker"] += 1
        self.counts["transactions open at kills of the broker"] += len(hit.open_ids)
        self.counts["decisions without all markers at kills of the broker"] += hit.unmarked_count
        pause(self._chance.uniform(0, DOWN_SECONDS_MAX))
        self._server.start()

    def kill_driver(self, moment: Moment, *, whole: bool) -> None:
        """Kill the driver, with all its workers or without them, and note what that has hit."""
        self._come(moment)
        if whole:
            self.driver.kill()
        else:
            self.counts["workers that outlived their driver"] += self.driver.kill_head()
        self.counts["kills of the driver"] += 1
        if self._watch.committed() > self._watch.logged():
            self.hits[Moment.COMMITTED] += 1
        elif self._watch.open_ids():
            self.hits[Moment.WRITING] += 1

    def replace_frozen_driver(self, moment: Moment) -> None:
        """Freeze the driver, start another in its place, and let the first go on while the other is at work."""
        self._come(moment)
        frozen, committed = self.driver, self._watch.committed()
        frozen.freeze()
        self.counts["transactions open when the driver was frozen"] += len(self._watch.open_ids())
        self.start()
        self._wait(lambda: self._watch.committed() > committed, f"a commit after that of batch {committed}")
        frozen.thaw()

    def finish(self) -> None:
        """Let it come to its end."""
        self._wait(lambda: self.driver.exit_code == 0, "the end of the copy")

    def end(self) -> None:
        """Whatever state they are in, all its processes are gone afterwards."""
        for life in self.lives:
            life.kill()

    def _come(self, moment: Moment) -> None:
        """Wait for such a moment."""
        match moment:
            case Moment.STARTING:
                pause(self._chance.uniform(0, STARTING_SECONDS_MAX))
            case Moment.WRITING:
                self._wait(self._watch.has_unstable, "records of an open transaction")
                self.driver.find_java()
                pause(self._chance.uniform(0, WRITING_SECONDS_MAX))
            case Moment.COMMITTED:
                before = self._watch.committed()
                self._wait(self._watch.has_unstable, "records of an open transaction")
                self.driver.find_java()
                self._wait(
                    lambda: self._watch.committed() > before,
                    f"a commit after that of batch {before}",
                    look_seconds=COMMIT_LOOK_SECONDS,
                )

    def _wait(self, is_so: Callable[[], bool], what: str, *, look_seconds: float = LOOK_SECONDS) -> None:
        """Wait until something is so, and do meanwhile what a service manager does."""
        deadline = time.monotonic() + MOMENT_SECONDS_MAX
        while not is_so():
            assert not self._follower.seen.wrong, self._follower.seen.wrong
            assert time.monotonic() < deadline, f"waited for {what}\n{self.driver.said[-4_000:]}"
            if self.driver.exit_code == 0:
                raise OutOfBatches(f"waited for {what}, and the copy is complete: {dict(self.counts)}")
            if not self.driver.is_alive:
                self.counts["lives that the driver ended by an error"] += 1
                self.start()
            pause(look_seconds)
