"""A metadata store in memory that can lose its power: for simulation, tests, and brokers that keep nothing.

Beside `MemoryDisk` it makes a whole broker crash from one seed. By default each commit is durable at once. A
store that is `held` keeps commits waiting, as a slow disk would, until `sync`; a crash before that loses them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from ottla.errors import OttlaError, StoreClosed
from ottla.metadata.store import ABSENT, Commit, Entry, Event, Listener, Snapshot, event_of, require_unchanged


class MemoryStore:
    """Keeps the contract of `MetadataStore`; listeners and futures run on the thread that submits or syncs."""

    def __init__(self, *, held: bool = False, snapshot: Snapshot | None = None) -> None:
        self.held = held
        self._entries = dict(snapshot.entries) if snapshot else {}
        self._revision = snapshot.revision if snapshot else 0
        self._waiting: deque[tuple[Commit, Future[int]]] = deque()
        self._listeners: list[Listener] = []
        self._failures: deque[OttlaError] = deque()
        self._closed = False
        self._lock = threading.RLock()

    def load(self) -> Snapshot:
        with self._lock:
            self._require_open()
            return Snapshot(self._revision, dict(self._entries))

    def submit(self, commit: Commit) -> Future[int]:
        future: Future[int] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(_closed())
                return future
            self._waiting.append((commit, future))
            if not self.held:
                self.sync()
        return future

    def commit(self, commit: Commit) -> int:
        with self._lock:
            self._require_open()
            future = self.submit(commit)
            self.sync()
        return future.result()

    def watch(self, listener: Listener) -> Callable[[], None]:
        with self._lock:
            self._listeners.append(listener)

        def end() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return end

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self.sync()
                self._closed = True

    def sync(self, count: int | None = None) -> None:
        """Make the first `count` waiting commits durable, or all of them."""
        with self._lock:
            for _ in range(len(self._waiting) if count is None else count):
                # A listener that submits another commit may have been here meanwhile.
                if not self._waiting:
                    return
                commit, future = self._waiting.popleft()
                try:
                    event = self._apply(commit)
                except OttlaError as error:
                    future.set_exception(error)
                    continue
                for listener in tuple(self._listeners):
                    listener(event)
                future.set_result(event.revision)

    def fail_next(self, error: OttlaError) -> None:
        """Let the next commit that would become durable fail with this error instead."""
        self._failures.append(error)

    def crash(self, *, unanswered: int = 0) -> MemoryStore:
        """The store as it is found after a power loss: without the commits that wait.

        The first `unanswered` of them had reached the disk, though nobody was told. This store is dead: its
        waiting futures never finish.
        """
        with self._lock:
            self._listeners.clear()
            for commit, _ in list(self._waiting)[:unanswered]:
                try:
                    self._apply(commit)
                except OttlaError:
                    # Refused by the rules of the store, so that it never reached the disk.
                    continue
            self._waiting.clear()
            self._closed = True
            return MemoryStore(held=self.held, snapshot=Snapshot(self._revision, self._entries))

    def _apply(self, commit: Commit) -> Event:
        if self._failures:
            raise self._failures.popleft()
        for key, expected in commit.expected.items():
            entry = self._entries.get(key)
            require_unchanged(key, expected=expected, found=ABSENT if entry is None else entry.revision)
        self._revision += 1
        for key, value in commit.puts.items():
            self._entries[key] = Entry(value, self._revision)
        for key in commit.deletes:
            self._entries.pop(key, None)
        return event_of(commit, revision=self._revision)

    def _require_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> StoreClosed:
    return StoreClosed("the metadata store is closed")
