"""What is wrong with what a pipeline has written, held against what was acknowledged to the producer.

Each function takes plain values and says in words what is wrong; nothing, where nothing is. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TypeVar

from tests.pipelines.crashes.orders import Acknowledged, Spot, Window

SHOWN_MAX = 10

K = TypeVar("K")
V = TypeVar("V")


def once_each(what: str, found: Iterable[int], expected: Iterable[int]) -> list[str]:
    """Every record that belongs there is there, once, and no other."""
    counts, wanted = Counter(found), set(expected)
    problems = {
        "missing": sorted(wanted - counts.keys()),
        "there and not expected": sorted(counts.keys() - wanted),
        "there more than once": sorted(number for number, count in counts.items() if count > 1),
    }
    return [
        f"{what}: {len(numbers)} {problem}, such as {numbers[:SHOWN_MAX]}"
        for problem, numbers in problems.items()
        if numbers
    ]


def in_place(what: str, found: Iterable[tuple[int, Spot]], acknowledged: Acknowledged) -> list[str]:
    """Each row says of itself that it comes from the place that the broker gave to its record."""
    wrong = [f"{number} from {spot}" for number, spot in found if acknowledged.get(number) != spot]
    return [f"{what}: from another place than acknowledged: {wrong[:SHOWN_MAX]}"] if wrong else []


def in_order(what: str, found: Iterable[tuple[int, Spot]]) -> list[str]:
    """In each partition of the target, given in its order, the records of each partition of the source are too.

    `found` are pairs of the target's partition and the place in the source, in the order of the target's offsets.
    """
    last: dict[tuple[int, int], int] = {}
    wrong = []
    for target, spot in found:
        way = (target, spot.partition)
        if spot.offset <= last.get(way, -1):
            wrong.append(f"{spot} after offset {last[way]} in partition {target}")
        last[way] = spot.offset
    return [f"{what}: out of order: {wrong[:SHOWN_MAX]}"] if wrong else []


def dense(what: str, found: Iterable[Spot], acknowledged: Acknowledged) -> list[str]:
    """The places that were written are all offsets of each partition, from the first to the last acknowledged one."""
    ends = {
        partition: max(spot.offset for spot in spots) + 1
        for partition, spots in groupby(sorted(acknowledged.values()), key=lambda spot: spot.partition)
    }
    wanted = Counter(Spot(partition, offset) for partition, end in ends.items() for offset in range(end))
    counts = Counter(found)
    problems = {"missing": wanted - counts, "too many": counts - wanted}
    return [
        f"{what}: {spots.total()} {problem}, such as {sorted(spots)[:SHOWN_MAX]}"
        for problem, spots in problems.items()
        if spots
    ]


def growing(what: str, found: Iterable[tuple[str, Window]], expected: Mapping[str, Window]) -> list[str]:
    """Updates of windows, in their order: each has more than the one before, and the last ones are as expected."""
    last: dict[str, Window] = {}
    wrong = []
    for minute, window in found:
        before = last.get(minute)
        # Every order adds to both, so an update that was written twice shows, also if a right one follows.
        if before is not None and (window.orders <= before.orders or window.amount <= before.amount):
            wrong.append(f"{minute}: {window} after {before}")
        last[minute] = window
    said = [f"{what}: not more than before: {wrong[:SHOWN_MAX]}"] if wrong else []
    return said + same(what, last, expected)


def same(what: str, found: Mapping[K, V], expected: Mapping[K, V]) -> list[str]:
    """Two tables are equal."""
    wrong = [
        f"{key}: {found.get(key)}, expected {expected.get(key)}"
        for key in sorted({*found, *expected}, key=str)
        if found.get(key) != expected.get(key)
    ]
    return [f"{what}: {len(wrong)} are not as they should be: {wrong[:SHOWN_MAX]}"] if wrong else []
