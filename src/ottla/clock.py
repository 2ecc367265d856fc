"""The time of day, as something that is handed in.

Nothing else in Ottla reads the system's clock, so that a test can move time by hand.
"""

from __future__ import annotations

import time
from typing import Protocol

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
"""How people write spans of time: `10m`."""
EPOCH_MS_MIN = 10**12
"""From here on a plain number that people write is a time in milliseconds (after September 2001)."""


class Clock(Protocol):
    """Where a part that needs the time gets it from."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, for timestamps that people read."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SteadyClock:
    """The time of day when it was made, and from then on the time that has passed: nobody can set it.

    For waits that are kept as times of day: a clock that is put forward must not end them all, nor one that is put
    back make them last. It drifts from the time of day by as much as that is set.
    """

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000


class ManualClock:
    """A clock that stands still until it is told to move."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        """Let time pass; it never runs backwards."""
        if by_ms < 0:
            raise ValueError("time does not run backwards")
        self._now_ms += by_ms
