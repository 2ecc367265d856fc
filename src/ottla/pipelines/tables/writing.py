"""The life of one attempt to change a table: files are written aside, moved into place, committed, and shown.

Each attempt has a directory under `_ottla/staging`, which is there from before its first file until after its last
step: whoever finds one knows that something was left undone. Knows neither Spark nor what the rows mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ottla.clock import Clock
from ottla.pipelines.tables.commit_log import CommitLog
from ottla.pipelines.tables.commits import HOME, Commit, DataFile, State
from ottla.pipelines.tables.errors import TableBusy, WriterReplaced
from ottla.pipelines.tables.files import TableFiles

FILES = "files"
"""Where the log's files are. Plain readers see the live ones by a second name, at the same path below the table."""
CHANGES = "changes"
"""Where the changes wait that are not merged into the files; nobody sees them without the log."""
STAGING = f"{HOME}/staging"
ATTEMPTS_MAX = 20


def token_of(application: str) -> str:
    """An application in the name of a file: whatever characters it has, and of one length."""
    return hashlib.sha256(application.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where one attempt writes, and how its files are called."""

    token: str
    name: str

    @property
    def directory(self) -> str:
        return f"{STAGING}/{self.token}/{self.name}"

    @property
    def output(self) -> str:
        """Where rows are written."""
        return f"{self.directory}/{FILES}"

    @property
    def changes(self) -> str:
        """Where changes are written."""
        return f"{self.directory}/{CHANGES}"


class Workplace:
    """The files and the log of one table, with the steps that every change takes."""

    def __init__(self, files: TableFiles, log: CommitLog, clock: Clock, *, unique: Callable[[], str]) -> None:
        self.files = files
        self.log = log
        self.clock = clock
        self._unique = unique
        self._since: dict[str, int] = {}
        """By application, the version at which this process began to write for it."""

    def attempt(self, application: str, kind: str) -> Attempt:
        """A new place to write. `kind` begins the names of its files."""
        return Attempt(token_of(application), f"{kind}-{self._unique()}")

    def begin(self, application: str) -> None:
        """Before the first batch of an application: clear away what a process before this one left undone.

        That process may still be alive. A commit tells it that it was replaced, before anything of it is removed; it
        cannot commit without having read that.
        """
        if application in self._since:
            return
        token = token_of(application)
        if self.files.names(f"{STAGING}/{token}"):
            self.commit_always(lambda: self._takeover(application))
            state = self.log.state
            for kind in (FILES, CHANGES):
                for one in self.files.found(f"{HOME}/{kind}"):
                    if f"-{token}-" in one.path and not state.names(one.path.removeprefix(f"{HOME}/")):
                        self.files.remove(one.path)
            self.show_all()
            self.files.remove_tree(f"{STAGING}/{token}")
        self._since[application] = self.log.refresh().version

    def interrupted(self, application: str) -> None:
        """An attempt ended in the middle: the next one begins by clearing up."""
        self._since.pop(application, None)

    def require_not_replaced(self, application: str) -> None:
        """Raise if another process writes for this application by now."""
        if self.log.state.takeovers.get(application, 0) > self._since[application]:
            raise WriterReplaced(
                self.files.root, f"another process has taken over the application {application!r}; this one stops"
            )

    def placed(self, attempt: Attempt, kind: str, rows_of: Callable[[str], int]) -> tuple[DataFile, ...]:
        """Move the files or the changes that an attempt has written into place, where they survive a power loss."""
        placed: list[DataFile] = []
        for one in self.files.found(f"{attempt.directory}/{kind}"):
            inside, _, name = one.path.removeprefix(f"{attempt.directory}/").rpartition("/")
            rows = rows_of(one.path) if name.endswith(".parquet") and not name.startswith(("_", ".")) else 0
            if rows == 0:
                continue
            new_name = f"{attempt.name}-{attempt.token}-{len(placed):05d}.parquet"
            new = DataFile(f"{inside}/{new_name}", rows, one.bytes)
            self.files.move(one.path, new.place)
            placed.append(new)
        self.files.sync(one.place for one in placed)
        return tuple(placed)

    def withdraw(self, attempt: Attempt, placed: Iterable[DataFile]) -> None:
        """Undo an attempt that was not committed."""
        for one in placed:
            self.files.remove(one.place)
        self.files.remove_tree(attempt.directory)

    def finish(self, attempt: Attempt, commit: Commit) -> None:
        """After a commit: let plain readers see it, and clear up."""
        self.show(added=commit.added, removed=commit.removed)
        self.log.checkpoint_if_due()
        self.files.remove_tree(attempt.directory)

    def show(self, *, added: Iterable[DataFile], removed: Iterable[DataFile]) -> None:
        """Give files the second name that plain readers see, or take it away."""
        added = tuple(added)
        for one in added:
            self.files.link(one.place, one.shown)
        self.files.sync(one.shown for one in added)
        for one in removed:
            self.files.remove(one.shown)
        # Another writer may have removed a file before it was shown here.
        live = self.log.refresh().live
        for one in added:
            if one.path not in live:
                self.files.remove(one.shown)

    def show_all(self) -> None:
        """Make what plain readers see equal to what is live."""
        state = self.log.refresh()
        seen: set[str] = set()
        for name in self.files.names(""):
            if name != HOME:
                seen |= {one.path for one in self.files.found(name)} if "=" in name else {name}
        added = [one for one in state.live.values() if one.shown not in seen]
        removed = [one.file for one in state.expired.values() if one.file.shown in seen]
        self.show(added=added, removed=removed)

    def commit_always(self, build: Callable[[], Commit]) -> None:
        """Commit what can be committed whatever others do meanwhile."""
        for _ in range(ATTEMPTS_MAX):
            self.log.refresh()
            if self.log.append(build()):
                return
        raise self.busy()

    def busy(self) -> TableBusy:
        """Others were always first."""
        return TableBusy(
            self.files.root, f"others committed first {ATTEMPTS_MAX} times in a row; try again, with fewer writers"
        )

    def _takeover(self, application: str) -> Commit:
        return Commit(version=0, kind="takeover", time_ms=self.clock.now_ms(), application=application)


def still_fits(commit: Commit, state: State, *, read_at: int) -> bool:
    """Whether a commit that was prepared at an earlier version can be the next one now.

    What it removes must be there. A batch of a table with keys follows all that was written before it, so nothing may
    have been written since.
    """
    if not state.has_all((*commit.removed, *commit.changes_removed)):
        return False
    return commit.kind != "batch" or not commit.keys or state.written_version <= read_at
