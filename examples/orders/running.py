"""The pipeline in a thread of this process, run as `ottla pipeline run` would run it."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from pathlib import Path

from ottla.pipelines.queries import checkpoints_of
from ottla.pipelines.reading import load
from ottla.pipelines.runner import Outcome, Runner, opened

WINDOW = timedelta(minutes=1)
WINDOWED_QUERY = "revenue"
RESTARTS_MAX = 30
"""In a row, without a batch in between. Spark gives its Python processes ten seconds to start, and on a busy machine
they need several tries."""
BROKEN_OFF_SECONDS_MAX = 90


class PipelineFailed(Exception):
    """The pipeline has ended before it should have; the message says why."""


class PipelineRun:
    """A pipeline from its file, against a broker."""

    def __init__(self, file: Path, *, bootstrap: str) -> None:
        self._pipeline = load(file)
        self.checkpoints = Path(checkpoints_of(self._pipeline))
        self.ended = threading.Event()
        self._bootstrap = bootstrap
        self._runner: Runner | None = None
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    @property
    def is_up(self) -> bool:
        """Whether Spark has started."""
        return self._runner is not None

    @property
    def queries(self) -> frozenset[str]:
        """The queries of the pipeline; none as long as they are not known."""
        return frozenset(() if self._runner is None else self._runner.progress())

    def start(self) -> None:
        """Begin; Spark takes its time to start."""
        self._thread.start()

    def check(self) -> None:
        """Raise if the pipeline does not run any more."""
        if self.ended.is_set():
            raise PipelineFailed(self._why())

    def stop(self) -> None:
        """Let it end where its batches end, and wait for that."""
        self._ask(at_once=False)
        self._thread.join()
        if self._outcome is None or self._outcome.state == "failed":
            raise PipelineFailed(self._why())

    def kill(self) -> None:
        """End it where it stands. Nothing happens if it has ended."""
        if self._thread.is_alive():
            self._ask(at_once=True)
            self._thread.join(BROKEN_OFF_SECONDS_MAX)

    def closed_before(self) -> str:
        """Windows that begin before this moment are closed; empty while it is not known."""
        progress = {} if self._runner is None else self._runner.progress()
        told = progress[WINDOWED_QUERY].watermark if WINDOWED_QUERY in progress else None
        if told is None:
            return ""
        # A window is closed when its end has been passed.
        return (datetime.fromisoformat(told) - WINDOW + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%S")

    def trouble(self) -> str:
        """What keeps a query from working just now, if anything does."""
        progress = {} if self._runner is None else self._runner.progress()
        waiting = [each for each in progress.values() if each.state == "restarting"]
        return "; ".join(f"{each.query} is started again after: {each.error}" for each in waiting)

    def restarts(self) -> int:
        """How often queries were started again."""
        return 0 if self._outcome is None else sum(each.restarts for each in self._outcome.totals.values())

    def _run(self) -> None:
        try:
            with opened(self._pipeline, bootstrap=self._bootstrap, restarts_max=RESTARTS_MAX) as runner:
                self._runner = runner
                self._ready.set()
                self._outcome = runner.run()
        except Exception as error:  # Whatever Spark raises ends the run; `check` and `stop` tell of it.
            self._error = error
        finally:
            self.ended.set()
            self._ready.set()

    def _ask(self, *, at_once: bool) -> None:
        self._ready.wait()
        if self._runner is not None:
            self._runner.stop(at_once=at_once)

    def _why(self) -> str:
        if self._error is not None:
            return f"the pipeline broke off: {self._error}"
        return f"the pipeline ended: {'nobody knows why' if self._outcome is None else self._outcome.error}"
