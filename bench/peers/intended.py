"""When each record is due at a fixed rate, and how long those that are due have waited; pure.

A wait counts from when the record was due, whether its producer came to send it then or not: a broker that stalls is
not spared the records that its stall held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Record 0 is due at the start, and one more each `1 / rate` seconds."""

    start_ns: int
    rate: float

    def due(self, now_ns: int) -> int:
        """How many records should have been sent by now."""
        if now_ns < self.start_ns:
            return 0
        return int((now_ns - self.start_ns) * self.rate / 1_000_000_000) + 1

    def due_ns(self, number: int) -> int:
        """When this record should be sent."""
        return self.start_ns + int(number * 1_000_000_000 / self.rate)


def percentile(waits: Sequence[float], share: float) -> float:
    """The smallest wait that so large a share of all did not exceed. `waits` are sorted."""
    return waits[max(ceil(len(waits) * share) - 1, 0)]


def percentiles(waits: Sequence[float]) -> dict[str, float]:
    """Those that the page shows, by name."""
    ordered = sorted(waits)
    return {name: percentile(ordered, share) for name, share in PERCENTILES.items()}


def typical(pieces: Sequence[Sequence[float]]) -> dict[str, float]:
    """Of each percentile the median over the pieces of a phase in which there were waits.

    What the machine's host does to one of them is not in it, and neither is what a broker does in one of them only.
    """
    each = [percentiles(waits) for waits in pieces if waits]
    return {name: median(piece[name] for piece in each) for name in PERCENTILES} if each else {}
