"""The log of a table's commits, in its files: reading it up to now, and adding the next version if nobody was first.

A version is the exclusive creation of its document, so that of two writers one wins, and the other one looks again.
Knows nothing of Parquet and Spark.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.pipelines.tables.commits import HOME, Commit, State, Unreadable, decoded_commit, decoded_state, encoded
from ottla.pipelines.tables.errors import DamagedTable
from ottla.pipelines.tables.files import TableFiles

COMMITS = f"{HOME}/commits"
CHECKPOINT_PREFIX = "checkpoint-"
CHECKPOINT_EVERY = 20
"""So many documents are read at most, and one checkpoint, to open a table."""
LOOKS_MAX = 5
"""Others may write a checkpoint between two looks, but hardly at each of them."""
CHECKPOINTS_KEPT = 2
"""One that a reader may have found a moment ago, and the newest."""


def commit_name(version: int) -> str:
    """The path of a version's document."""
    return f"{COMMITS}/{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """The path of the checkpoint of a version."""
    return f"{HOME}/{CHECKPOINT_PREFIX}{version:020d}.json"


class CommitLog:
    """The versions of one table, as far as they were read."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._state: State | None = None

    @property
    def state(self) -> State:
        """The table as it was at the last look."""
        return self._state if self._state is not None else self.refresh()

    def refresh(self) -> State:
        """Read what others have committed since."""
        state = self._state if self._state is not None else self._from_checkpoint()
        for _ in range(LOOKS_MAX):
            state = self._read_on(state)
            if not self._is_forgotten_after(state):
                self._state = state
                return state
            # Who has not looked for long finds nothing where the next version was: a vacuum has removed its document.
            state = self._from_checkpoint()
        raise DamagedTable(
            self._files.root, f"its log ends at version {state.version}, and a later checkpoint cannot be read"
        )

    def append(self, commit: Commit) -> bool:
        """Make the next version of the table; False if somebody else has made one since the last look."""
        state = self.state
        if self._is_forgotten_after(state):
            # Its name is free again, but nobody would read what is written there.
            return False
        commit = replace(commit, version=state.version + 1)
        if not self._files.create(commit_name(commit.version), encoded(commit)):
            return False
        state.replay(commit)
        return True

    def checkpoint_if_due(self) -> None:
        """Write the whole state down now and then, so that nobody has to read every commit."""
        if self.state.version % CHECKPOINT_EVERY == 0:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write the whole state down, and drop the checkpoints that nobody needs any more."""
        self._files.replace(checkpoint_name(self.state.version), encoded(self.state))
        for version in self._checkpoints()[:-CHECKPOINTS_KEPT]:
            self._files.remove(checkpoint_name(version))

    def forget_before(self, moment_ms: int) -> int:
        """Remove the documents of commits that every checkpoint covers and that were made before; returns how many.

        Those of a newer time stay: a reader that is at an older version may be about to read on.
        """
        covered = self._checkpoints()[:1]
        removed = 0
        for version in self.versions():
            if not covered or version > covered[0]:
                break
            commit = self._commit(version)
            if commit is not None and commit.time_ms > moment_ms:
                break
            self._files.remove(commit_name(version))
            removed += 1
        return removed

    def versions(self) -> list[int]:
        """The versions whose documents are kept."""
        return _numbers(self._files.names(COMMITS), prefix="")

    def commits(self) -> list[Commit]:
        """The documents that are kept, oldest first."""
        return [commit for version in self.versions() if (commit := self._commit(version)) is not None]

    def _checkpoints(self) -> list[int]:
        return _numbers(self._files.names(HOME), prefix=CHECKPOINT_PREFIX)

    def _read_on(self, state: State) -> State:
        while (commit := self._commit(state.version + 1)) is not None:
            state.replay(commit)
        return state

    def _is_forgotten_after(self, state: State) -> bool:
        """Whether there are versions after this one whose documents may be gone: a checkpoint tells of them."""
        return any(version > state.version for version in self._checkpoints())

    def _from_checkpoint(self) -> State:
        broken: Unreadable | None = None
        for version in reversed(self._checkpoints()):
            data = self._files.read(checkpoint_name(version))
            try:
                if data is not None:
                    return decoded_state(data)
            except Unreadable as reason:
                # An older one, with more commits after it, says the same.
                broken = broken or reason
        kept = self.versions()
        if kept and kept[0] != 1:
            raise DamagedTable(
                self._files.root,
                f"its log begins at version {kept[0]}, and no checkpoint tells what came before: {broken}",
            )
        return State()

    def _commit(self, version: int) -> Commit | None:
        data = self._files.read(commit_name(version))
        if data is None:
            return None
        try:
            return decoded_commit(data, version=version)
        except Unreadable as reason:
            raise DamagedTable(f"{self._files.root}/{commit_name(version)}", str(reason)) from reason


def _numbers(names: list[str], *, prefix: str) -> list[int]:
    found = [name.removeprefix(prefix).removesuffix(".json") for name in names if name.startswith(prefix)]
    return sorted(int(text) for text in found if len(text) == 20 and text.isdecimal())
