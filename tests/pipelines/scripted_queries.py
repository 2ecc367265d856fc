"""Queries that do what a test says, in Spark's place, and a world in which time passes only when it is waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.clock import ManualClock
from ottla.pipelines.progress import Offsets, QueryProgress, RunProgress
from ottla.pipelines.run_loop import Accounts, Outcome, Runner
from ottla.pipelines.supervision import Startable

WAITING = "Waiting for data to arrive"
WORKING = "Processing new data"
INITIALIZING = "Initializing sources"
RUNS_MAX_MS = 600_000


def account(
    name: str, batch_id: int, *, rows: int = 10, end: int = 0, latest: int | None = None, is_batch: bool = True
) -> dict[str, Any]:
    """What Spark tells of one batch of a query that reads partition 0 of `orders`."""
    source = {"endOffset": f'{{"orders": {{"0": {end}}}}}', "latestOffset": f'{{"orders": {{"0": {latest or end}}}}}'}
    return {
        "name": name,
        "timestamp": f"2026-01-01T00:00:{batch_id:02}.000Z",
        "batchId": batch_id,
        "numInputRows": rows if is_batch else 0,
        "inputRowsPerSecond": 100.0 if is_batch else 0.0,
        "durationMs": {"triggerExecution": 50, **({"addBatch": 40} if is_batch else {})},
        "sources": [source],
        "sink": {"numOutputRows": rows if is_batch else -1},
    }


class ScriptedQuery:
    """A query in Spark's place."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.error: BaseException | None = None
        self.accounts: list[Mapping[str, Any]] = []
        self.was_stopped = False
        self.has_ended = False

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return not (self.was_stopped or self.has_ended or self.error is not None)

    @property
    def status(self) -> Mapping[str, Any]:
        return {"message": self.message}

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:  # noqa: N802 - Spark's name
        return self.accounts[-1] if self.accounts else None

    @property
    def recentProgress(self) -> Sequence[Mapping[str, Any]]:  # noqa: N802 - Spark's name
        return self.accounts

    def exception(self) -> BaseException | None:
        return self.error

    def stop(self) -> None:
        self.was_stopped = True


class Recorded:
    """A link that keeps what is told."""

    def __init__(self) -> None:
        self.is_asked_to_stop = False
        self.told: list[QueryProgress | RunProgress] = []

    def tell(self, told: QueryProgress | RunProgress) -> None:
        self.told.append(told)

    def states_of(self, query: str) -> list[str]:
        return [one.state for one in self.told if isinstance(one, QueryProgress) and one.query == query]

    def states_of_run(self) -> list[str]:
        return [one.state for one in self.told if isinstance(one, RunProgress)]


class World:
    """A run of scripted queries. At each wait, what the test has planned for that time happens."""

    def __init__(self, directory: Path, *names: str, first_message: str = WAITING, **settings: Any) -> None:
        self.first_message = first_message
        self.clock = ManualClock()
        self.began_ms = self.clock.now_ms()
        self.link = Recorded()
        self.accounts = Accounts()
        self.hold_file = directory / "hold"
        self.started: dict[str, list[ScriptedQuery]] = {name: [] for name in names}
        self.refuses: dict[str, Exception] = {}
        self.progress: list[QueryProgress] = []
        self.topic_ends: Offsets = {}
        self._plans: list[tuple[int, Callable[[], None]]] = []
        mine = RunProgress(pipeline="p", run="r", state="starting", at="")
        self.runner = Runner(
            mine,
            [Startable(name, self._starter(name)) for name in names],
            clock=self.clock,
            hold_file=self.hold_file,
            link=self.link,
            accounts=self.accounts,
            wait=self._wait,
            on_progress=self.progress.append,
            **{"ends_now": lambda topics: {topic: self.topic_ends[topic] for topic in topics}, **settings},
        )

    def _starter(self, name: str) -> Callable[[], ScriptedQuery]:
        def start() -> ScriptedQuery:
            if name in self.refuses:
                raise self.refuses[name]
            self.started[name].append(ScriptedQuery(self.first_message))
            return self.started[name][-1]

        return start

    def query(self, name: str) -> ScriptedQuery:
        """As it was started last."""
        return self.started[name][-1]

    def at(self, after_ms: int, happens: Callable[[], None]) -> None:
        """Let something happen so long after the beginning."""
        self._plans.append((self.began_ms + after_ms, happens))
        self._plans.sort(key=lambda plan: plan[0])

    def fail(self, name: str, error: str = "ValueError: no") -> None:
        self.query(name).error = RuntimeError(error)

    def batch(self, name: str, batch_id: int, **more: Any) -> None:
        """A batch is done, and Spark tells of it."""
        told = account(name, batch_id, **more)
        self.query(name).accounts.append(told)
        self.accounts.put(told)

    @property
    def passed_ms(self) -> int:
        return self.clock.now_ms() - self.began_ms

    def _wait(self, delay_ms: int) -> None:
        assert self.passed_ms < RUNS_MAX_MS, "the run does not end"
        self.clock.advance(delay_ms)
        while self._plans and self._plans[0][0] <= self.clock.now_ms():
            self._plans.pop(0)[1]()

    def run(self) -> Outcome:
        return self.runner.run()
