"""Tests that failed while the machine's host gave its processors to others.

Many tests run other programs with time limits of their own: Spark waits ten seconds for a worker, Kafka's controller
fences a broker, clients give up connections. A virtual machine that stands still for as long breaks them all, and says
nothing of Ottla. Linux tells for how long that was, so such a test is taken again, and the report names it and its
failure. On a machine that has its processors to itself nothing is ever taken again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from bench.neighbours import Reading, reading
from bench.spark_cpu import TICKS_PER_SECOND
from tests.report import Report

TURNS_MAX = 3
STOLEN_S_MAX = 2.0
"""A quiet host takes less during the longest test."""
SECTION = "taken again, for the host had the processors"
TEXT_MAX = 160


class Watch:
    """What others took since a test began."""

    def __init__(self, name: str, report: Report, read: Callable[[], Reading] = reading) -> None:
        self._name = name
        self._report = report
        self._read = read
        self._before = Reading(0, 0)

    def begin(self) -> None:
        """What was taken until now does not count; before each turn."""
        self._before = self._read()

    def is_disturbed(self, error: BaseException | None) -> bool:
        """Whether a failure says nothing; it is reported then. Without an error there was none."""
        if error is None:
            return False
        stolen_s = (self._read().stolen - self._before.stolen) / TICKS_PER_SECOND
        if stolen_s <= STOLEN_S_MAX:
            return False
        text = " ".join(f"{type(error).__name__}: {error}".split())
        self._report.say(SECTION, f"{self._name}: {stolen_s:.1f} s taken; {text[:TEXT_MAX]}")
        return True


WATCH = pytest.StashKey[Watch]()


def watch(item: pytest.Item, report: Report, read: Callable[[], Reading] = reading) -> None:
    """Have a test taken again that fails while it is disturbed."""
    item.stash[WATCH] = Watch(item.nodeid, report, read)
    condition = partial(Watch.is_disturbed, item.stash[WATCH])
    item.add_marker(pytest.mark.flaky(reruns=TURNS_MAX - 1, condition=condition))


def begin(item: pytest.Item) -> None:
    """A test begins, once more perhaps."""
    if (watched := item.stash.get(WATCH, None)) is not None:
        watched.begin()
