"""When a log is compacted, and which segments become one."""

from __future__ import annotations

import pickle

import pytest

from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.compaction_plan import CompactionPlan, Source, plan
from ottla.storage.log_config import LogConfig
from ottla.storage.retention import SegmentFacts

NOW_MS = 1_700_000_000_000
OFFSETS = 10
MAX_DELTA = 2**31 - 1


def segment(
    number: int, *, size: int = 100, age_ms: int = 1000, cleaned: bool = False, base_offset: int | None = None
) -> SegmentFacts:
    """The segment that holds ten offsets from ten times its number on."""
    base = number * OFFSETS if base_offset is None else base_offset
    return SegmentFacts(base, (number + 1) * OFFSETS, size, NOW_MS - age_ms, cleaned)


def planned(
    *segments: SegmentFacts,
    first_unstable_offset: int | None = None,
    high_watermark: int = 10**12,
    earliest_horizon_ms: int | None = None,
    compact: bool = True,
    segment_bytes: int = 1 << 30,
    segment_index_bytes: int = 10 << 20,
    index_interval_bytes: int = 4096,
    min_cleanable_dirty_ratio: float = 0.5,
    min_compaction_lag_ms: int = 0,
    max_compaction_lag_ms: int = 2**63 - 1,
) -> CompactionPlan | None:
    config = LogConfig(
        compact=compact,
        segment_bytes=segment_bytes,
        segment_index_bytes=segment_index_bytes,
        index_interval_bytes=index_interval_bytes,
        min_cleanable_dirty_ratio=min_cleanable_dirty_ratio,
        min_compaction_lag_ms=min_compaction_lag_ms,
        max_compaction_lag_ms=max_compaction_lag_ms,
    )
    return plan(
        segments,
        config,
        now_ms=NOW_MS,
        first_unstable_offset=first_unstable_offset,
        high_watermark=high_watermark,
        earliest_horizon_ms=earliest_horizon_ms,
    )


def bases(found: CompactionPlan | None) -> list[list[int]]:
    return [] if found is None else [[source.base_offset for source in group] for group in found.groups]


# --- whether ---------------------------------------------------------------------------------------


def test_a_log_without_the_compact_policy_is_never_compacted() -> None:
    assert planned(segment(0), compact=False) is None


def test_a_log_without_sealed_segments_is_not_due() -> None:
    assert planned() is None


def test_a_log_that_was_never_compacted_is_due_at_once() -> None:
    assert bases(planned(segment(0), segment(1))) == [[0, 10]]


def test_dirty_bytes_below_the_ratio_are_not_enough() -> None:
    assert planned(segment(0, size=101, cleaned=True), segment(1, size=100)) is None


def test_dirty_bytes_at_the_ratio_are_enough() -> None:
    assert bases(planned(segment(0, size=100, cleaned=True), segment(1, size=100))) == [[0, 10]]


def test_a_ratio_of_zero_still_asks_for_something_dirty() -> None:
    assert planned(segment(0, cleaned=True), min_cleanable_dirty_ratio=0.0) is None


def test_a_dirty_segment_beyond_the_greatest_lag_makes_the_log_due() -> None:
    clean = segment(0, size=10_000, cleaned=True)
    assert planned(clean, segment(1, age_ms=500), max_compaction_lag_ms=500) is None
    assert bases(planned(clean, segment(1, age_ms=501), max_compaction_lag_ms=500)) == [[0, 10]]


def test_a_horizon_that_has_passed_makes_a_clean_log_due() -> None:
    clean = segment(0, cleaned=True)
    assert planned(clean, earliest_horizon_ms=NOW_MS + 1) is None
    assert bases(planned(clean, earliest_horizon_ms=NOW_MS)) == [[0]]


def test_a_horizon_without_anything_cleaned_does_not_count() -> None:
    assert planned(earliest_horizon_ms=NOW_MS) is None


# --- what ------------------------------------------------------------------------------------------


def test_the_dirty_part_begins_behind_the_leading_cleaned_segments() -> None:
    found = planned(segment(0, cleaned=True), segment(1, cleaned=True), segment(2, size=500))
    assert found is not None
    assert found.first_dirty_offset == 20
    assert found.end_offset == 30


