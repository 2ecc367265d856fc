"""When a log is compacted, and which of its segments become which. Pure: facts in, a plan out.

The plan is a value that a child process can be handed; `compaction` carries it out. Nothing here reads
a file, so what is known of a segment is only what `SegmentFacts` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.records.batch import HEADER_SIZE, OFFSET_DELTA_MAX
from ottla.storage import time_index
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.log_config import LogConfig
from ottla.storage.retention import SegmentFacts


class Source(NamedTuple):
    """A sealed segment that is read; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size: int
    cleaned: bool


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What one compaction reads, and what it must know to decide."""

    groups: tuple[tuple[Source, ...], ...]
    """Neighbours that become one segment each, ascending from the first segment of the log."""
    first_dirty_offset: int
    """Below it every segment has been compacted before; the newest records of all keys stand at or beyond it."""
    now_ms: int
    delete_retention_ms: int
    producer_id_expiration_ms: int
    index_interval_bytes: int
    aborted_beyond: tuple[AbortedTransaction, ...] | None = None
    """The aborted transactions that begin in the sources and whose marker stands behind them.

    Only the log knows them: the marker's segment may still be written to. None means that nobody has
    looked, and then compaction stops before the first transaction whose marker it does not meet.
    """

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for group in self.groups for source in group)

    @property
    def end_offset(self) -> int:
        """Exclusive: where the last source ends."""
        return self.groups[-1][-1].end_offset


def plan(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    now_ms: int,
    first_unstable_offset: int | None,
    high_watermark: int,
    earliest_horizon_ms: int | None = None,
) -> CompactionPlan | None:
    """What to compact now, or None when nothing is due.

    `segments` are the sealed ones from the start of the log on. `earliest_horizon_ms` is what the last
    compaction answered as its next horizon: once it has passed, the log is due although nothing new was
    written. A caller that does not know it gets Kafka's way, where old tombstones leave together with the
    next new records.
    """
    if not config.compact:
        return None
    stable_end = high_watermark if first_unstable_offset is None else min(high_watermark, first_unstable_offset)
    clean = _leading_cleaned(segments, stable_end)
    # A cleaned segment behind a dirty one was not compared with it, so it counts as dirty too.
    dirty = _dirty(segments[len(clean) :], config, now_ms=now_ms, stable_end=stable_end)
    horizon_passed = bool(clean) and earliest_horizon_ms is not None and earliest_horizon_ms <= now_ms
    if not horizon_passed and not _is_due(clean, dirty, config, now_ms=now_ms):
        return None
    sources = [Source(facts.base_offset, facts.end_offset, facts.size, facts.cleaned) for facts in (*clean, *dirty)]
    return CompactionPlan(
        groups=_grouped(sources, config),
        first_dirty_offset=clean[-1].end_offset if clean else sources[0].base_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        index_interval_bytes=config.index_interval_bytes,
    )


def _leading_cleaned(segments: Sequence[SegmentFacts], stable_end: int) -> list[SegmentFacts]:
    cleaned: list[SegmentFacts] = []
    for segment in segments:
        if not segment.cleaned or segment.end_offset > stable_end:
            break
        cleaned.append(segment)
    return cleaned


def _dirty(segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, stable_end: int) -> list[SegmentFacts]:
    """The segments up to the first that must not be touched yet."""
    dirty: list[SegmentFacts] = []
    for segment in segments:
        # Timestamps are the producers': without a lag, one that lies in the future must not hold up the log.
        too_young = 0 < config.min_compaction_lag_ms > now_ms - segment.newest_ms
        if too_young or segment.end_offset > stable_end:
            break
        dirty.append(segment)
    return dirty


def _is_due(clean: Sequence[SegmentFacts], dirty: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int) -> bool:
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return False
    if now_ms - dirty[0].newest_ms > config.max_compaction_lag_ms:
        return True
    return dirty_bytes >= config.min_cleanable_dirty_ratio * (dirty_bytes + sum(segment.size for segment in clean))


def _grouped(sources: Sequence[Source], config: LogConfig) -> tuple[tuple[Source, ...], ...]:
    """Neighbours together as far as one segment can hold them, so that shrinking segments become fewer."""
    groups: list[list[Source]] = []
    size = 0
    for source in sources:
        size += source.size
        if groups and _fits_one_segment(groups[-1][0], source, size=size, config=config):
            groups[-1].append(source)
        else:
            groups.append([source])
            size = source.size
    return tuple(tuple(group) for group in groups)


def _fits_one_segment(first: Source, last: Source, *, size: int, config: LogConfig) -> bool:
    # An index gains at most an entry per interval, and no batch is shorter than its header. The entry of
    # the time index is the longer one, and the last batches get one more.
    index_entries = size // max(config.index_interval_bytes + 1, HEADER_SIZE) + 1
    return (
        size <= config.segment_bytes
        and index_entries * time_index.ENTRY_BYTES <= config.segment_index_bytes
        and last.end_offset - 1 - first.base_offset <= OFFSET_DELTA_MAX
    )
