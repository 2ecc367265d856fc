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
from contextlib import suppress
from functools import partial
from struct import Struct

from ottla.broker.housekeeping import Compacted
from ottla.errors import OttlaError, StorageError
from ottla.scheduler import Scheduler
from ottla.storage.compaction import CompactionResult, compact
from ottla.storage.compaction_plan import CompactionPlan
from ottla.storage.disk import OsDisk

NICENESS = 10
ORPHANED = 3
"""How a child ends whose parent is gone."""
_LENGTH = Struct(">q")


class ChildCompactor:
    """Runs each plan in a child that yields to everybody else, and does not outlive this process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._children: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def __call__(self, directory: str, planned: CompactionPlan, done: Compacted) -> None:
        thread = threading.Thread(target=self._run, args=(directory, planned, done), name="ottla-compact", daemon=True)
        thread.start()

    def close(self) -> None:
        """End the children that are at work; what they have written is dropped by the next opening."""
        self._is_closed = True
        for child in tuple(self._children):
            child.kill()

    def _run(self, directory: str, planned: CompactionPlan, done: Compacted) -> None:
        outcome: CompactionResult | OttlaError
        try:
            outcome = self._ask_child(pickle.dumps((directory, planned)))
        except (OSError, pickle.UnpicklingError, EOFError) as error:
            outcome = StorageError(f"{directory}: the process that compacts it failed: {error!r}")
        if not self._is_closed:
            self._scheduler.post(partial(done, outcome))

    def _ask_child(self, question: bytes) -> CompactionResult | OttlaError:
        child = start_child()
        self._children.add(child)
        try:
            if self._is_closed:
                child.kill()
            assert child.stdin is not None
            assert child.stdout is not None
            # The pipe stays open: when it closes, because this process is gone, the child ends too.
            child.stdin.write(_LENGTH.pack(len(question)) + question)
            child.stdin.flush()
            answer: CompactionResult | OttlaError = pickle.loads(child.stdout.read())
            return answer
        finally:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._children.discard(child)


def start_child() -> subprocess.Popen[bytes]:
    """A process that waits for a plan; it finds this package where this process has found it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def main() -> None:
    """The child's life."""
    os.nice(NICENESS)
    (size,) = _LENGTH.unpack(sys.stdin.buffer.read(_LENGTH.size))
    directory, planned = pickle.loads(sys.stdin.buffer.read(size))
    threading.Thread(target=_die_with_parent, daemon=True).start()
    outcome: CompactionResult | OttlaError
    try:
        outcome = compact(OsDisk(), directory, planned)
    except OttlaError as error:
        # Errors with fields of their own do not all survive pickling; what they say does.
        outcome = StorageError(str(error))
    sys.stdout.buffer.write(pickle.dumps(outcome))
    sys.stdout.buffer.flush()
    # Not by the interpreter's own way: that would wait for the thread that waits for the parent.
    os._exit(0)


def _die_with_parent() -> None:
    """Two compactions of one partition would write to the same files, so an orphan must not go on."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(ORPHANED)


if __name__ == "__main__":
    main()
