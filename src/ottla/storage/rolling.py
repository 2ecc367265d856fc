"""When a log begins a new segment: by size, by time, or because an index has no room left."""

from __future__ import annotations

from fastcrc.crc32 import iscsi as crc32c

from ottla.clock import Clock
from ottla.records.batch import LOG_OVERHEAD, OFFSET_DELTA_MAX, BatchHeader
from ottla.storage.ends import LOOK_FIRST, LOOK_FROM_MS_MAX
from ottla.storage.log_config import LogConfig
from ottla.storage.offset_index import ENTRY_BYTES
from ottla.storage.segment import Segment

_OFFSETS_NEAR_END = 1 << 30
"""No batch reaches this far, so the check of offsets can wait until this few are left."""


def roll_is_due(active: Segment, header: BatchHeader, config: LogConfig, *, last_offset: int, clock: Clock) -> bool:
    """Whether the batch belongs into a new segment. An empty segment takes any batch."""
    if (
        active.size + header.length + LOG_OVERHEAD > config.segment_bytes
        or last_offset - active.base_offset > OFFSET_DELTA_MAX
        or active.indexes.count * ENTRY_BYTES >= config.segment_index_bytes
    ):
        return True
    began_ms = active.rolling_timestamp_ms()
    if began_ms is None:
        return False
    # Time counts by the records' own clock, so that replaying old data makes the same segments again.
    waited_ms = header.max_timestamp - began_ms if began_ms >= 0 else clock.now_ms() - active.created_ms
    return waited_ms > config.segment_ms - _jitter_ms(active, config)


def look_again(active: Segment, config: LogConfig, *, last_offset: int) -> None:
    """Let the segment know when the next closer look is due."""
    active.look_from_ms = _look_from_ms(active, config, last_offset=last_offset)
    active.index_entries_max = config.segment_index_bytes // ENTRY_BYTES


def _look_from_ms(active: Segment, config: LogConfig, *, last_offset: int) -> int:
    """From which timestamp on batches need a closer look, as long as they fit; `LOOK_FIRST` when each does."""
    began_ms = active.rolling_timestamp_ms()
    offsets_left = OFFSET_DELTA_MAX - (last_offset - active.base_offset)
    index_is_full = active.indexes.count * ENTRY_BYTES >= config.segment_index_bytes
    if began_ms is None or began_ms < 0 or offsets_left < _OFFSETS_NEAR_END or index_is_full:
        return LOOK_FIRST
    return min(began_ms + config.segment_ms - _jitter_ms(active, config) + 1, LOOK_FROM_MS_MAX)


def _jitter_ms(segment: Segment, config: LogConfig) -> int:
    """A fixed share of the jitter for each segment, so that partitions do not all roll at once."""
    if not config.segment_jitter_ms:
        return 0
    return crc32c(segment.path("").encode()) % config.segment_jitter_ms
