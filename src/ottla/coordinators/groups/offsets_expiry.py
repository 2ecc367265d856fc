"""When committed offsets go by themselves.

As in Kafka: the offsets of a group without members go `offsets.retention.minutes` after the last one left, those of
a group that never had members so long after their commit. A group with members keeps the offsets of what it reads;
those of topics that it no longer reads go so long after their commit. An offset with a retention of its own (commits
of versions 2 to 4) goes by that. An offset stays while a transaction that has not ended holds another one of its
partition. The offsets of a deleted topic go at once, pending ones too. A group that has neither members nor offsets
left goes too. All of it is done in pieces, each of which looks at so many offsets or groups and no more, so that nobody
else is held up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from ottla.coordinators.groups.groups import Group, Groups
from ottla.coordinators.groups.offsets import Committed, Offsets, text_bytes
from ottla.coordinators.groups.offsets_pending import Pending, PendingOffsets
from ottla.coordinators.groups.records import NEVER
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.coordinators.outcome import Outcome, TimerKey
from ottla.protocol.schema import NO_UUID

PIECE_ENTRIES = 1_000
"""How many offsets or groups are looked at in one piece: some milliseconds' work, also if all of them go."""
PIECE_BYTES = 1 << 20
"""What the tombstones of one piece may come to, about: a group's name may have thousands of letters."""
NEXT_PIECE_MS = 1
EXPIRE: TimerKey = ("offsets", "expire")
SWEEP: TimerKey = ("offsets", "sweep")
STABLE = "Stable"

_NOTHING: frozenset[str] | None = frozenset()
_logger = logging.getLogger(__name__)


class OffsetExpiry:
    """Looks at all offsets of a shard from time to time."""

    def __init__(
        self,
        offsets: Offsets,
        pending: PendingOffsets,
        groups: Groups,
        settings: GroupSettings,
        topics: Callable[[], TopicsView],
    ) -> None:
        self._offsets = offsets
        self._pending = pending
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._expiring: Iterator[list[Committed]] | None = None
        self._leaving: Iterator[Group] | None = None
        """How far a look at all offsets, and then at all groups, has come; None between two looks."""
        self._look_began_ms = 0
        self._sweeping: Iterator[Sequence[Committed | Pending]] | None = None
        self._is_sweep_wanted = False
        """Whether topics went while a sweep was under way: it has passed some of their offsets."""

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        """Begin to look; topics may have been deleted while nobody did."""
        outcome.set_timer(EXPIRE, at_ms=now_ms + self._settings.offsets_check_interval_ms)
        self.topics_deleted(outcome, now_ms)

    def topics_deleted(self, outcome: Outcome, now_ms: int) -> None:
        """Let the offsets of topics that are gone follow them."""
        self._is_sweep_wanted = True
        if self._sweeping is None:
            outcome.set_timer(SWEEP, at_ms=now_ms + NEXT_PIECE_MS)

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        if key == SWEEP:
            if self._sweep_piece(outcome):
                outcome.set_timer(SWEEP, at_ms=now_ms + NEXT_PIECE_MS)
        else:
            is_more = self._expire_piece(outcome, now_ms)
            next_look_ms = 0 if is_more else self._look_began_ms + self._settings.offsets_check_interval_ms
            outcome.set_timer(EXPIRE, at_ms=max(next_look_ms, now_ms + NEXT_PIECE_MS))

    def _walk(self) -> Iterator[list[Committed]]:
        return self._offsets.walk(entries_max=PIECE_ENTRIES, bytes_max=PIECE_BYTES)

    def _sweep_piece(self, outcome: Outcome) -> bool:
        """Delete the offsets of deleted topics among the next ones; whether there are more to look at."""
        if self._sweeping is None:
            self._is_sweep_wanted = False
            pending = self._pending.walk(entries_max=PIECE_ENTRIES, bytes_max=PIECE_BYTES)
            self._sweeping = chain(self._walk(), pending)
        topics = self._topics()
        piece = next(self._sweeping, None)
        if piece is None:
            self._sweeping = None
            return self._is_sweep_wanted
        for each in piece:
            topic_id = topics.topic_id(each.topic)
            if topic_id is None or each.topic_id not in (topic_id, NO_UUID):
                outcome.write(each.key, None)
        return True

    def _expire_piece(self, outcome: Outcome, now_ms: int) -> bool:
        """Delete what has outlived its time among the next offsets, or groups; whether there are more to look at."""
        if self._leaving is None:
            if self._expiring is None:
                self._expiring = self._walk()
                self._look_began_ms = now_ms
            piece = next(self._expiring, None)
            if piece is not None:
                self._expire(piece, outcome, now_ms)
                return True
            self._expiring = None
            self._leaving = iter(self._groups)
        if self._delete_groups(self._leaving, outcome):
            return True
        self._leaving = None
        return False

    def _expire(self, piece: list[Committed], outcome: Outcome, now_ms: int) -> None:
        retention_ms = self._settings.offsets_retention_ms
        group_id, kept, empty_since_ms = None, _NOTHING, 0
        for committed in piece:
            if committed.group_id != group_id:
                group_id = committed.group_id
                group = self._groups.get(group_id)
                kept = _kept_topics(group)
                empty_since_ms = (group.empty_since_ms if group is not None and group.is_empty else None) or 0
            if kept is None or committed.topic in kept:
                continue
            value = committed.value
            due_ms = max(value.commit_timestamp, empty_since_ms) + retention_ms
            if value.expire_timestamp != NEVER:
                due_ms = value.expire_timestamp
            if now_ms >= due_ms and not self._pending.is_any_at(group_id, committed.topic, committed.partition):
                outcome.write(committed.key, None)

    def _delete_groups(self, groups: Iterator[Group], outcome: Outcome) -> bool:
        """Delete those of the next groups that nobody is in and that have no offsets; whether there may be more."""
        piece_bytes = 0
        for _ in range(PIECE_ENTRIES):
            group = next(groups, None)
            if group is None:
                return False
            # It was there when the look began; meanwhile it may have gone, or be another one.
            is_there = self._groups.get(group.group_id) is group
            has_offsets = self._offsets.has_group(group.group_id) or self._pending.has_group(group.group_id)
            if is_there and group.is_empty and not has_offsets:
                written = len(outcome.records)
                group.delete(outcome)
                piece_bytes += text_bytes(group.group_id) * (len(outcome.records) - written)
                if piece_bytes >= PIECE_BYTES or len(outcome.records) >= PIECE_ENTRIES:
                    break
        return True


def _kept_topics(group: Group | None) -> frozenset[str] | None:
    """The topics whose offsets stay because the group reads them; None to keep all."""
    if group is None or group.is_empty:
        return frozenset()
    # In the middle of a rebalance nobody knows what will be read.
    return group.subscribed_topics() if group.state_name == STABLE else None
