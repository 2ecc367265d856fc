"""What was measured on the Spark side, what was expected of it, and whether it is so; pure.

A row is one side at one piece of work, over all its turns. Knows nothing of how it was measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from bench.neighbours import Neighbours
from bench.turns import SPREAD_MAX, TURNS_MIN

Unit = Literal["records/s", "ms"]
ATTEMPTS_MAX = 2
NOT_KNOWN = "not known yet"
_Turn = TypeVar("_Turn")


class Turn(NamedTuple):
    """One turn of one side."""

    figure: float
    """In the row's unit."""
    spark_cpu_s: float
    broker_cpu_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One side at one piece of work."""

    what: str
    side: str
    unit: Unit
    turns: tuple[Turn, ...]

    @property
    def median(self) -> float:
        return statistics.median(turn.figure for turn in self.turns)

    @property
    def spread(self) -> float:
        return spread([turn.figure for turn in self.turns])

    @property
    def is_known(self) -> bool:
        return self.spread <= SPREAD_MAX

    @property
    def spark_cpu_s(self) -> float:
        return statistics.median(turn.spark_cpu_s for turn in self.turns)

    @property
    def broker_cpu_s(self) -> float:
        return statistics.median(turn.broker_cpu_s for turn in self.turns)

    @property
    def is_broker_cpu_known(self) -> bool:
        return spread([turn.broker_cpu_s for turn in self.turns]) <= SPREAD_MAX


@dataclass(frozen=True, slots=True)
class Judgement:
    """An expectation and how it turned out."""

    what: str
    measured: str
    expected: str
    verdict: str


def spread(figures: Sequence[float]) -> float:
    """How far apart the figures are, as a share of their median; without end where there are too few to tell."""
    if len(figures) < TURNS_MIN:
        return float("inf")
    median = statistics.median(figures)
    return (max(figures) - min(figures)) / median if median else 0.0


def in_turns(
    sides: Mapping[str, Callable[[], _Turn]], *, rounds: int, warm_ups: int = 1
) -> dict[str, tuple[_Turn, ...]]:
    """Each side a few times to warm up, and then A B A B ...; a turn that neighbours disturbed is taken again."""
    neighbours = Neighbours.of_run(rounds)
    for _ in range(warm_ups):
        for take in sides.values():
            take()
    taken: dict[str, list[_Turn]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, take in sides.items():
            taken[side].append(neighbours.undisturbed(take))
    return {side: tuple(turns) for side, turns in taken.items()}


def measured(
    what: str, unit: Unit, sides: Mapping[str, Callable[[], Turn]], *, rounds: int, warm_ups: int = 1
) -> list[Row]:
    """The row of each side. Where one is not known, all are measured again: a neighbour may have been busy."""

    def take() -> list[Row]:
        taken = in_turns(sides, rounds=rounds, warm_ups=warm_ups)
        return [Row(what, side, unit, turns) for side, turns in taken.items()]

    return until_known(take, lambda rows: all(row.is_known for row in rows), rounds=rounds)


def until_known(take: Callable[[], list[Row]], are_known: Callable[[list[Row]], bool], *, rounds: int) -> list[Row]:
    """Rows that are taken again, all of them, where they are not known; not without end."""
    for _ in range(ATTEMPTS_MAX):
        rows = take()
        if rounds < TURNS_MIN or are_known(rows):
            break
    return rows


def quicker(ours: Row, peer: Row, *, times_min: float) -> Judgement:
    """We should be so many times as quick as the peer."""
    times = ours.median / peer.median if ours.unit == "records/s" else peer.median / ours.median
    return Judgement(
        f"{ours.what}: {ours.side} against {peer.side}",
        f"{times:.2f} times as quick",
        f"at least {times_min:g}",
        _verdict(times >= times_min, is_known=ours.is_known and peer.is_known),
    )


def cheaper(ours: Row, peer: Row, *, share_max: float) -> Judgement:
    """We should make the broker compute at most this share of what the peer makes it compute."""
    share = ours.broker_cpu_s / peer.broker_cpu_s if peer.broker_cpu_s else float("inf")
    return Judgement(
        f"{ours.what}, the broker's CPU: {ours.side} against {peer.side}",
        f"{share:.2f} of it",
        f"at most {share_max:.2f}",
        _verdict(share <= share_max, is_known=ours.is_broker_cpu_known and peer.is_broker_cpu_known),
    )


def within(ours: Row, *, limit_ms: float) -> Judgement:
    """We should stay below a time: in every turn, so that it is known however far the turns are apart."""
    slowest = max(turn.figure for turn in ours.turns)
    is_met = slowest < limit_ms
    return Judgement(
        f"{ours.what}: {ours.side}",
        f"{ours.median:.0f} ms, at most {slowest:.0f} ms",
        f"below {limit_ms:.0f} ms",
        _verdict(is_met, is_known=len(ours.turns) >= TURNS_MIN and (is_met or ours.is_known)),
    )


def _verdict(is_met: bool, *, is_known: bool) -> str:
    if not is_known:
        return NOT_KNOWN
    return "met" if is_met else "NOT MET"
