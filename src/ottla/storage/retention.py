"""Which segments have outlived their keep. Pure: facts in, a count out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.storage.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """What retention and compaction must know of a sealed segment."""

    base_offset: int
    end_offset: int
    size: int
    newest_ms: int
    """Its greatest timestamp; when it was sealed, if no record had one."""
    cleaned: bool


def expired(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, log_bytes: int, below_offset: int
) -> int:
    """How many sealed segments, counted from the oldest, are to go.

    `segments` holds the sealed ones only and `log_bytes` the whole log. Nothing at or beyond
    `below_offset` (the high watermark) goes, nor does anything behind a segment that stays.
    """
    if not config.delete:
        return 0
    surplus = log_bytes - config.retention_bytes if config.retention_bytes >= 0 else -1
    count = 0
    for segment in segments:
        too_old = config.retention_ms >= 0 and now_ms - segment.newest_ms > config.retention_ms
        too_much = surplus - segment.size >= 0
        if not (too_old or too_much) or segment.end_offset > below_offset:
            break
        surplus -= segment.size
        count += 1
    return count


def below(segments: Sequence[SegmentFacts], log_start_offset: int) -> int:
    """How many sealed segments lie wholly below the log start."""
    count = 0
    while count < len(segments) and segments[count].end_offset <= log_start_offset:
        count += 1
    return count
