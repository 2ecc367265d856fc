"""When committed offsets go by themselves.

As in Kafka: the offsets of a group without members go `offsets.retention.minutes` after the last one left, those of
a group that never had members so long after their commit. A group with members keeps the offsets of what it reads;
those of topics that it no longer reads go so long after their commit. An offset with a retention of its own (commits
of versions 2 to 4) goes by that. The offsets of a deleted topic go at once. A group that has neither members nor
offsets left goes too. All of it is done in pieces, so that nobody else is held up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from ottla.coordinators.groups.groups import Group, Groups
from ottla.coordinators.groups.offsets import Committed, Offsets
from ottla.coordinators.groups.records import NEVER, OffsetCommitValue
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.coordinators.outcome import Outcome, TimerKey
from ottla.protocol.schema import NO_UUID

TOMBSTONES_MAX = 1_000
"""How many offsets go in one piece: some milliseconds' work."""
NEXT_PIECE_MS = 1
EXPIRE: TimerKey = ("offsets", "expire")
SWEEP: TimerKey = ("offsets", "sweep")
STABLE = "Stable"

_logger = logging.getLogger(__name__)


class OffsetExpiry:
    """Looks at all offsets of a shard from time to time."""

    def __init__(
        self, offsets: Offsets, groups: Groups, settings: GroupSettings, topics: Callable[[], TopicsView]
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._settings = settings
        self._topics = topics

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        """Begin to look; topics may have been deleted while nobody did."""
        outcome.set_timer(EXPIRE, at_ms=now_ms + self._settings.offsets_check_interval_ms)
        self.topics_deleted(outcome, now_ms)

    def topics_deleted(self, outcome: Outcome, now_ms: int) -> None:
        """Let the offsets of topics that are gone follow them."""
        outcome.set_timer(SWEEP, at_ms=now_ms + NEXT_PIECE_MS)

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        if key == SWEEP:
            if self._delete(self._of_deleted_topics(), outcome):
                outcome.set_timer(SWEEP, at_ms=now_ms + NEXT_PIECE_MS)
        else:
            is_more = self._delete(self._expired(now_ms), outcome)
            if not is_more:
                self._delete_groups(outcome)
            delay_ms = NEXT_PIECE_MS if is_more else self._settings.offsets_check_interval_ms
            outcome.set_timer(EXPIRE, at_ms=now_ms + delay_ms)

    def clamp(self, ends: Mapping[tuple[str, int], int], outcome: Outcome) -> None:
        """Take offsets back that lie beyond the end of a partition which has lost its tail.

        Records will be given these offsets anew, and a consumer that goes on from there would never see them.
        """
        beyond = [
            committed
            for committed in self._offsets
            if committed.value.offset > ends.get((committed.topic, committed.partition), committed.value.offset)
        ]
        for committed in beyond:
            end = ends[committed.topic, committed.partition]
            value = committed.value
            _logger.warning(
                "group %r had read %s-%d up to %d, but the partition ends at %d since the crash: it goes on from there",
                committed.group_id,
                committed.topic,
                committed.partition,
                value.offset,
                end,
            )
            clamped = OffsetCommitValue(
                offset=end,
                metadata=value.metadata,
                commit_timestamp=value.commit_timestamp,
                expire_timestamp=value.expire_timestamp,
                topic_id=value.topic_id,
            )
            outcome.write(committed.key, clamped)

    def _delete(self, goners: Iterable[Committed], outcome: Outcome) -> bool:
        """Write tombstones, so many at once; whether there may be more."""
        found = list(islice(goners, TOMBSTONES_MAX))
        for committed in found:
            outcome.write(committed.key, None)
        return len(found) == TOMBSTONES_MAX

    def _of_deleted_topics(self) -> Iterable[Committed]:
        topics = self._topics()
        for committed in self._offsets:
            topic_id = topics.topic_id(committed.topic)
            if topic_id is None or committed.value.topic_id not in (topic_id, NO_UUID):
                yield committed

    def _expired(self, now_ms: int) -> Iterable[Committed]:
        retention_ms = self._settings.offsets_retention_ms
        for group_id in self._offsets.group_ids():
            group = self._groups.get(group_id)
            kept = _kept_topics(group)
            if kept is None:
                continue
            empty_since_ms = (group.empty_since_ms if group is not None and group.is_empty else None) or 0
            for topic, partitions in self._offsets.of_group(group_id).items():
                if topic in kept:
                    continue
                for partition, value in partitions.items():
                    due_ms = max(value.commit_timestamp, empty_since_ms) + retention_ms
                    if value.expire_timestamp != NEVER:
                        due_ms = value.expire_timestamp
                    if now_ms >= due_ms:
                        yield Committed(group_id, topic, partition, value)

    def _delete_groups(self, outcome: Outcome) -> None:
        for group in self._groups:
            if group.is_empty and not self._offsets.has_group(group.group_id):
                group.delete(outcome)


def _kept_topics(group: Group | None) -> frozenset[str] | None:
    """The topics whose offsets stay because the group reads them; None to keep all."""
    if group is None or group.is_empty:
        return frozenset()
    # In the middle of a rebalance nobody knows what will be read.
    return group.subscribed_topics() if group.state_name == STABLE else None
