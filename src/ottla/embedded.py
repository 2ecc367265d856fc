"""A broker inside this program: no socket, no loop, no thread between a call and its answer.

Whoever calls holds the lock, runs the broker, and runs what has become ready meanwhile. A sync is done by a
thread that waits for it, with the lock let go, so that others can append and share the next one. One thread in
the background keeps time and does what nobody waits for. A busy thread of the program slows all of it: Python
runs one at a time.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
from collections import deque
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

from ottla.broker.assembly import World, start
from ottla.broker.broker import Broker
from ottla.broker.caller import Address, Caller
from ottla.broker.compactor import ChildCompactor
from ottla.broker.pending import Pending
from ottla.client.blocking.client import Client, in_process
from ottla.client.client import AsyncClient, in_process_async
from ottla.client.errors import RequestTimedOut
from ottla.client.transport import MonotonicClock
from ottla.clock import SteadyClock, SystemClock
from ottla.config import Settings
from ottla.errors import LogClosed, RefusedUnanswered
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.partitions.sync_pool import Done, Job, run_job
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.headers import RequestHeader
from ottla.protocol.schema import Message
from ottla.scheduler import Work
from ottla.storage.disk import OsDisk

CALLER = Caller(Address("in-process", 0))
IDLE_MS = 60_000
"""How long the background thread sleeps at most when nothing is due."""

CLOSE_MS = 30_000
"""How long a close waits for syncs that are under way."""
PAUSE_MS = 5

_now_ms = MonotonicClock().now_ms
_logger = logging.getLogger(__name__)


class _Timer:
    __slots__ = ("cancelled", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SharedScheduler:
    """Work for whoever holds the lock; also the runner of its jobs.

    Everything but `post` is called with the lock held.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        """The broker's lock. Notified when something was posted, finished or queued."""
        self._ready: deque[Work] = deque()
        self._posted: deque[Work] = deque()
        self._jobs: deque[tuple[Job, Done]] = deque()
        self._timers: list[tuple[int, int, _Timer]] = []
        self._order = count()
        self._sleepers = 0
        self._running = 0

    def call_soon(self, work: Work) -> None:
        self._ready.append(work)

    def call_later(self, delay_ms: int, work: Work) -> _Timer:
        timer = _Timer(work)
        heapq.heappush(self._timers, (_now_ms() + delay_ms, next(self._order), timer))
        if self._timers[0][2] is timer:
            # Whoever sleeps does so until a later time.
            self.wake_others()
        return timer

    def post(self, work: Work) -> None:
        self._posted.append(work)
        with self.changed:
            self.changed.notify_all()

    def submit(self, job: Job, done: Done) -> None:
        self._jobs.append((job, done))

    def close(self) -> None:
        """Jobs are run by those who hold the lock; there are no threads to end."""

    @property
    def has_jobs(self) -> bool:
        return bool(self._jobs)

    @property
    def is_busy(self) -> bool:
        """Whether a job waits or is run by some thread."""
        return bool(self._jobs or self._running)

    def run_ready(self) -> None:
        """Run all that is due, and what that makes due."""
        while True:
            if self._timers:
                now_ms = _now_ms()
                while self._timers and self._timers[0][0] <= now_ms:
                    timer = heapq.heappop(self._timers)[2]
                    if not timer.cancelled:
                        self._ready.append(timer.work)
            while self._posted:
                self._ready.append(self._posted.popleft())
            if not self._ready:
                return
            try:
                self._ready.popleft()()
            except Exception:
                # A bug in one piece of work must not end the thread of a user who happened to run it.
                _logger.exception("work of the broker failed")

    def run_job(self) -> None:
        """Run one job with the lock let go, and what follows from it."""
        job, done = self._jobs.popleft()
        self._running += 1
        self.changed.release()
        try:
            fault = run_job(job)
        finally:
            self.changed.acquire()
            self._running -= 1
        self._ready.append(partial(done, fault))
        self.run_ready()
        if self._sleepers:
            self.changed.notify_all()

    def sleep(self, timeout_ms: int) -> None:
        """Wait until something changes or a timer is due."""
        if self._timers:
            timeout_ms = min(timeout_ms, max(self._timers[0][0] - _now_ms(), 0))
        self._sleepers += 1
        try:
            self.changed.wait(timeout_ms / 1000)
        finally:
            self._sleepers -= 1

    def wake_others(self) -> None:
        """There is something to do that the caller will not stay for."""
        if self._sleepers:
            self.changed.notify_all()


