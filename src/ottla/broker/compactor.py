"""Compaction in a process of its own: a computing thread would stop the broker's loop.

The child is this module run as a program. It gets the directory and the plan on its standard input and
answers with the result, or the error, on its standard output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from functools import partial

from ottla.broker.housekeeping import Compacted
from ottla.errors import OttlaError, StorageError
from ottla.scheduler import Scheduler
from ottla.storage.compaction import CompactionResult, compact
from ottla.storage.compaction_plan import CompactionPlan
from ottla.storage.disk import OsDisk

NICENESS = 10
TIMEOUT_S = 6 * 3600
"""A compaction that has not ended by then never will."""


class ChildCompactor:
    """Runs each plan in a child that yields to everybody else."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __call__(self, directory: str, planned: CompactionPlan, done: Compacted) -> None:
        thread = threading.Thread(target=self._run, args=(directory, planned, done), name="ottla-compact", daemon=True)
        thread.start()

    def _run(self, directory: str, planned: CompactionPlan, done: Compacted) -> None:
        outcome: CompactionResult | OttlaError
        try:
            child = subprocess.run(
                [sys.executable, "-m", __name__],
                input=pickle.dumps((directory, planned)),
                stdout=subprocess.PIPE,
                timeout=TIMEOUT_S,
                check=True,
            )
            outcome = pickle.loads(child.stdout)
        except (OSError, subprocess.SubprocessError, pickle.UnpicklingError, EOFError) as error:
            outcome = StorageError(f"{directory}: the process that compacts it failed: {error}")
        self._scheduler.post(partial(done, outcome))


def main() -> None:
    """The child's life."""
    os.nice(NICENESS)
    directory, planned = pickle.load(sys.stdin.buffer)
    outcome: CompactionResult | OttlaError
    try:
        outcome = compact(OsDisk(), directory, planned)
    except OttlaError as error:
        # Errors with fields of their own do not all survive pickling; what they say does.
        outcome = StorageError(str(error))
    sys.stdout.buffer.write(pickle.dumps(outcome))


if __name__ == "__main__":
    main()
