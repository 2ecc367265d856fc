"""The small parts of storage, each by itself: indexes, seals, snapshots, epochs, retention."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage import aborted_index, producer_snapshot, seal
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.epochs import EpochStart, LeaderEpochs
from ottla.storage.log_config import LogConfig
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.producer_snapshot import DamagedSnapshot
from ottla.storage.producer_state import ProducerBatch, ProducerEntry
from ottla.storage.retention import SegmentFacts, below, expired
from ottla.storage.seal import DamagedSeal, FileSum, Seal
from ottla.storage.time_index import TimeIndex

int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
SEAL = Seal(1_000, 50, 99, 49, 7, FileSum(8, 1), FileSum(12, 2), FileSum(0, 0), cleaned=True)


# --- indexes -----------------------------------------------------------------------------------------


@given(st.dictionaries(int32, int32))
def test_an_offset_index_is_the_same_after_a_trip_to_disk(entries: dict[int, int]) -> None:
    index = OffsetIndex()
    for relative_offset, position in sorted(entries.items()):
        index.add(relative_offset=relative_offset, position=position)
    data = index.to_bytes()
    assert data == b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in sorted(entries.items()))
    again = OffsetIndex.from_bytes(data)
    assert again.to_bytes() == data
    for wanted in [*entries, 0, 2**31 - 1]:
        at_most = [offset for offset in entries if offset <= wanted]
        assert again.floor(wanted) == (entries[max(at_most)] if at_most else 0)


@given(st.lists(st.tuples(st.integers(-1, 2**62), int32)))
def test_a_time_index_keeps_rising_times_only(entries: list[tuple[int, int]]) -> None:
    index = TimeIndex()
    rising: list[tuple[int, int]] = []
    for timestamp_ms, relative_offset in entries:
        index.add(timestamp_ms=timestamp_ms, relative_offset=relative_offset)
        if timestamp_ms >= 0 and (not rising or timestamp_ms > rising[-1][0]):
            rising.append((timestamp_ms, relative_offset))
    data = index.to_bytes()
    assert data == b"".join(t.to_bytes(8, "big") + o.to_bytes(4, "big") for t, o in rising)
    again = TimeIndex.from_bytes(data)
    assert again.to_bytes() == data
    for timestamp_ms, relative_offset in rising:
        assert again.floor(timestamp_ms) == relative_offset


@given(st.lists(st.builds(AbortedTransaction, int64, int64, int64, int64)))
def test_an_aborted_index_is_the_same_after_a_trip_to_disk(entries: list[AbortedTransaction]) -> None:
    data = aborted_index.encode(entries)
    assert len(data) == aborted_index.ENTRY_BYTES * len(entries)
    assert aborted_index.decode(data) == entries


# --- seals and snapshots -------------------------------------------------------------------------------


def test_a_seal_is_the_same_after_a_trip_to_disk() -> None:
    assert seal.decode(seal.encode(SEAL)) == SEAL


def test_a_seal_with_any_byte_changed_or_missing_is_damaged() -> None:
    data = seal.encode(SEAL)
    for at in range(len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        for wrong in (bytes(changed), data[:at]):
            with pytest.raises(DamagedSeal):
                seal.decode(wrong)


batches = st.lists(st.builds(ProducerBatch, int32, st.integers(0, 2**62), int32, int64), max_size=5)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**15 - 1), batches), unique_by=lambda entry: entry[0]))
def test_a_snapshot_keeps_five_batches_of_each_producer(producers: list[tuple[int, int, list[ProducerBatch]]]) -> None:
    entries = [
        ProducerEntry(producer_id, epoch, 3, -1, 5, deque(remembered, maxlen=5))
        for producer_id, epoch, remembered in producers
    ]
    assert producer_snapshot.decode(producer_snapshot.encode(entries)) == entries


def test_a_snapshot_with_any_byte_changed_or_missing_is_damaged() -> None:
    data = producer_snapshot.encode([ProducerEntry(7, 0, 1, 9, 5, deque([ProducerBatch(3, 9, 0, 5)], maxlen=5))])
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        for wrong in (bytes(changed), data[:at]):
            with pytest.raises(DamagedSnapshot):
                producer_snapshot.decode(wrong)


# --- epochs ------------------------------------------------------------------------------------------


def test_an_epoch_that_is_not_newer_changes_nothing() -> None:
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 10)])
    assert not epochs.assign(3, start_offset=20)
    assert not epochs.assign(2, start_offset=20)
    assert not epochs.assign(-1, start_offset=20)
    assert epochs.entries == (EpochStart(1, 0), EpochStart(3, 10))


def test_a_newer_epoch_at_an_older_offset_replaces_what_it_contradicts() -> None:
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 10)])
    assert epochs.assign(4, start_offset=10)
    assert epochs.entries == (EpochStart(1, 0), EpochStart(4, 10))


@pytest.mark.parametrize(("offset", "epoch"), [(0, -1), (4, -1), (5, 1), (9, 1), (10, 3), (99, 3)])
def test_the_epoch_of_an_offset_is_the_last_that_began_before(offset: int, epoch: int) -> None:
    assert LeaderEpochs([EpochStart(1, 5), EpochStart(3, 10)]).epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("asked", "answer"), [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (4, (-1, -1))]
)
def test_the_end_of_an_epoch_is_where_the_next_began(asked: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs([EpochStart(1, 5), EpochStart(3, 10)])
    assert epochs.end_offset(asked, log_end_offset=20) == answer


def test_epochs_are_cut_at_both_ends() -> None:
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 10), EpochStart(5, 20)])
    assert epochs.truncate_end(20)
    assert not epochs.truncate_end(11)
    assert epochs.truncate_start(4)
    assert epochs.entries == (EpochStart(1, 4), EpochStart(3, 10))
    assert epochs.truncate_start(10)
    assert not epochs.truncate_start(10)
    assert not epochs.truncate_start(3)
    assert list(epochs.entries) == [EpochStart(3, 10)]


# --- retention ---------------------------------------------------------------------------------------

SEGMENTS = [SegmentFacts(at * 10, at * 10 + 10, 100, 1_000 * at, False) for at in range(5)]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"retention_ms": -1}, 0),
        ({"retention_ms": 3_000}, 2),
        ({"retention_ms": 2_999}, 3),
        ({"retention_ms": -1, "retention_bytes": 0}, 5),
        ({"retention_ms": -1, "retention_bytes": 350}, 2),
        ({"retention_ms": -1, "retention_bytes": 550}, 0),
        ({"retention_ms": 2_999, "retention_bytes": 150}, 4),
        ({"retention_ms": 0, "delete": False}, 0),
    ],
)
def test_what_is_too_old_or_too_much_goes_from_the_start(changes: dict[str, int], count: int) -> None:
    config = LogConfig(**changes)  # type: ignore[arg-type]
    assert expired(SEGMENTS, config, now_ms=5_000, log_bytes=550, below_offset=50) == count


def test_an_old_segment_behind_a_young_one_stays() -> None:
    mixed = [SEGMENTS[4], SEGMENTS[0]]
    assert expired(mixed, LogConfig(retention_ms=2_000), now_ms=5_000, log_bytes=200, below_offset=50) == 0


@pytest.mark.parametrize(("log_start", "count"), [(0, 0), (9, 0), (10, 1), (25, 2), (99, 5)])
def test_segments_wholly_below_the_log_start_go(log_start: int, count: int) -> None:
    assert below(SEGMENTS, log_start) == count


@pytest.mark.parametrize(
    "changes",
    [
        {"segment_bytes": 0},
        {"segment_bytes": 2**31},
        {"segment_ms": 0},
        {"segment_jitter_ms": -1},
        {"index_interval_bytes": -1},
        {"segment_index_bytes": 11},
        {"min_cleanable_dirty_ratio": 1.1},
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        LogConfig(**changes)  # type: ignore[arg-type]
