"""The metadata store of one machine: a SQLite file in the data directory.

One thread owns the connection, because a commit waits for the disk; what is submitted meanwhile shares the
next one. That thread computes next to nothing, so that it does not take the interpreter from the broker's
loop. Reads never come here: the image in memory answers them. The tables are described in `FORMAT.md`.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import NoReturn

from fastcrc.crc32 import iscsi as crc32c

from ottla.errors import (
    DamagedStore,
    DataDirectoryLocked,
    DiskFull,
    MetadataBusy,
    MetadataConflict,
    OttlaError,
    StorageFault,
    StoreClosed,
    UnsupportedStore,
)
from ottla.metadata.store import ABSENT, Commit, Entry, Event, Listener, Snapshot, event_of, require_unchanged

FORMAT_VERSION = 1
MAIN = ""
WAL = "-wal"
SHARED_MEMORY = "-shm"
FILE_SUFFIXES = (MAIN, WAL, SHARED_MEMORY)
"""The files that SQLite may make beside each other, by what their names end in."""
COMMITS_WAITING_MAX = 10_000
COMMITS_TOGETHER_MAX = 1_000
"""How many commits share one transaction at most; further ones take the next."""

_SCHEMA = (
    "CREATE TABLE ottla_store (format INTEGER NOT NULL, revision INTEGER NOT NULL)",
    "CREATE TABLE entries (key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL,"
    " crc INTEGER NOT NULL)",
)
_TABLES = {"ottla_store", "entries"}
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE = 0xFF
"""SQLite's extended error codes carry the plain one in their last byte."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    """A commit, or without one a wish to load everything."""

    commit: Commit | None
    committed: Future[int] = field(default_factory=Future)
    loaded: Future[Snapshot] = field(default_factory=Future)


