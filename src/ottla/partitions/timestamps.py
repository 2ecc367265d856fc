"""How far a record's timestamp may be from the broker's clock; decides only."""

from __future__ import annotations

from ottla.errors import InvalidTimestamp
from ottla.metadata.configs import TopicConfig
from ottla.records.batch import BatchHeader

AHEAD_MS_MAX = 2**62
"""A limit beyond this is none; up to here it and the time still add up to a number of 64 bits."""


class TimestampLimits:
    """What a topic's settings say of it."""

    __slots__ = ("after_max_ms", "before_max_ms")

    def __init__(self, config: TopicConfig) -> None:
        self.before_max_ms = config.timestamp_before_max_ms
        self.after_max_ms = min(config.timestamp_after_max_ms, AHEAD_MS_MAX)

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Refuse a batch whose greatest timestamp is beyond them."""
        newest_ms = header.max_timestamp
        if newest_ms - now_ms > self.after_max_ms:
            raise InvalidTimestamp(
                f"timestamp {newest_ms} is more than message.timestamp.after.max.ms "
                f"({self.after_max_ms}) ahead of the broker's clock ({now_ms})"
            )
        if newest_ms >= 0 and now_ms - newest_ms > self.before_max_ms:
            raise InvalidTimestamp(
                f"timestamp {newest_ms} is more than message.timestamp.before.max.ms "
                f"({self.before_max_ms}) behind the broker's clock ({now_ms})"
            )
