"""What others on the same host take of the processors while something is measured, as Linux tells a virtual machine.

A turn that was disturbed says more about the neighbours than about who was measured, so it is taken again, after a wait
for a quiet moment. Not without end: on a host that is never quiet the last turn counts as it is, and its spread tells.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import NamedTuple, TypeVar

from bench.turns import TURNS_MIN

T = TypeVar("T")

STOLEN_MAX = 0.05
"""The share of all processors' time that may go to others during a turn."""
TURNS_MAX = 3
LOOK_S = 2.0
LOOKS_MAX = 30
STOLEN_FIELD = 7
TICKS_MIN = 50
"""Of less than a quarter of a second with two processors nothing is said: one tick would be a large share of it."""

RULE = (
    f"A turn during which the machine's host gave more than {STOLEN_MAX:.0%} of the processors' time to",
    f"others is taken again, at most {TURNS_MAX - 1} times.",
)
"""The same in words, for pages."""


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


class Neighbours:
    """Waits for quiet moments and tells whether something was disturbed."""

    def __init__(
        self,
        read: Callable[[], Reading] = reading,
        pause: Callable[[float], object] = sleep,
        *,
        turns_max: int = TURNS_MAX,
    ) -> None:
        self._read = read
        self._pause = pause
        self._turns_max = turns_max

    @classmethod
    def of_run(cls, rounds: int) -> Neighbours:
        """Those of a run of so many rounds: one that only tries things out waits for nobody."""
        return cls(turns_max=TURNS_MAX if rounds >= TURNS_MIN else 1)

    def turns(self) -> Iterator[bool]:
        """The turns that may be taken, for as long as they are asked for: whether it is the last one.

        Before every further one a quiet moment is waited for.
        """
        for left in reversed(range(self._turns_max)):
            yield not left
            if left:
                self.await_quiet()

    def await_quiet(self) -> bool:
        """Whether a quiet moment came within a minute; returns as soon as there is one."""
        for _ in range(LOOKS_MAX):
            before = self._read()
            self._pause(LOOK_S)
            if self._read().share(before) <= STOLEN_MAX:
                return True
        return False

    def watched(self, take: Callable[[], T]) -> tuple[T, bool]:
        """What a turn gives, and whether it was disturbed, which is told."""
        before = self._read()
        taken = take()
        share = self._read().share(before)
        if share > STOLEN_MAX:
            print(f"  others had {share:.0%} of the processors' time", file=sys.stderr, flush=True)
        return taken, share > STOLEN_MAX

    def undisturbed(self, take: Callable[[], T]) -> T:
        """What a turn gives that was not disturbed, or the last of a few."""
        for is_last in self.turns():
            taken, is_disturbed = self.watched(take)
            if is_last or not is_disturbed:
                return taken
        raise AssertionError("unreachable")
