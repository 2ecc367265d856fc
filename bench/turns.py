"""Two programs that do the same work, timed in turns, and the ratio between them.

A figure from one run on a shared machine says little; a ratio between two programs that took turns in
the same run says a lot. Knows nothing of what is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

SPREAD_MAX = 0.40
"""A wider spread on either side means that the row is not known yet."""
TURNS_MIN = 3
"""Of fewer nothing can be said, neither of their spread nor of what disturbed them."""
WARM_UP_CALLS = 3
SLICE_MS = 20
SLICES_MIN = 5
"""A turn is cut into slices and the fastest one counts, so that a neighbour's burst of work does not. They are short,
so that on a busy machine some fit between the bursts."""


@dataclass(frozen=True, slots=True)
class Side:
    """One program; each call of `work` does the same work as the other side's."""

    name: str
    work: Callable[[], object]
    prepare: Callable[[], object] | None = None
    """Runs before each turn and is not timed, for instance to open a file."""
    finish: Callable[[], object] | None = None
    """Runs after each turn and is not timed, so that nothing of it weighs on the other side's turn."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one side took, in nanoseconds per call, round by round."""

    name: str
    rounds_ns: tuple[float, ...]

    @property
    def median_ns(self) -> float:
        return statistics.median(self.rounds_ns)

    @property
    def spread(self) -> float:
        """How far apart the rounds are, as a share of their median."""
        return (max(self.rounds_ns) - min(self.rounds_ns)) / self.median_ns


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: how many times as fast as the peer we are."""

    what: str
    settings: str
    ours: Timing
    peer: Timing
    expected: float | None

    @property
    def ratio(self) -> float:
        return self.peer.median_ns / self.ours.median_ns

    @property
    def verdict(self) -> str:
        """Whether the expectation is met, as far as this run can tell."""
        if max(self.ours.spread, self.peer.spread) > SPREAD_MAX:
            return "not known yet"
        if self.expected is None:
            return ""
        return "met" if self.ratio >= self.expected else "NOT MET"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Us and one or more peers at the same work, with what we expect against each."""

    what: str
    settings: str
    ours: Side
    peers: tuple[tuple[Side, float | None], ...]
    is_once: bool = False
    """Whether a turn is one call, prepared each time: for work that is another one when it is done again."""


def compare(comparison: Comparison, *, rounds: int, turn_ms: int) -> list[Row]:
    """One row for each peer; all sides take turns together."""
    sides = [comparison.ours, *(side for side, _ in comparison.peers)]
    ours, *others = take_turns(sides, rounds=rounds, turn_ms=turn_ms, is_once=comparison.is_once)
    expected = [expectation for _, expectation in comparison.peers]
    return [
        Row(comparison.what, comparison.settings, ours, peer, expectation)
        for peer, expectation in zip(others, expected, strict=True)
    ]


def take_turns(sides: list[Side], *, rounds: int, turn_ms: int, is_once: bool = False) -> list[Timing]:
    """Time each side `rounds` times, A B A B ...; a turn is as many calls as fit in about `turn_ms`, or one."""
    slices = 1 if is_once else max(SLICES_MIN, turn_ms // SLICE_MS)
    calls = {side.name: 1 if is_once else _calls_per_slice(side, slice_ms=turn_ms / slices) for side in sides}
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            taken[side.name].append(_turn(side, calls=calls[side.name], slices=slices))
    return [Timing(side.name, tuple(taken[side.name])) for side in sides]


def _calls_per_slice(side: Side, *, slice_ms: float) -> int:
    _turn(side, calls=WARM_UP_CALLS)
    calls = 1
    while True:
        taken_ns = _turn(side, calls=calls) * calls
        if taken_ns * 4 >= slice_ms * 1_000_000:
            return max(1, round(calls * slice_ms * 1_000_000 / taken_ns))
        calls *= 4


def _turn(side: Side, *, calls: int, slices: int = SLICES_MIN) -> float:
    """Nanoseconds per call, in the fastest slice."""
    if side.prepare is not None:
        side.prepare()
    fastest = min(_slice(side.work, calls=calls) for _ in range(slices))
    if side.finish is not None:
        side.finish()
    return fastest


def _slice(work: Callable[[], object], *, calls: int) -> float:
    start = perf_counter_ns()
    for _ in range(calls):
        work()
    return (perf_counter_ns() - start) / calls