class EmbeddedBroker:
    """A broker for the threads of this program."""

    def __init__(self, path: str | os.PathLike[str], config: Mapping[str, object] | None = None) -> None:
        self._scheduler = scheduler = SharedScheduler()
        self._lock = scheduler.changed
        self._closed = False
        self._active = 0
        """Requests that threads are in."""
        self._compactor = ChildCompactor(scheduler)
        world = World(OsDisk(), SystemClock(), scheduler, scheduler, uuid4, self._compactor, SteadyClock())
        flags = {name: str(value) for name, value in (config or {}).items()}
        self._broker: Broker = start(os.fspath(path), Settings.resolve(BROKER_CONFIGS, flags=flags), world)
        self._keeper = threading.Thread(target=self._keep, name="ottla-embedded", daemon=True)
        self._keeper.start()

    def request(  # The contract of `ottla.client.transport.InProcessBroker`; names at every call would cost time.
        self, api_key: ApiKey, version: int, message: Message, timeout_ms: int
    ) -> Message | None:
        """Serve a request on this thread; None for Produce with acks=0.

        Raises RequestTimedOut when there is no answer in time, and LogClosed when the broker is closed.
        """
        scheduler = self._scheduler
        header = RequestHeader(api_key, version, 0, "in-process")
        with self._lock:
            if self._closed:
                raise LogClosed("the broker in this process is closed")
            try:
                outcome = self._broker.submit(header, message, CALLER)
            except RefusedUnanswered as error:
                # Whoever sends with acks=0 has asked not to be told.
                _logger.warning("%s", error)
                outcome = None
            scheduler.run_ready()
            if not isinstance(outcome, Pending):
                if scheduler.has_jobs:
                    scheduler.wake_others()
                return outcome
            self._active += 1
            try:
                return self._wait(outcome, timeout_ms)
            finally:
                self._active -= 1

    def _wait(self, pending: Pending, timeout_ms: int) -> Message:
        answer: list[Message] = []
        pending.then(answer.append)
        deadline_ms = _now_ms() + timeout_ms
        while not answer:
            if self._scheduler.has_jobs:
                self._scheduler.run_job()
                continue
            if self._closed and not self._scheduler.is_busy:
                pending.cancel()
                raise LogClosed("the broker in this process was closed")
            left_ms = deadline_ms - _now_ms()
            if left_ms <= 0:
                pending.cancel()
                raise RequestTimedOut(f"no answer within {timeout_ms} ms")
            self._scheduler.sleep(left_ms)
            self._scheduler.run_ready()
        return answer[0]

    def _keep(self) -> None:
        """The background thread: timers, and jobs that nobody waits for."""
        with self._lock:
            while not self._closed:
                self._scheduler.run_ready()
                if self._scheduler.has_jobs:
                    self._scheduler.run_job()
                else:
                    self._scheduler.sleep(IDLE_MS)

    def close(self) -> None:
        """Make everything durable and leave the mark of a clean stop; a second call does nothing.

        Threads that wait for an answer get LogClosed, unless their answer only waits for the disk.
        """
        scheduler = self._scheduler
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._broker.stop()
            self._compactor.close()
            for _, partition in self._broker.services.partitions:
                partition.settle()
            deadline_ms = _now_ms() + CLOSE_MS
            while not self._is_settled() and _now_ms() < deadline_ms:
                self._lock.notify_all()
                scheduler.run_ready()
                if scheduler.has_jobs:
                    scheduler.run_job()
                else:
                    scheduler.sleep(PAUSE_MS)
            self._lock.notify_all()
        self._keeper.join()
        # Without the lock: the store's thread may still have something to post. Nobody else comes any more.
        self._broker.close()

    def _is_settled(self) -> bool:
        if self._active or self._scheduler.is_busy:
            return False
        return all(partition.is_settled for _, partition in self._broker.services.partitions)


def open(path: str | os.PathLike[str], *, config: Mapping[str, object] | None = None, **client: Any) -> Client:  # noqa: A001
    """A broker in this program on a data directory of its own, and a client of it.

    `config` holds broker settings by Kafka's names, `client` what `ottla.connect` takes. The broker is closed
    with the client. DataDirectoryLocked when another process has the directory open.
    """
    broker = EmbeddedBroker(path, config)
    return in_process(broker, on_close=broker.close, **client)


def open_async(
    path: str | os.PathLike[str], *, config: Mapping[str, object] | None = None, **client: Any
) -> AsyncClient:
    """The same with the async client."""
    broker = EmbeddedBroker(path, config)
    return in_process_async(broker, on_close=broker.close, **client)