def test_a_cleaned_segment_behind_a_dirty_one_is_dirty() -> None:
    found = planned(segment(0), segment(1, cleaned=True))
    assert found is not None
    assert found.first_dirty_offset == 0
    assert found.sources == (Source(0, 10, 100, False), Source(10, 20, 100, True))


@pytest.mark.parametrize("unstable", [10, 11, 19])
def test_a_segment_that_reaches_beyond_the_stable_part_is_out(unstable: int) -> None:
    assert bases(planned(segment(0), segment(1), first_unstable_offset=unstable)) == [[0]]


def test_a_segment_that_ends_where_the_unstable_part_begins_is_in() -> None:
    assert bases(planned(segment(0), segment(1), first_unstable_offset=20)) == [[0, 10]]


def test_nothing_beyond_the_high_watermark_is_touched() -> None:
    assert bases(planned(segment(0), segment(1), high_watermark=19)) == [[0]]
    assert planned(segment(0), segment(1), high_watermark=9) is None


def test_a_cleaned_segment_beyond_the_stable_part_is_out_too() -> None:
    assert planned(segment(0, cleaned=True), high_watermark=9, earliest_horizon_ms=NOW_MS) is None


def test_a_young_segment_holds_back_all_that_follow() -> None:
    segments = (segment(0), segment(1, age_ms=499), segment(2))
    assert bases(planned(*segments, min_compaction_lag_ms=500)) == [[0]]


def test_a_cleaned_segment_is_never_too_young() -> None:
    segments = (segment(0, cleaned=True, age_ms=0), segment(1, age_ms=500))
    assert bases(planned(*segments, min_compaction_lag_ms=500)) == [[0, 10]]


def test_a_timestamp_in_the_future_does_not_hold_up_a_log_without_a_lag() -> None:
    assert bases(planned(segment(0, age_ms=-1_000_000))) == [[0]]


# --- groups ----------------------------------------------------------------------------------------


def test_neighbours_are_joined_up_to_the_segment_size() -> None:
    segments = [segment(n, size=100) for n in range(5)]
    assert bases(planned(*segments, segment_bytes=250)) == [[0, 10], [20, 30], [40]]


def test_a_segment_above_the_size_stays_alone() -> None:
    segments = (segment(0, size=10), segment(1, size=900), segment(2, size=10))
    assert bases(planned(*segments, segment_bytes=250)) == [[0], [10], [20]]


def test_neighbours_are_joined_only_as_far_as_their_indexes_fit() -> None:
    segments = [segment(n, size=1000) for n in range(3)]
    # 2,000 bytes give at most 20 entries at every 100 bytes, and one more at the end, of twelve bytes each.
    assert bases(planned(*segments, index_interval_bytes=99, segment_index_bytes=21 * 12)) == [[0, 10], [20]]
    assert bases(planned(*segments, index_interval_bytes=99, segment_index_bytes=20 * 12)) == [[0], [10], [20]]


def test_a_group_never_spans_more_offsets_than_an_index_entry_can_tell() -> None:
    first = SegmentFacts(0, 10, 100, 0, False)
    within = SegmentFacts(10, MAX_DELTA + 1, 100, 0, False)
    beyond = SegmentFacts(10, MAX_DELTA + 2, 100, 0, False)
    assert bases(planned(first, within)) == [[0, 10]]
    assert bases(planned(first, beyond)) == [[0], [10]]


# --- the value -------------------------------------------------------------------------------------


def test_a_plan_survives_the_way_to_another_process() -> None:
    found = CompactionPlan(
        groups=((Source(0, 10, 100, True), Source(10, 20, 100, False)),),
        first_dirty_offset=10,
        now_ms=NOW_MS,
        delete_retention_ms=1,
        producer_id_expiration_ms=2,
        index_interval_bytes=3,
        aborted_beyond=(AbortedTransaction(1, 12, 30, 31),),
    )
    assert pickle.loads(pickle.dumps(found)) == found
