"""What others on the same host take of the processors while something is measured.

Linux tells a virtual machine for how long it had no processor. It does not tell how fast one was: whoever shares a core
with others has half of it or all of it, from one minute to the next. That shows in how long a small computation takes.

A turn that was disturbed says more about the neighbours than about who was measured, so it is taken again, after a wait
for a quiet moment. Not without end: on a host that is never quiet the last turn counts as it is, and its spread tells.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple, TypeVar

from bench.turns import TURNS_MIN

T = TypeVar("T")

STOLEN_MAX = 0.05
"""The share of all processors' time that may go to others during a turn."""
TURNS_MAX = 6
"""Where others come and go within seconds, each of three turns was disturbed in a quarter of the rounds."""
LOOK_S = 2.0
LOOKS_MAX = 30
STOLEN_FIELD = 7
TICKS_MIN = 50
"""Of less than a quarter of a second with two processors nothing is said: one tick would be a large share of it."""

SPEED_OFF_MAX = 1.3
"""By how much a processor may be slower before or after a turn than it was at its fastest."""
SPINS, SPIN_STEPS, SPIN_PAUSE_S = 9, 60_000, 0.08

RULE = (
    f"A turn during which the machine's host gave more than {STOLEN_MAX:.0%} of the processors' time to",
    f"others is taken again, at most {TURNS_MAX - 1} times (until 19 November 2026 at most twice).",
)
"""The same in words, for pages."""
SPEED_RULE = (
    f"Since 17 November 2026 so is one before or after which a small computation took more than {SPEED_OFF_MAX:g}",
    "times as long as it did at its fastest (until 20 November: as it mostly did, or as short): a core that the",
    "machine's host shares with others is half as fast for minutes.",
)
"""The same for those who watch the speed, too."""


class Reading(NamedTuple):
    """Processors' time since the start of the machine, in ticks; where nobody tells of others they have taken none."""

    stolen: int
    total: int

    def share(self, before: Reading) -> float:
        """What others took since then."""
        total = self.total - before.total
        return (self.stolen - before.stolen) / total if total >= TICKS_MIN else 0.0


def reading(path: Path = Path("/proc/stat")) -> Reading:
    """What the system tells now."""
    try:
        ticks = [int(field) for field in path.read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return Reading(0, 0)
    # What guests of our own take is told a second time behind it.
    return Reading(ticks[STOLEN_FIELD] if len(ticks) > STOLEN_FIELD else 0, sum(ticks[: STOLEN_FIELD + 1]))


def spin_s() -> float:
    """How long a small computation takes, for about a second."""
    taken = []
    for _ in range(SPINS):
        start, total = perf_counter(), 0
        for step in range(SPIN_STEPS):
            total += step * step
        taken.append(perf_counter() - start)
        sleep(SPIN_PAUSE_S)
    return median(taken)


class Speed:
    """Whether the processor is about as fast as it ever was: slower is one that is shared, for minutes at times."""

    def __init__(self, spin: Callable[[], float] = spin_s) -> None:
        self._spin = spin
        self._shortest = inf

    def is_full(self) -> bool:
        """Looks, which takes a moment."""
        taken = self._spin()
        self._shortest = min(self._shortest, taken)
        return taken <= SPEED_OFF_MAX * self._shortest


class Neighbours:
    """Waits for quiet moments and tells whether something was disturbed."""

    def __init__(
        self,
        read: Callable[[], Reading] = reading,
        pause: Callable[[float], object] = sleep,
        *,
        speed: Speed | None = None,
        turns_max: int = TURNS_MAX,
    ) -> None:
        self._read = read
        self._pause = pause
        self._speed = speed
        self._turns_max = turns_max

    @classmethod
    def of_run(cls, rounds: int, *, speed: Speed | None = None) -> Neighbours:
        """Those of a run of so many rounds: one that only tries things out waits for nobody."""
        return cls(speed=speed, turns_max=TURNS_MAX) if rounds >= TURNS_MIN else cls(turns_max=1)

    def turns(self) -> Iterator[bool]:
        """The turns that may be taken, for as long as they are asked for: whether it is the last one.

        Before every further one a quiet moment is waited for.
        """
        for left in reversed(range(self._turns_max)):
            yield not left
            if left:
                self.await_quiet()

    def await_quiet(self) -> bool:
        """Whether a quiet moment came within a minute or two; returns as soon as there is one."""
        for _ in range(LOOKS_MAX):
            before = self._read()
            self._pause(LOOK_S)
            if self._read().share(before) <= STOLEN_MAX and self._is_fast():
                return True
        return False

    def watched(self, take: Callable[[], T], *, stolen_max: float = STOLEN_MAX) -> tuple[T, bool]:
        """What a turn gives, and whether it was disturbed, which is told. It begins once a slow moment has passed."""
        was_fast = self._is_fast() or self.await_quiet()
        before = self._read()
        taken = take()
        share = self._read().share(before)
        if share > stolen_max:
            print(f"  others had {share:.1%} of the processors' time", file=sys.stderr, flush=True)
            return taken, True
        is_fast = self._is_fast() and was_fast
        if not is_fast:
            print("  the processor was slower than it can be", file=sys.stderr, flush=True)
        return taken, not is_fast

    def _is_fast(self) -> bool:
        return self._speed is None or self._speed.is_full()

    def undisturbed(self, take: Callable[[], T]) -> T:
        """What a turn gives that was not disturbed, or the last of a few."""
        for is_last in self.turns():
            taken, is_disturbed = self.watched(take)
            if is_last or not is_disturbed:
                return taken
        raise AssertionError("unreachable")
