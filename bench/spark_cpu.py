"""What Spark and a broker have computed between two moments: a process and everything that it has started.

Spark's Python workers come and go. Those that their parent waits for are in the parent's own account; a daemon of
Spark's lets its workers go without a look, so that what they have computed before must not be taken off again when
they have ended. Knows /proc, and what Spark's processes do there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name, which ends with the last bracket.
_PARENT, _TIMES, _STARTED = 1, slice(11, 15), 19
_KERNEL_TIMES = slice(12, 15, 2)


class Usage(NamedTuple):
    """One process at one moment."""

    parent: int
    started: int
    """When it began, which tells it from another one that got the same number later."""
    ticks: int
    """In user and in kernel mode, its own and those of its children that it has waited for."""
    kernel_ticks: int = 0
    """Those among them in kernel mode."""


Usages = Mapping[int, Usage]
_all_ticks = attrgetter("ticks")
_COUNTED = (_all_ticks, attrgetter("kernel_ticks"))


class Spent(NamedTuple):
    """CPU time between two moments."""

    seconds: float
    kernel_seconds: float


class Meter:
    """Counts from when it is made."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._before = tree(root, read_usages())

    def seconds(self) -> float:
        """What was computed since."""
        return self.spent().seconds

    def spent(self) -> Spent:
        """The same, with the kernel's part in it."""
        after = tree(self._root, read_usages())
        return Spent(*(spent_ticks(self._root, self._before, after, of) / TICKS_PER_SECOND for of in _COUNTED))


def parse(stat: str) -> Usage:
    """The text of /proc/PID/stat."""
    fields = stat[stat.rindex(")") + 1 :].split()
    return Usage(
        int(fields[_PARENT]),
        int(fields[_STARTED]),
        sum(map(int, fields[_TIMES])),
        sum(map(int, fields[_KERNEL_TIMES])),
    )


def tree(root: int, usages: Usages) -> dict[int, Usage]:
    """A process and what descends from it."""
    children: dict[int, list[int]] = {}
    for process, usage in usages.items():
        children.setdefault(usage.parent, []).append(process)
    found, waiting = {}, [root] if root in usages else []
    while waiting:
        process = waiting.pop()
        found[process] = usages[process]
        waiting += children.get(process, ())
    return found


def spent_ticks(root: int, before: Usages, after: Usages, ticks_of: Callable[[Usage], int] = _all_ticks) -> int:
    """The ticks between two looks at the same tree."""
    spent = sum(map(ticks_of, after.values()))
    for process, usage in before.items():
        is_alive = process in after and after[process].started == usage.started
        # The root waits for its children, so all that an ended one ever computed is now among the root's own ticks.
        if is_alive or usage.parent == root:
            spent -= ticks_of(usage)
    return spent


def read_usages() -> dict[int, Usage]:
    """All processes of the machine."""
    usages: dict[int, Usage] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                usages[int(entry)] = parse(Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # It has just ended, and its parent's account has it, or nobody's has.
    return usages
