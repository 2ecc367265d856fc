"""How much the busiest thread of a process has computed: a client that has one such is the limit, on any machine."""

from __future__ import annotations

import os
from pathlib import Path

from bench.spark_cpu import TICKS_PER_SECOND, parse


class Threads:
    """Counts from when it is made."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._before = read_ticks(process)

    def busiest_s(self) -> float:
        """Of the thread that computed most since."""
        return busiest_ticks(self._before, read_ticks(self._process)) / TICKS_PER_SECOND


def busiest_ticks(before: dict[int, int], after: dict[int, int]) -> int:
    """Between two looks. A thread that began meanwhile counts whole; one that has ended is not seen any more."""
    return max((ticks - before.get(thread, 0) for thread, ticks in after.items()), default=0)


def read_ticks(process: int) -> dict[int, int]:
    """By thread."""
    ticks: dict[int, int] = {}
    try:
        for entry in os.listdir(f"/proc/{process}/task"):
            text = Path(f"/proc/{process}/task/{entry}/stat").read_text(encoding="utf-8", errors="replace")
            ticks[int(entry)] = parse(text).ticks
    except (FileNotFoundError, ProcessLookupError):
        pass  # It has ended, or one of its threads has.
    return ticks
