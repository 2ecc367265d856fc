"""When a broker counts as warm."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.peers.phases import PIECES_MAX, STILL_COUNT, Done, warmed


def worker(rates: Iterable[float], asked: list[float]) -> Callable[[float], Done]:
    """Somebody who works at these rates, piece by piece."""
    left = iter(rates)

    def work(seconds: float) -> Done:
        asked.append(seconds)
        return Done(records=round(next(left) * seconds), size_bytes=1, wall_s=seconds, figures={"transactions": 2.0})

    return work


def test_a_warm_up_goes_on_while_the_work_gets_faster() -> None:
    asked: list[float] = []

    done = warmed(worker([100, 200, 190, 300, 300, 310, 900], asked), first_s=5.0, more_s=1.0)

    assert asked == [5.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert done.records == 500 + 200 + 190 + 300 + 300 + 310
    assert (done.size_bytes, done.wall_s, done.figures) == (6, 10.0, {"transactions": 12.0})


def test_work_that_is_fast_from_the_start_is_warm_soon() -> None:
    asked: list[float] = []

    warmed(worker([100] * 10, asked), first_s=5.0, more_s=1.0)

    assert len(asked) == 1 + STILL_COUNT


def test_a_warm_up_ends_in_any_case() -> None:
    asked: list[float] = []

    warmed(worker((2.0**power * 100 for power in range(100)), asked), first_s=1.0, more_s=1.0)

    assert len(asked) == 1 + PIECES_MAX
