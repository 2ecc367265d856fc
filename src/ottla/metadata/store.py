"""The contract of a metadata store: keys with values and revisions, changed many at a time or not at all.

Every commit has a revision, one above the last. An entry carries the revision of the commit that wrote it, so
that a commit can say which entries it relies on; if one of them has changed meanwhile, nothing is written. What
keys and values mean is not known here.

- `submit` returns at once; its future gets the revision when the commit is durable, or the reason why it never
  will be: MetadataConflict, MetadataBusy, StorageFault, StoreClosed. Commits take effect in the order of their
  submission. `commit` is the same and waits.
- `watch` has a listener called after each commit that is durable, whoever made it, in the order of revisions,
  before the future of that commit is done, and before that of a commit which conflicts with it fails. It is
  called on a thread of the store's: hand the event over and return. To miss nothing, watch first and load then;
  events up to the revision loaded are old news.
- `load` gives everything as of one revision.
- `close` waits for what was submitted. Afterwards everything raises StoreClosed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.errors import MetadataConflict

ABSENT = 0
"""The revision of an entry that is not there."""


class Entry(NamedTuple):
    """A value, and the revision of the commit that wrote it."""

    value: bytes
    revision: int


class Snapshot(NamedTuple):
    """All entries as of one revision."""

    revision: int
    entries: Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class Commit:
    """Entries to write and to remove, all or none."""

    puts: Mapping[str, bytes] = field(default_factory=dict)
    deletes: frozenset[str] = frozenset()
    expected: Mapping[str, int] = field(default_factory=dict)
    """Which revision each of these entries must still have; ABSENT for one that must not be there."""

    def __post_init__(self) -> None:
        if not self.puts and not self.deletes:
            raise ValueError("a commit that changes nothing would be answered without being written")
        if self.puts.keys() & self.deletes:
            raise ValueError(f"both written and removed: {sorted(self.puts.keys() & self.deletes)}")


class Event(NamedTuple):
    """What one commit changed: new values, None for what is gone."""

    revision: int
    changed: Mapping[str, bytes | None]


Listener = Callable[[Event], None]


class MetadataStore(Protocol):
    """Where metadata is kept. Any thread may call any method."""

    def load(self) -> Snapshot: ...

    def submit(self, commit: Commit) -> Future[int]: ...

    def commit(self, commit: Commit) -> int: ...

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Returns a function that ends it."""
        ...

    def close(self) -> None: ...


def event_of(commit: Commit, *, revision: int) -> Event:
    """What listeners are told about a commit."""
    return Event(revision, {**commit.puts, **dict.fromkeys(commit.deletes)})


def require_unchanged(key: str, *, expected: int, found: int) -> None:
    """Refuse a commit that relies on an entry as it no longer is."""
    if expected != found:
        raise MetadataConflict(
            f"metadata entry {key!r} is at revision {found}, not {expected}: somebody changed it; decide anew"
        )