class LocalStore:
    """Keeps the contract of `MetadataStore`. Made by `open`; listeners and futures run on the store's thread."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._queue: Queue[_Job | None] = Queue(COMMITS_WAITING_MAX)
        self._listeners: list[Listener] = []
        self._failed: StorageFault | None = None
        self._closed = False
        # Held only to decide whether a job still goes in before the store closes.
        self._entrance = threading.Lock()
        # A daemon, so that a program that forgets to close still ends; SQLite recovers as after a crash.
        self._thread = threading.Thread(target=self._work, name="ottla-metadata", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: str, *, pages_max: int | None = None) -> LocalStore:
        """Open the store at this path, or make an empty one; `pages_max` limits how large it may grow.

        Raises DamagedStore for a file that cannot be believed, UnsupportedStore for one of another version,
        DataDirectoryLocked while somebody else has it open.
        """
        try:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        except sqlite3.Error as error:
            _refuse(path, "opening the metadata store", error)
        try:
            _prepare(connection, path, pages_max)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                _refuse(path, "opening the metadata store", error)
            raise
        return cls(path, connection)

    def load(self) -> Snapshot:
        job = _Job(None)
        self._enter(job)
        return job.loaded.result()

    def submit(self, commit: Commit) -> Future[int]:
        job = _Job(commit)
        try:
            self._enter(job)
        except (StoreClosed, MetadataBusy) as error:
            job.committed.set_exception(error)
        return job.committed

    def commit(self, commit: Commit) -> int:
        return self.submit(commit).result()

    def watch(self, listener: Listener) -> Callable[[], None]:
        # A new list each time, so that the store's thread may be on its way through the old one.
        self._listeners = [*self._listeners, listener]

        def end() -> None:
            self._listeners = [other for other in self._listeners if other is not listener]

        return end

    def close(self) -> None:
        with self._entrance:
            first, self._closed = not self._closed, True
        if first:
            self._queue.put(None)
        self._thread.join()

    def _enter(self, job: _Job) -> None:
        with self._entrance:
            if self._closed:
                raise StoreClosed(f"{self.path}: the metadata store is closed")
            try:
                self._queue.put_nowait(job)
            except Full:
                raise MetadataBusy(f"{COMMITS_WAITING_MAX} changes of metadata wait already; try again later") from None

    def _work(self) -> None:
        """The store's thread: one transaction for all that came while the last one waited for the disk."""
        running = True
        while running:
            jobs: list[_Job] = []
            job = self._queue.get()
            while job is not None:
                jobs.append(job)
                if len(jobs) == COMMITS_TOGETHER_MAX or job.commit is None:
                    break
                try:
                    job = self._queue.get_nowait()
                except Empty:
                    break
            running = job is not None
            self._write([job for job in jobs if job.commit is not None])
            for job in jobs:
                if job.commit is None:
                    self._read(job.loaded)
        self._connection.close()

    def _write(self, jobs: list[_Job]) -> None:
        jobs = [job for job in jobs if job.committed.set_running_or_notify_cancel()]
        if not jobs:
            return
        try:
            outcomes = self._transaction(jobs)
        except OttlaError as error:
            outcomes = [error] * len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, Event):
                self._tell(outcome)
                job.committed.set_result(outcome.revision)
            else:
                job.committed.set_exception(outcome)

    def _transaction(self, jobs: list[_Job]) -> list[Event | OttlaError]:
        """Write what can be written, all in one transaction, and say of each commit what became of it."""
        if self._failed is not None:
            raise self._failed
        execute = self._connection.execute
        outcomes: list[Event | OttlaError] = []
        try:
            execute("BEGIN IMMEDIATE")
            (revision,) = execute("SELECT revision FROM ottla_store").fetchone()
            for job in jobs:
                assert job.commit is not None
                try:
                    self._check(job.commit)
                except MetadataConflict as conflict:
                    outcomes.append(conflict)
                    continue
                revision += 1
                self._apply(job.commit, revision)
                outcomes.append(event_of(job.commit, revision=revision))
            execute("UPDATE ottla_store SET revision = ?", (revision,))
            execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up(error)
        return outcomes

    def _check(self, commit: Commit) -> None:
        for key, expected in commit.expected.items():
            found = self._connection.execute("SELECT revision FROM entries WHERE key = ?", (key,)).fetchone()
            require_unchanged(key, expected=expected, found=ABSENT if found is None else found[0])

    def _apply(self, commit: Commit, revision: int) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO entries (key, value, revision, crc) VALUES (?, ?, ?, ?)",
            [(key, value, revision, entry_crc(key, value)) for key, value in commit.puts.items()],
        )
        self._connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in commit.deletes])

    def _give_up(self, error: sqlite3.Error) -> NoReturn:
        """Undo the transaction. After anything but a full disk the store stays shut: what the file holds is unknown."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as second:
            self._failed = StorageFault(self.path, "undoing a change of metadata", second)
        if _code(error) != sqlite3.SQLITE_FULL:
            self._failed = StorageFault(
                self.path, "writing metadata; no change is taken until the broker is restarted", error
            )
        _refuse(self.path, "writing metadata", error)

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                # The commit is durable; a listener's mistake must not leave its caller waiting for ever.
                _logger.exception("a listener of the metadata store failed")

    def _read(self, loaded: Future[Snapshot]) -> None:
        try:
            loaded.set_result(_snapshot(self._connection, self.path))
        except OttlaError as error:
            loaded.set_exception(error)
        except sqlite3.Error as error:
            loaded.set_exception(_translated(self.path, "reading metadata", error))


def _prepare(connection: sqlite3.Connection, path: str, pages_max: int | None) -> None:
    execute = connection.execute
    # The data directory has one owner; without sharing, SQLite maps no file into memory.
    execute("PRAGMA locking_mode = EXCLUSIVE")
    execute("PRAGMA journal_mode = WAL")
    execute("PRAGMA synchronous = FULL")
    if pages_max is not None:
        execute(f"PRAGMA max_page_count = {pages_max:d}")
    # Takes the lock now, so that a second owner is refused here and not at its first change.
    execute("BEGIN IMMEDIATE")
    tables = {name for (name,) in execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        for statement in _SCHEMA:
            execute(statement)
        execute("INSERT INTO ottla_store (format, revision) VALUES (?, 0)", (FORMAT_VERSION,))
    execute("COMMIT")
    if tables:
        _check_whole(connection, path, tables)


def _check_whole(connection: sqlite3.Connection, path: str, tables: set[str]) -> None:
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise DamagedStore(path, str(verdict))
    if "ottla_store" not in tables:
        raise DamagedStore(path, "it is a database, but not of Ottla's")
    rows = connection.execute("SELECT format FROM ottla_store").fetchall()
    if len(rows) != 1:
        raise DamagedStore(path, "it does not say which format it is in")
    if rows[0][0] != FORMAT_VERSION:
        raise UnsupportedStore(
            path,
            f"is in format {rows[0][0]}, this Ottla reads format {FORMAT_VERSION}: run the version that wrote it",
        )
    if tables != _TABLES:
        raise DamagedStore(path, f"it has the tables {sorted(tables)}, {sorted(_TABLES)} are expected")
    # Reads every entry once, so that a flipped bit is found now and not when it matters.
    _snapshot(connection, path)


def _snapshot(connection: sqlite3.Connection, path: str) -> Snapshot:
    (revision,) = connection.execute("SELECT revision FROM ottla_store").fetchone()
    entries: dict[str, Entry] = {}
    for key, value, written, crc in connection.execute("SELECT key, value, revision, crc FROM entries"):
        if not isinstance(value, bytes) or crc != entry_crc(key, value):
            raise DamagedStore(path, f"the checksum of the entry {key!r} is wrong")
        entries[key] = Entry(value, written)
    return Snapshot(revision, entries)


def entry_crc(key: str, value: bytes) -> int:
    """The checksum of an entry: SQLite has none for what stands in its pages."""
    return crc32c(key.encode() + b"\0" + value)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE


def _translated(path: str, doing: str, error: sqlite3.Error) -> OttlaError:
    code = _code(error)
    if code in _DAMAGE:
        return DamagedStore(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DataDirectoryLocked(f"{path}: another process has the metadata store open; stop it first")
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(path, doing, error)
    return StorageFault(path, doing, error)


def _refuse(path: str, doing: str, error: sqlite3.Error) -> NoReturn:
    raise _translated(path, doing, error) from error
