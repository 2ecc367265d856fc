"""Which small files of a table are put together, and when there is time for it. Pure; knows no file system.

In the course of writing, files join others of about their own size only, so that each row is written again a few
times in its life and not once for every batch. A compaction that somebody asks for joins all small ones at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.pipelines.tables.commits import DataFile

SMALL_FILES_MIN = 8
"""So many files of about one size in one partition are worth a rewrite."""
SIZE_STEP = 4
"""Files whose sizes differ by less than this factor are of about one size."""
SMALLEST_BYTES = 4096
"""Below it all files are of one size: their footers weigh more than their rows."""
GROUP_FILES_MAX = 1000
TIME_SHARE_MAX = 0.2
"""Of the time that a writer lives, at most this part goes into putting files together."""


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition that become one."""

    partition: str
    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.files)


def groups(files: Iterable[DataFile], *, file_bytes_min: int, in_passing: bool) -> tuple[Group, ...]:
    """At most one group for each partition, smallest files first. `in_passing`: only what is worth it between batches.

    A group ends when it is big enough, so what comes out of it needs no compaction again.
    """
    small: dict[str, list[DataFile]] = {}
    for one in files:
        if one.bytes < file_bytes_min:
            small.setdefault(one.partition, []).append(one)
    found = []
    for partition, members in sorted(small.items()):
        members.sort(key=lambda one: (one.bytes, one.path))
        chosen = _of_one_size(members) if in_passing else members
        group = _bounded(chosen, bytes_max=2 * file_bytes_min)
        if len(group) > 1:
            found.append(Group(partition, tuple(group)))
    return tuple(found)


def _of_one_size(files: list[DataFile]) -> list[DataFile]:
    by_size: dict[int, list[DataFile]] = {}
    for one in files:
        by_size.setdefault(_size_class(one.bytes), []).append(one)
    return next((members for _, members in sorted(by_size.items()) if len(members) >= SMALL_FILES_MIN), [])


def _size_class(size: int) -> int:
    size_class = 0
    while size >= SMALLEST_BYTES * SIZE_STEP**size_class:
        size_class += 1
    return size_class


def _bounded(files: list[DataFile], *, bytes_max: int) -> list[DataFile]:
    taken: list[DataFile] = []
    total = 0
    for one in files[:GROUP_FILES_MAX]:
        if taken and total + one.bytes > bytes_max:
            break
        taken.append(one)
        total += one.bytes
    return taken


@dataclass(slots=True)
class TimeShare:
    """Keeps compaction to its share of a writer's time."""

    began_ms: int
    spent_ms: int = 0

    def allows(self, now_ms: int) -> bool:
        """Whether what was spent so far is within the share of the time that has passed."""
        return self.spent_ms <= TIME_SHARE_MAX * (now_ms - self.began_ms)

    def spend(self, *, began_ms: int, ended_ms: int) -> None:
        """Note down a compaction."""
        self.spent_ms += max(0, ended_ms - began_ms)
