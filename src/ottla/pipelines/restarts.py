"""When a query that failed is started again, and when it is given up. Pure: knows no clock and no Spark."""

from __future__ import annotations

from dataclasses import dataclass

DELAY_FIRST_MS = 1_000
DELAY_MAX_MS = 60_000
RESTARTS_MAX = 5


@dataclass(slots=True)
class Restarts:
    """The failures of one query.

    Only those count that follow each other without a batch in between: a query that gets on is not given up, however
    often it stumbles.
    """

    in_a_row_max: int = RESTARTS_MAX
    in_a_row: int = 0
    total: int = 0

    def after_failure(self) -> int | None:
        """How long to wait before the query is started again, in ms; None: not any more."""
        if self.in_a_row >= self.in_a_row_max:
            return None
        delay_ms = min(DELAY_MAX_MS, DELAY_FIRST_MS << min(self.in_a_row, 16))
        self.in_a_row += 1
        self.total += 1
        return delay_ms

    def batch_done(self) -> None:
        """The query got on."""
        self.in_a_row = 0
