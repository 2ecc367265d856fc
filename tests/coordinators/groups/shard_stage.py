"""A shard of the group coordinator, moved by hand: topics as a dict, time that stands still, no disk.

Only what records and timers do; that replies wait for the disk is the runtime's business and tested there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ottla.coordinators.groups import records
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.shard import GroupShard
from ottla.coordinators.outcome import CoordinatorRecord, Outcome, Ticket, TimerKey
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.storage.workbench import NOW_MS

MINUTE_MS = 60_000
GROUP = "group"


@dataclass
class Topics:
    """What exists: partition counts by name; an id is made of the name and of how often it was made anew."""

    counts: dict[str, int]
    lives: dict[str, int] = field(default_factory=dict)

    def names(self) -> Iterable[str]:
        return self.counts

    def topic_id(self, name: str) -> bytes | None:
        if name not in self.counts:
            return None
        return f"{name}:{self.lives.get(name, 0)}".encode().ljust(16, b"\x01")[:16]

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name in self.counts if self.topic_id(name) == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def make_again(self, name: str) -> None:
        self.lives[name] = self.lives.get(name, 0) + 1


class ShardStage:
    """One shard over its lives."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        self.topics = Topics(topics or {"a": 2, "b": 1})
        self.now_ms = NOW_MS
        self.records: list[CoordinatorRecord] = []
        self._tickets = iter(range(1, 2**31))
        self._members = iter(range(1, 2**31))
        self.start()

    def start(self, *, is_first_life: bool = True) -> None:
        """Begin a life: what was recorded is read back through its bytes."""
        self.timers: dict[TimerKey, int] = {}
        self.shard = GroupShard(
            self.settings,
            lambda: self.topics,
            lambda prefix: f"{prefix}-{next(self._members)}",
            is_first_life=is_first_life,
        )
        for record in self.records:
            value = None if record.value is None else records.encode_value(record.value)
            decoded = records.decode(records.encode_key(record.key), value)
            assert decoded is not None
            self.shard.replay(decoded.key, decoded.value)
        self.do(lambda shard, ticket, outcome, now_ms: shard.loaded(outcome, now_ms))

    def do(self, decide: Callable[[GroupShard, Ticket, Outcome, int], None]) -> Any:
        """Let the shard decide; gives the reply, if there is one."""
        ticket = next(self._tickets)
        outcome = Outcome(self.shard.replay)
        decide(self.shard, ticket, outcome, self.now_ms)
        self.records += outcome.records
        for key, at_ms in outcome.timers.items():
            if at_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = at_ms
        return next((response for owner, response in outcome.replies if owner == ticket), None)

    def advance(self, by_ms: int) -> None:
        """Let time pass, and timers come at their times."""
        end_ms = self.now_ms + by_ms
        while self.timers and min(self.timers.values()) <= end_ms:
            key, at_ms = min(self.timers.items(), key=lambda item: item[1])
            del self.timers[key]
            self.now_ms = max(self.now_ms, at_ms)
            self.do(lambda shard, ticket, outcome, now_ms, key=key: shard.on_timer(key, outcome, now_ms))  # type: ignore[misc]
        self.now_ms = end_ms

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group: str = GROUP,
        member_id: str = "",
        generation: int = -1,
        retention_ms: int = -1,
        version: int = 9,
    ) -> Any:
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        return self.do(lambda shard, ticket, outcome, now_ms: shard.commit(request, version, ticket, outcome, now_ms))

    @property
    def offsets(self) -> dict[tuple[str, str, int], int]:
        return {(each.group_id, each.topic, each.partition): each.value.offset for each in self.shard.offsets}
