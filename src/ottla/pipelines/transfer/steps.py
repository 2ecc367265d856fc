"""What a transfer does at a time: offsets of all partitions at once, so that every core has something to do.

Pure. The same spans are cut in the same way each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec


class Span(msgspec.Struct, frozen=True, order=True):
    """Offsets of one partition, half-open. Not every one of them needs to have a record."""

    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def between(starts: Mapping[int, int], ends: Mapping[int, int]) -> tuple[Span, ...]:
    """The spans from each start to the end of the same partition; those with nothing in them are left out."""
    return tuple(
        Span(partition, starts[partition], end)
        for partition, end in sorted(ends.items())
        if partition in starts and starts[partition] < end
    )


def clipped(spans: Iterable[Span], starts: Mapping[int, int]) -> tuple[Span, ...]:
    """What is left of spans where partitions begin later by now; a partition of which nothing is known stays whole."""
    later = (Span(span.partition, max(span.start, starts.get(span.partition, 0)), span.end) for span in spans)
    return tuple(span for span in later if span.size > 0)


def total(spans: Iterable[Span]) -> int:
    """Offsets in all spans together."""
    return sum(span.size for span in spans)


def cut(spans: Sequence[Span], *, records_max: int) -> tuple[tuple[Span, ...], ...]:
    """Steps of about so many offsets each; every partition gives the same part of what it has to each of them."""
    if records_max < 1:
        raise ValueError(f"{records_max} records in a step; one is the least")
    count = -(-total(spans) // records_max)
    made = (
        tuple(
            Span(
                span.partition, span.start + span.size * number // count, span.start + span.size * (number + 1) // count
            )
            for span in spans
        )
        for number in range(count)
    )
    return tuple(tuple(span for span in step if span.size) for step in made)
