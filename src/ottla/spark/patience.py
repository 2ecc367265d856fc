"""How long a stream may wait: for news while all is well, and for brokers that do not answer.

Judges by the clock that is handed in and by what Spark did last. Asks nobody and waits for nothing itself.
"""

from __future__ import annotations

import logging

from ottla.clock import Clock
from ottla.errors import OttlaError

LONG_POLL_MS = 500
"""How long a stream without news is held: Spark would ask some ninety times a second."""
SHORT_POLL_MS = 50
"""The same where others are to have their turn in between."""
TURN_MS = 40
"""Spark comes back after some 10 ms. If it takes longer, another source of the query is being asked meanwhile."""
OUTAGE_LOG_MS = 30_000

_logger = logging.getLogger(__name__)


class Patience:
    """How long to wait for news, judged by what Spark did since the last answer.

    A query asks its sources in turn, so one that waits for long holds up the others. It therefore waits only when
    Spark came straight back, and not at all after a batch ran although this source had nothing for it.
    """

    def __init__(self, ticks: Clock) -> None:
        self._ticks = ticks
        self._idle_since_ms: int | None = None
        """When it was last said that there is nothing new; None: something was, or a batch ran since."""
        self._others_are_busy = False

    def wait_ms(self) -> int:
        """How long the question that has just come may be held."""
        if self._idle_since_ms is None:
            return 0 if self._others_are_busy else LONG_POLL_MS
        self._others_are_busy = False
        return SHORT_POLL_MS if self._ticks.now_ms() - self._idle_since_ms > TURN_MS else LONG_POLL_MS

    def answered(self, *, has_news: bool) -> None:
        self._idle_since_ms = None if has_news else self._ticks.now_ms()

    def batch_ran(self) -> None:
        """Spark has started a batch: ours, or one for which we had nothing."""
        self._others_are_busy = self._idle_since_ms is not None
        self._idle_since_ms = None


class Outage:
    """Notes when brokers stop and begin to answer, and says so without filling the log."""

    def __init__(self, ticks: Clock) -> None:
        self._ticks = ticks
        self._since_ms: int | None = None
        self._told_ms = 0

    @property
    def lasts(self) -> bool:
        return self._since_ms is not None

    def noted(self, error: OttlaError) -> None:
        now_ms = self._ticks.now_ms()
        if self._since_ms is None or now_ms - self._told_ms >= OUTAGE_LOG_MS:
            self._told_ms = now_ms
            _logger.warning("brokers do not answer as they should, the stream waits for them: %s", error)
        self._since_ms = now_ms if self._since_ms is None else self._since_ms

    def over(self) -> None:
        if self._since_ms is not None:
            _logger.warning("brokers answer again, after %d ms", self._ticks.now_ms() - self._since_ms)
            self._since_ms = None
