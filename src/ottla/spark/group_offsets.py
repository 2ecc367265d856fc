"""A stream's position, stored as that of a consumer group, so that its lag shows in every tool.

Spark's checkpoint is what counts; this is for people who watch. So a refusal (a group of that name has members) or a
broker that is away never fails the query: it is said once, and the next position is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.client.cluster import Cluster
from ottla.client.commits import NOBODY, store_offsets
from ottla.client.coordinator import Coordinator
from ottla.client.transport import run_now
from ottla.client.values import Committed, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, Refusal
from ottla.spark.offsets import Offsets

STORE_MS = 2_000
"""How long a batch may be held up by it."""
STORE_PATIENTLY_MS = 15_000
"""The same for the first position, which a broker may have to make room for, and for the last one of a run."""
AGAIN_AFTER_MS = 10_000
"""How soon after a failure it is tried again."""
REPEAT_MS = 3_600_000
"""Brokers forget groups that do not commit for days, however little there was to commit."""

HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH})
"""What a group with members says to a commit from outside."""

_logger = logging.getLogger(__name__)


class GroupOffsets:
    """The positions of one group."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._coordinator = Coordinator(cluster, group)
        self._stored: Offsets = {}
        self._stored_ms = 0
        self._failed_ms: int | None = None
        self._has_complained = False

    def store(self, offsets: Mapping[TopicPartition, int], *, is_last: bool = False) -> None:
        """Everything before these offsets has been processed; with `is_last` there will be no others for a while."""
        now_ms = self._cluster.ticks.now_ms()
        if not is_last and self._failed_ms is not None and now_ms - self._failed_ms < AGAIN_AFTER_MS:
            return
        is_old = now_ms - self._stored_ms >= REPEAT_MS
        # A position that goes back is that of a topic made anew.
        changed = {key: offset for key, offset in offsets.items() if is_old or self._stored.get(key) != offset}
        if not changed:
            return
        try:
            is_first = not self._stored and self._failed_ms is None
            run_now(self._store(changed, STORE_PATIENTLY_MS if is_first or is_last else STORE_MS))
        except OttlaError as e:
            self._failed_ms = self._cluster.ticks.now_ms()
            self._complain(e)
            return
        self._stored.update(changed)
        self._stored_ms, self._failed_ms = now_ms, None

    async def _store(self, offsets: Offsets, within_ms: int) -> None:
        committed = {key: Committed(offset) for key, offset in offsets.items()}
        await self._coordinator.insist(
            lambda: store_offsets(self._coordinator, committed, NOBODY, ids={}),
            deadline_ms=self._cluster.ticks.now_ms() + within_ms,
        )

    def _complain(self, error: OttlaError) -> None:
        if self._has_complained:
            _logger.debug("group %r: %s", self._coordinator.group, error)
            return
        self._has_complained = True
        has_members = isinstance(error, Refusal) and error.code in HAS_MEMBERS
        _logger.warning(
            "the position of the stream could not be stored for group %r, so tools may not show its lag; the query "
            "goes on all the same: %s%s",
            self._coordinator.group,
            error,
            ". The group has members: give kafka.group.id a name that no consumer uses" if has_members else "",
        )
