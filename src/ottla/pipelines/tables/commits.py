"""The documents of a table's log, and the state that they add up to. FORMAT.md describes them.

One document is one version of the table: what it adds, what it removes, and which batch of which application it holds.
Pure: knows no file system and no Spark. Only `State.replay` changes a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

HOME = "_ottla"
"""What the table itself needs stands below; readers of plain Parquet pass over what begins with `_`."""
FORMAT = 1
"""Raised when a reader of today would get a table of tomorrow wrong."""
RANGES_MAX = 1000
"""So many runs of batch numbers are kept of each application; beyond it the oldest are taken for one."""
HURRIED_GRACE_MS = 60_000

Schema = Mapping[str, Any]
"""A schema as Spark writes it in JSON."""
Document = TypeVar("Document", "Commit", "State")
Kind = Literal["batch", "compaction", "merge", "takeover", "vacuum"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file below `_ottla`: of rows, `files/date=2026-11-16/...`, or of changes that wait, `changes/...`."""

    path: str
    rows: int
    bytes: int

    @property
    def place(self) -> str:
        """Its path from the table's directory on."""
        return f"{HOME}/{self.path}"

    @property
    def shown(self) -> str:
        """The path by which readers of plain Parquet see it."""
        return self.path.partition("/")[2]

    @property
    def partition(self) -> str:
        """The directories above it, such as `date=2026-11-16`; empty without partitions."""
        return self.shown.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One document: the step from the version before to this one."""

    version: int
    kind: Kind
    time_ms: int
    format: int = FORMAT
    application: str | None = None
    batch_id: int | None = None
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    changes_added: tuple[DataFile, ...] = ()
    """Rows of a table with keys that are not merged into its files yet."""
    changes_removed: tuple[DataFile, ...] = ()
    """Those that are, from here on."""
    deleted: tuple[str, ...] = ()
    """Removed before, and by now gone from the disk."""
    schema: dict[str, Any] | None = None
    """The table's from here on; None where the commit does not touch it."""
    partition_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    order: str | None = None
    took_ms: int = 0
    """How long the work for it took."""

    @property
    def is_merge(self) -> bool:
        """Whether it leaves no change waiting, and had to write files anew for that."""
        return self.kind == "merge" or (self.kind == "batch" and bool(self.keys) and not self.changes_added)


@dataclass(frozen=True, slots=True)
class Expired:
    """A file that the table does not hold any more, but that readers of older versions may still need."""

    file: DataFile
    removed_ms: int


@dataclass(slots=True, kw_only=True)
class State:
    """What a table is at one version. The document of a checkpoint is this, as it stands."""

    version: int = 0
    format: int = FORMAT
    written_version: int = 0
    """The last version that changed rows, and not only files."""
    time_ms: int = 0
    schema: dict[str, Any] | None = None
    partition_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    order: str | None = None
    merged_ms: int = 0
    """When changes were last merged, and how long that took."""
    merge_took_ms: int = 0
    changes: dict[str, DataFile] = field(default_factory=dict)
    live: dict[str, DataFile] = field(default_factory=dict)
    expired: dict[str, Expired] = field(default_factory=dict)
    batches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By application, the runs (first, last) of the batches that are in the table, ascending."""
    takeovers: dict[str, int] = field(default_factory=dict)
    """By application, the version in which a new process last took over from another one."""

    @property
    def exists(self) -> bool:
        """Whether anything was written yet: a takeover alone makes no table."""
        return self.schema is not None

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.live.values())

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.live.values())

    def names(self, path: str) -> bool:
        """Whether a file is part of this version, or of an older one that may still be read."""
        return path in self.live or path in self.changes or path in self.expired

    def has_all(self, files: Iterable[DataFile]) -> bool:
        """Whether all these files are part of this version."""
        return all(one.path in self.live or one.path in self.changes for one in files)

    def holds(self, application: str, batch_id: int) -> bool:
        """Whether this batch is in the table."""
        return any(first <= batch_id <= last for first, last in self.batches.get(application, ()))

    def replay(self, commit: Commit) -> None:
        """Become the version that a commit makes."""
        assert commit.version == self.version + 1, f"version {commit.version} does not follow {self.version}"
        self.version = commit.version
        self.time_ms = commit.time_ms
        if commit.schema is not None:
            self.schema = commit.schema
            self.partition_by = commit.partition_by
            self.keys = commit.keys
            self.order = commit.order
        if commit.is_merge:
            self.merged_ms = commit.time_ms
            self.merge_took_ms = commit.took_ms
        for one in (*commit.removed, *commit.changes_removed):
            self.live.pop(one.path, None)
            self.changes.pop(one.path, None)
            self.expired[one.path] = Expired(one, commit.time_ms)
        self.live.update((one.path, one) for one in commit.added)
        self.changes.update((one.path, one) for one in commit.changes_added)
        for path in commit.deleted:
            self.expired.pop(path, None)
        if commit.kind == "batch":
            assert commit.application is not None, "a batch has an application"
            assert commit.batch_id is not None, "a batch has a number"
            self.written_version = commit.version
            runs = self.batches.get(commit.application, [])
            self.batches[commit.application] = with_batch(runs, commit.batch_id)
        if commit.kind == "takeover":
            assert commit.application is not None, "it is an application that is taken over"
            self.takeovers[commit.application] = commit.version


def with_batch(runs: Iterable[tuple[int, int]], batch_id: int) -> list[tuple[int, int]]:
    """Runs of numbers with one more number in them."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted([*runs, (batch_id, batch_id)]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    if len(joined) > RANGES_MAX:
        # Batches are numbered upwards: what was left out so long ago will not come any more.
        joined[:2] = [(joined[0][0], joined[1][1])]
    return joined


def deletable(state: State, *, now_ms: int, grace_ms: int, expired_bytes_max: int | None = None) -> list[DataFile]:
    """Files that were removed so long ago that nobody reads them, oldest first.

    Where more than `expired_bytes_max` wait for that, the oldest of them go after a minute: a table whose files are
    written anew with every batch must not fill the disk with what it was.
    """
    waiting_bytes = sum(one.file.bytes for one in state.expired.values())
    found = []
    for one in sorted(state.expired.values(), key=lambda one: one.removed_ms):
        age_ms = now_ms - one.removed_ms
        crowded = expired_bytes_max is not None and waiting_bytes > expired_bytes_max and age_ms >= HURRIED_GRACE_MS
        if age_ms >= grace_ms or crowded:
            found.append(one.file)
            waiting_bytes -= one.file.bytes
    return found


class Unreadable(ValueError):
    """Bytes that are not a document of ours, or of a format that is newer than this program."""


def encoded(document: Commit | State) -> bytes:
    """The bytes of a document: JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decoded_commit(data: bytes, *, version: int) -> Commit:
    """A commit from its bytes; raises Unreadable."""
    commit = _decoded(data, Commit)
    if commit.version != version:
        raise Unreadable(f"holds version {commit.version} under the name of {version}")
    return commit


def decoded_state(data: bytes) -> State:
    """A state from the bytes of a checkpoint; raises Unreadable."""
    return _decoded(data, State)


class _Format(msgspec.Struct):
    format: int


def _decoded(data: bytes, kind: type[Document]) -> Document:
    try:
        written = msgspec.json.decode(data, type=_Format).format
        if written > FORMAT:
            raise Unreadable(f"is of format {written}, and this program knows formats up to {FORMAT}; use a newer one")
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as cause:
        raise Unreadable(f"is not a document of a table: {cause}") from cause
