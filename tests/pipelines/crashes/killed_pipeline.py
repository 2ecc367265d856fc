"""A pipeline in all its lives: `ottla pipeline run`, killed at which moment, and what that has hit.

Says what happens, and when. What must hold afterwards is in the test.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from ottla.client.values import OffsetSpec
from ottla.pipelines.tables import NoTable, open_log
from tests.clients.transactions.kill_producer import pause
from tests.pipelines.crashes.checkpoints import Checkpoints
from tests.spark.brokers import Broker
from tests.spark.kills.driver_process import DriverProcess
from tests.spark.programs import environment

MOMENT_SECONDS_MAX = 600
"""From the start of a life until the moment for its end; most of it is for busy machines."""
LOOK_SECONDS = 0.02
WRITTEN_LOOK_SECONDS = 0.001
"""Between the commit of a sink and Spark's note of it there is little time."""
STARTING_SECONDS_MAX = 20.0
BATCHES_BEGUN_MAX = 6
"""A kill in a batch hits one of so many, counted over all queries from the start of the life."""
BATCH_SECONDS_MAX = 0.3
"""How long after the beginning of that batch a kill comes, at most."""

RESTARTS = "20"
"""In a row. Spark gives its Python workers ten seconds to answer, which a busy machine may not keep."""
CUT_OFF = "kills between a batch's beginning and its end"
IN_TABLES = "batches in a table and not noted"
SKIPPED = re.compile(r"batch (\d+) of query (\S+) is committed already: skipped")


class Moment(Enum):
    """What a kill aims at."""

    STARTING = "while the driver starts"
    BATCH = "after a batch has begun"
    WRITTEN = "after a sink has written"


class KilledPipeline:
    """The command, and all that is done to it."""

    def __init__(
        self, broker: Broker, file: Path, checkpoints: Checkpoints, *, topics: list[str], tables: list[Path], seed: int
    ) -> None:
        """`topics` and `tables` are what the pipeline writes to."""
        self.lives: list[DriverProcess] = []
        self.hits: Counter[str] = Counter()
        """What the kills have really hit."""
        self._broker = broker
        self._file = file
        self._checkpoints = checkpoints
        self._topics = topics
        self._tables = tables
        self._chance = random.Random(seed)
        self._planned_before = 0
        self._in_flight_before: set[tuple[str, int]] = set()
        self._in_tables_before: set[tuple[str, int]] = set()

    @property
    def driver(self) -> DriverProcess:
        return self.lives[-1]

    def start(self, *options: str) -> None:
        """Start it, for the first time or again."""
        self._planned_before = self._checkpoints.planned_count()
        self._in_flight_before = set(self._checkpoints.in_flight().items())
        self._in_tables_before = set(filter(self._is_in_a_table, self._in_flight_before))
        words = ["-m", "ottla", "pipeline", "run", str(self._file), "--master", "local[2]", "--restarts", RESTARTS]
        self.lives.append(
            DriverProcess(
                [sys.executable, *words, "--bootstrap", self._broker.bootstrap, *options],
                log=self._file.parent / f"life-{len(self.lives)}.log",
                environment=environment(),
                cwd=self._file.parent,
            )
        )

    def kill(self, moment: Moment) -> None:
        """Kill it, with its JVM and its workers, at such a moment, and note what that has hit."""
        self._come(moment)
        self.driver.kill()
        self.hits[f"kills {moment.value}"] += 1
        in_flight = set(self._checkpoints.in_flight().items())
        # What the life before had left behind, this one may not even have come to.
        begun = in_flight - self._in_flight_before
        self.hits[CUT_OFF] += bool(begun)
        self.hits["batches cut off"] += len(begun)
        self.hits[IN_TABLES] += len(set(filter(self._is_in_a_table, in_flight)) - self._in_tables_before)
        self.hits["transactions left open"] += len(self._broker.client.admin().list_transactions(states=["Ongoing"]))

    def skips(self) -> int:
        """How many batches that were repeated had been committed to topics before, as the driver and its tasks said."""
        return len({(life, *found) for life in self.lives for found in SKIPPED.findall(life.said)})

    def finish(self) -> None:
        """Let it come to its end, for a run that has one."""
        self._wait(lambda: not self.driver.is_alive, "the end of the run")
        assert self.driver.exit_code == 0, self.driver.said[-4_000:]

    def end(self) -> None:
        """Whatever state they are in, all its processes are gone afterwards."""
        for life in self.lives:
            life.kill()

    def _come(self, moment: Moment) -> None:
        """Wait for such a moment."""
        match moment:
            case Moment.STARTING:
                pause(self._chance.uniform(0, STARTING_SECONDS_MAX))
            case Moment.BATCH:
                wanted = self._planned_before + self._chance.randint(1, BATCHES_BEGUN_MAX)
                self._wait(lambda: self._checkpoints.planned_count() >= wanted, "a batch")
                self.driver.find_java()
                pause(self._chance.uniform(0, BATCH_SECONDS_MAX))
            case Moment.WRITTEN:
                size = self._chance.choice(
                    [self._topic_size(each) for each in self._topics]
                    + [self._table_size(each) for each in self._tables]
                )
                before = size()
                # What the life before had left unfinished is not always written anew; what follows is.
                self._wait(lambda: self._checkpoints.planned_count() > self._planned_before, "a batch")
                self.driver.find_java()
                self._wait(lambda: size() > before, "something written", look_seconds=WRITTEN_LOOK_SECONDS)

    def _topic_size(self, topic: str) -> Callable[[], int]:
        """What there is to be read in a topic; grows when a batch is committed to it."""
        admin = self._broker.client.admin()
        places: dict[tuple[str, int], OffsetSpec | int] = {
            (topic, partition): OffsetSpec.LATEST for partition in range(admin.partition_count(topic) or 0)
        }
        return lambda: sum(
            found.offset
            for found in admin.list_offsets(places, isolation="read_committed").values()
            if found is not None
        )

    def _table_size(self, path: Path) -> Callable[[], int]:
        """The last version of a table that has changed its rows."""

        def size() -> int:
            try:
                return open_log(str(path)).state.written_version
            except NoTable:
                return 0

        return size

    def _is_in_a_table(self, in_flight: tuple[str, int]) -> bool:
        """Whether a table has that batch of a query, known by the query's id and perhaps the name of the output."""
        query, batch = in_flight
        query_id = self._checkpoints.query_id(query)
        states = [open_log(str(path)).state for path in self._tables if self._table_size(path)()]
        return any(
            state.holds(application, batch)
            for state in states
            for application in state.batches
            if application.startswith(query_id)
        )

    def _wait(self, is_so: Callable[[], bool], what: str, *, look_seconds: float = LOOK_SECONDS) -> None:
        deadline = time.monotonic() + MOMENT_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, f"waited for {what}\n{self.driver.said[-4_000:]}"
            # It restarts its queries by itself: nothing but a kill may end it, unless it has come to its end.
            assert self.driver.is_alive or self.driver.exit_code == 0, self.driver.said[-4_000:]
            pause(look_seconds)
