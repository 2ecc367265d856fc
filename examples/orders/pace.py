"""Whether the pipeline keeps up: what came in and what was dealt with while orders were sent. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Moment(NamedTuple):
    """How things stood."""

    seconds: float
    sent: int
    """Orders that were acknowledged."""
    done: int
    """Of them, those that every query has dealt with."""


class Pace(NamedTuple):
    """What was sustained over some time."""

    seconds: float
    sent_per_second: float
    done_per_second: float
    waiting_first: int
    waiting_last: int

    def __str__(self) -> str:
        return (
            f"over the last {self.seconds:.0f} s of sending: {self.sent_per_second:,.0f} orders/s sent, "
            f"{self.done_per_second:,.0f}/s dealt with by every query; waiting {self.waiting_first:,} at first, "
            f"{self.waiting_last:,} at last"
        )


def second_half(moments: Sequence[Moment]) -> Pace | None:
    """The pace in the second half of the time, when the start is forgotten; None: there is too little to tell.

    It begins and ends where a batch has just been finished: in between, what is done stands still, and a batch more or
    less at either end would be counted for nothing.
    """
    if not moments:
        return None
    middle = (moments[0].seconds + moments[-1].seconds) / 2
    finished = [later for earlier, later in pairwise(moments) if later.done > earlier.done and later.seconds >= middle]
    if len(finished) < 2:
        return None
    first, last = finished[0], finished[-1]
    took = last.seconds - first.seconds
    return Pace(
        seconds=took,
        sent_per_second=(last.sent - first.sent) / took,
        done_per_second=(last.done - first.done) / took,
        waiting_first=first.sent - first.done,
        waiting_last=last.sent - last.done,
    )
