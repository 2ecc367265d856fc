"""Threads that do nothing but sync: group commit without a wait in the loop.

A sync of a disk takes from a tenth of a millisecond to many; while it runs, the interpreter is free.
Many threads, because each partition has at most one sync under way and a slow disk takes many at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Protocol

from ottla.errors import StorageError, StorageFault
from ottla.scheduler import Scheduler

THREADS_DEFAULT = 32

Done = Callable[[StorageFault | None], None]

_logger = logging.getLogger(__name__)


class Job(Protocol):
    """Something that blocks on the disk and holds all it needs."""

    def run(self) -> None: ...


class SyncRunner(Protocol):
    """Runs jobs somewhere, and says on the owner's thread how they ended."""

    def submit(self, job: Job, done: Done) -> None: ...

    def close(self) -> None: ...


def run_job(job: Job) -> StorageFault | None:
    """Run a job; returns how it failed."""
    try:
        job.run()
    except StorageFault as fault:
        return fault
    except StorageError as error:
        return StorageFault(type(job).__name__, str(error))
    except Exception as error:
        # A bug; whoever waits for the job must be told, and nobody knows what it has done.
        _logger.exception("%s ended in a way that it should not", type(job).__name__)
        return StorageFault(type(job).__name__, "run", error)
    return None


class SyncPool:
    """A fixed number of plain threads on one queue, started when the first job comes."""

    def __init__(self, scheduler: Scheduler, *, threads: int = THREADS_DEFAULT) -> None:
        self._scheduler = scheduler
        self._count = threads
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._under_way = 0
        self._ended: deque[tuple[Done, StorageFault | None]] = deque()
        self._is_told = False
        """Whether the owner's thread has been told of what has ended, and has not looked yet."""

    def submit(self, job: Job, done: Done) -> None:
        """For the owner's thread. A new thread is started while all others are busy and more are allowed."""
        self._under_way += 1
        if len(self._threads) < min(self._under_way, self._count):
            thread = threading.Thread(target=self._work, name=f"ottla-sync-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put((job, done))

    def close(self) -> None:
        """Let the threads finish what was submitted, and wait for them."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            job, done = item
            self._ended.append((done, run_job(job)))
            # Those that end together are told together: waking the owner's thread costs more than the rest.
            if not self._is_told:
                self._tell()

    def _tell(self) -> None:
        self._is_told = True
        self._scheduler.post(self._finish)

    def _finish(self) -> None:
        # First, so that whatever ends from here on is either seen below or told of again.
        self._is_told = False
        while self._ended:
            done, fault = self._ended.popleft()
            self._under_way -= 1
            try:
                done(fault)
            except BaseException:
                self._tell()
                raise


class InlineSyncs:
    """Runs each job at once on the owner's thread: for simulations, where one thread makes one order."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def submit(self, job: Job, done: Done) -> None:
        self._scheduler.call_soon(partial(done, run_job(job)))

    def close(self) -> None:
        """There is nothing to wait for."""
