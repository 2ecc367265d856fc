"""The settings of one partition's log, with Kafka's defaults.

Names and units follow Kafka's topic configs (`segment.bytes` is `segment_bytes`). Where a value
comes from, and whether a user may set it, is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions in an index are 32 bits, signed for Kafka's tools."""

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a topic may choose about its logs."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = UNLIMITED
    delete: bool = True
    """cleanup.policy holds `delete`."""
    compact: bool = False
    """cleanup.policy holds `compact`."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 24 * 3600 * 1000
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(f"segment.bytes must be between 1 and {SEGMENT_BYTES_MAX}, not {self.segment_bytes}")
        if self.segment_ms < 1 or not 0 <= self.segment_jitter_ms <= self.segment_ms:
            raise ValueError("segment.ms must be at least 1, and segment.jitter.ms between 0 and segment.ms")
        if self.index_interval_bytes < 0 or self.segment_index_bytes < 12:
            raise ValueError("index.interval.bytes must not be negative; segment.index.bytes must hold one entry (12)")
        if not 0 <= self.min_cleanable_dirty_ratio <= 1:
            raise ValueError("min.cleanable.dirty.ratio must be between 0 and 1")
