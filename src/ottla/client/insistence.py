"""What an admin does about failures that may pass: it tries again, for one request's time."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

from ottla.client.cluster import UNANSWERED, Cluster
from ottla.client.errors import TopicNotFound
from ottla.errors import OttlaError


class Insisting:
    """Somebody who asks brokers, and asks again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = cluster.settings.request_timeout_ms

    def _deadline_ms(self) -> int:
        return self._cluster.ticks.now_ms() + self._timeout_ms

    async def _insist(self, attempt: Callable[[], Awaitable[object]]) -> None:
        """Try until it works, fails for good, or one request's time is over."""
        deadline_ms = self._deadline_ms()
        for tries in itertools.count(1):
            try:
                await attempt()
                return
            except OttlaError as e:
                # A topic that is not there is an answer, although a later one may differ. A request whose
                # answer was lost may have been carried out, and would then be refused the second time.
                delay_ms = self._cluster.settings.backoff_ms(tries)
                is_over = self._cluster.ticks.now_ms() + delay_ms >= deadline_ms
                if is_over or not self._cluster.may_pass(e) or isinstance(e, (TopicNotFound, *UNANSWERED)):
                    raise
            if tries == 1:
                await self._look_for_controller()
            await self._cluster.transport.sleep(delay_ms)

    async def _look_for_controller(self) -> None:
        try:
            await self._cluster.refresh(())
        except OttlaError as e:
            if not self._cluster.may_pass(e):
                raise
