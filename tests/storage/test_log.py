"""The behaviour of a log, on a real disk and in memory: the suite that any engine must pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import (
    CorruptBatch,
    InvalidBatch,
    InvalidProducerEpoch,
    InvalidTopicLayout,
    InvalidTransactionState,
    LogClosed,
    OffsetOutOfRange,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ottla.records.batch import check, walk
from ottla.records.compression import Codec
from ottla.records.control import MarkerType
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.disk import OsDisk
from ottla.storage.epochs import EpochStart
from ottla.storage.memory_disk import MemoryDisk
from ottla.storage.runs import Appended
from tests.storage.workbench import CODECS, NOW_MS, Workbench, batch, marker, records_of, removed, sequenced


@pytest.fixture(params=["memory", "os"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Workbench:
    if request.param == "os":
        return Workbench(OsDisk(), str(tmp_path / "topic-0"))
    return Workbench(MemoryDisk(seed=1), "/data/topic-0")


# --- appending and reading -------------------------------------------------------------------------


def test_an_empty_log_begins_and_ends_at_zero(bench: Workbench) -> None:
    log = bench.open()
    assert (log.log_start_offset, log.end_offset, log.size) == (0, 0, 0)
    assert log.read(offset=0, bytes_max=100) == b""


def test_a_batch_gets_the_next_offsets(bench: Workbench) -> None:
    log = bench.open()
    assert log.append(batch(b"a", b"b"), leader_epoch=0) == Appended(0, 1)
    assert log.append(batch(b"c"), leader_epoch=0) == Appended(2, 2)
    assert [(record.offset, record.value) for record in records_of(log)] == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_batch_is_stored_byte_for_byte_but_for_offset_and_epoch(bench: Workbench) -> None:
    log = bench.open()
    log.append(batch(b"first"), leader_epoch=3)
    original = batch(b"second", codec=Codec.LZ4)
    log.append(original, leader_epoch=3)
    stored = log.read(offset=1, bytes_max=10_000)
    assert check(stored).base_offset == 1
    assert check(stored).leader_epoch == 3
    assert stored[16:] == original[16:]


def test_offsets_stay_contiguous_over_ten_thousand_appends_and_a_restart(bench: Workbench) -> None:
    log = bench.open(segment_bytes=100_000)
    for number in range(5_000):
        assert log.append(batch(b"%d" % number), leader_epoch=0).first_offset == number
    log.close()
    log = bench.open(segment_bytes=100_000)
    for number in range(5_000, 10_000):
        assert log.append(batch(b"%d" % number), leader_epoch=0).first_offset == number
    assert [(record.offset, record.value) for record in records_of(log)] == [(n, b"%d" % n) for n in range(10_000)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_as_it_went(bench: Workbench, codec: Codec) -> None:
    log = bench.open()
    log.append(batch(*(b"%d" % n for n in range(100)), codec=codec), leader_epoch=0)
    assert [record.value for record in records_of(log)] == [b"%d" % n for n in range(100)]


def test_reading_crosses_segments_from_every_offset(bench: Workbench) -> None:
    log = bench.open(segment_bytes=1_000)
    for number in range(60):
        log.append(batch(b"%d" % number), leader_epoch=0)
    assert len(log.segments) >= 5
    for offset in range(61):
        assert [record.offset for record in records_of(log, offset=offset)] == list(range(offset, 60))


def test_a_slice_begins_with_the_batch_that_holds_the_offset(bench: Workbench) -> None:
    log = bench.open()
    log.append(batch(b"a"), leader_epoch=0)
    log.append(batch(b"b", b"c", b"d"), leader_epoch=0)
    assert [header.base_offset for _, header in walk(log.read(offset=2, bytes_max=10_000))] == [1]


def test_a_slice_holds_one_whole_batch_even_over_the_limit(bench: Workbench) -> None:
    log = bench.open()
    log.append(batch(b"x" * 1_000), leader_epoch=0)
    log.append(batch(b"y"), leader_epoch=0)
    data = log.read(offset=0, bytes_max=1)
    assert len(data) == check(data).size


def test_a_slice_ends_before_the_end_offset(bench: Workbench) -> None:
    log = bench.open()
    for number in range(10):
        log.append(batch(b"%d" % number), leader_epoch=0)
    data = log.read(offset=3, bytes_max=10_000, end_offset=7)
    assert [header.base_offset for _, header in walk(data)] == [3, 4, 5, 6]


def test_reading_at_the_end_is_empty_and_beyond_it_is_refused(bench: Workbench) -> None:
    log = bench.open()
    log.append(batch(b"a"), leader_epoch=0)
    assert log.read(offset=1, bytes_max=100) == b""
    with pytest.raises(OffsetOutOfRange, match="offset 2, the log holds 0 to 1"):
        log.read(offset=2, bytes_max=100)


def test_a_corrupt_batch_is_refused_and_changes_nothing(bench: Workbench) -> None:
    log = bench.open()
    damaged = bytearray(batch(b"value"))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append(damaged, leader_epoch=0)
    assert (log.end_offset, log.size) == (0, 0)


def test_two_batches_at_once_are_refused(bench: Workbench) -> None:
    with pytest.raises(InvalidBatch, match="not one batch"):
        bench.open().append(batch(b"a") + batch(b"b"), leader_epoch=0)


def test_a_slice_stays_readable_when_its_segment_is_deleted(bench: Workbench) -> None:
    log = bench.open(segment_bytes=1)
    log.append(batch(b"old"), leader_epoch=0)
    log.append(batch(b"new"), leader_epoch=0)
    log.sync()
    found = log.slice(offset=0, bytes_max=1_000)
    assert found is not None
    before = found.read()
    log.delete_records(1).run()
    assert bench.names(".log") == ["00000000000000000001.log"]
    assert found.read() == before


# --- segments ----------------------------------------------------------------------------------------


def test_segments_are_named_by_their_first_offset(bench: Workbench) -> None:
    log = bench.open(segment_bytes=500)
    for number in range(50):
        log.append(batch(b"%d" % number), leader_epoch=0)
    log.close()
    assert [f"{segment.base_offset:020d}.log" for segment in log.segments] == bench.names(".log")
    assert len(log.segments) > 5


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(bench: Workbench) -> None:
    log = bench.open(segment_bytes=100)
    log.append(batch(b"x" * 1_000), leader_epoch=0)
    log.append(batch(b"y" * 1_000), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_segment_rolls_when_its_records_span_more_than_its_time(bench: Workbench) -> None:
    log = bench.open(segment_ms=1_000)
    for after_ms in (0, 1_000, 1_001, 2_000, 2_002):
        log.append(batch(timestamp_ms=NOW_MS + after_ms), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_without_timestamps_a_segment_rolls_by_the_clock(bench: Workbench) -> None:
    log = bench.open(segment_ms=1_000)
    log.append(batch(timestamp_ms=-1), leader_epoch=0)
    bench.clock.advance(1_001)
    log.append(batch(timestamp_ms=-1), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_segment_rolls_when_its_index_is_full(bench: Workbench) -> None:
    log = bench.open(index_interval_bytes=0, segment_index_bytes=32)
    for _ in range(12):
        log.append(batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 5, 10]


def test_rolling_by_hand_leaves_an_empty_segment_alone(bench: Workbench) -> None:
    log = bench.open()
    log.roll()
    assert len(log.segments) == 1
    log.append(batch(), leader_epoch=0)
    log.roll()
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1]


# --- times -------------------------------------------------------------------------------------------


def test_an_offset_is_found_by_time(bench: Workbench) -> None:
    log = bench.open(segment_bytes=400, index_interval_bytes=0)
    for number in range(30):
        log.append(batch(timestamp_ms=NOW_MS + 10 * number), leader_epoch=1)
    for number in range(30):
        found = log.offset_for_timestamp(NOW_MS + 10 * number)
        assert found == (NOW_MS + 10 * number, number, 1)
    between = log.offset_for_timestamp(NOW_MS + 41)
    assert between == (NOW_MS + 50, 5, 1)
    assert log.offset_for_timestamp(0) == (NOW_MS, 0, 1)
    assert log.offset_for_timestamp(NOW_MS + 291) is None


def test_times_out_of_order_still_give_the_first_record_in_the_log(bench: Workbench) -> None:
    log = bench.open(index_interval_bytes=0, segment_bytes=300)
    times = [50, 10, 40, 90, 20, 70, 90, 30, 95, 5, 60]
    for time in times:
        log.append(batch(timestamp_ms=time), leader_epoch=0)
    for wanted in range(1, 97):
        expected = next((offset for offset, time in enumerate(times) if time >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (found.offset if found else None) == expected


def test_a_time_inside_a_batch_gives_the_record_and_not_the_batch(bench: Workbench) -> None:
    from ottla.records.builder import build_batch

    log = bench.open()
    log.append(build_batch([(b"k", b"v", time, ()) for time in (10, 20, 30)], codec=Codec.ZSTD), leader_epoch=0)
    assert log.offset_for_timestamp(11) == (20, 1, 0)
    assert log.newest() == (30, 2, 0)


def test_the_newest_record_is_the_first_with_the_greatest_time(bench: Workbench) -> None:
    log = bench.open(segment_bytes=200)
    for time in (10, 90, 20, 90, 30):
        log.append(batch(timestamp_ms=time), leader_epoch=0)
    assert log.newest() == (90, 1, 0)
    assert log.newest(end_offset=1) == (10, 0, 0)


# --- epochs ------------------------------------------------------------------------------------------


def test_leader_epochs_are_kept_over_a_restart(bench: Workbench) -> None:
    log = bench.open()
    for epoch in (0, 0, 2, 5):
        log.append(batch(), leader_epoch=epoch)
    log.close()
    log = bench.open()
    assert log.epochs.entries == (EpochStart(0, 0), EpochStart(2, 2), EpochStart(5, 3))
    assert log.epochs.end_offset(0, log_end_offset=4) == EpochStart(0, 2)
    assert log.epochs.end_offset(3, log_end_offset=4) == EpochStart(2, 3)
    assert log.epochs.end_offset(5, log_end_offset=4) == EpochStart(5, 4)
    assert log.epochs.end_offset(6, log_end_offset=4) == EpochStart(-1, -1)


# --- producers ---------------------------------------------------------------------------------------


def test_a_repeated_batch_is_answered_with_the_first_offsets_also_after_a_restart(bench: Workbench) -> None:
    log = bench.open()
    for sequence in range(0, 12, 2):
        log.append(sequenced(7, sequence, count=2), leader_epoch=0)
    for _ in range(2):
        for sequence in range(2, 12, 2):
            repeated = log.append(sequenced(7, sequence, count=2), leader_epoch=0)
            assert repeated == Appended(sequence, sequence + 1, True)
        assert log.end_offset == 12
        log.close()
        log = bench.open()


def test_the_sixth_batch_back_is_no_longer_known(bench: Workbench) -> None:
    log = bench.open()
    for sequence in range(6):
        log.append(sequenced(7, sequence), leader_epoch=0)
    with pytest.raises(OutOfOrderSequence, match="sequence 0 came, 6 was due"):
        log.append(sequenced(7, 0), leader_epoch=0)


def test_a_gap_in_the_sequence_is_refused(bench: Workbench) -> None:
    log = bench.open()
    log.append(sequenced(7, 0), leader_epoch=0)
    with pytest.raises(OutOfOrderSequence, match="sequence 2 came, 1 was due"):
        log.append(sequenced(7, 2), leader_epoch=0)
    assert log.end_offset == 1


def test_sequences_wrap_around(bench: Workbench) -> None:
    log = bench.open()
    log.append(sequenced(7, 2**31 - 2, count=4), leader_epoch=0)
    assert log.append(sequenced(7, 2), leader_epoch=0) == Appended(4, 4)
    assert log.append(sequenced(7, 2**31 - 2, count=4), leader_epoch=0) == Appended(0, 3, True)


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero(bench: Workbench) -> None:
    log = bench.open()
    log.append(sequenced(7, 0, epoch=1), leader_epoch=0)
    with pytest.raises(InvalidProducerEpoch, match="epoch 0 is older than 1"):
        log.append(sequenced(7, 1, epoch=0), leader_epoch=0)
    with pytest.raises(OutOfOrderSequence, match="sequence 5 came, 0 was due"):
        log.append(sequenced(7, 5, epoch=2), leader_epoch=0)
    assert log.append(sequenced(7, 0, epoch=2), leader_epoch=0) == Appended(1, 1)


def test_an_unknown_producer_may_begin_at_any_sequence(bench: Workbench) -> None:
    assert bench.open().append(sequenced(7, 100), leader_epoch=0) == Appended(0, 0)


def test_silent_producers_are_forgotten_but_not_in_a_transaction(bench: Workbench) -> None:
    log = bench.open(producer_id_expiration_ms=1_000)
    log.append(sequenced(7, 0), leader_epoch=0)
    log.append(sequenced(8, 0, transactional=True), leader_epoch=0)
    assert log.expire_producers() == 0
    bench.clock.advance(999)
    assert log.expire_producers() == 0
    bench.clock.advance(1)
    assert log.expire_producers() == 1
    assert [entry.producer_id for entry in log.producers.entries] == [8]


# --- transactions ------------------------------------------------------------------------------------


def test_an_open_transaction_holds_the_stable_offset_back(bench: Workbench) -> None:
    log = bench.open()
    log.append(batch(), leader_epoch=0)
    assert log.first_unstable_offset(log.end_offset) is None
    log.append(sequenced(7, 0, transactional=True), leader_epoch=0)
    log.append(sequenced(8, 0, transactional=True), leader_epoch=0)
    assert log.first_unstable_offset(log.end_offset) == 1
    log.append(marker(7, MarkerType.COMMIT), leader_epoch=0)
    assert log.first_unstable_offset(log.end_offset) == 2
    log.append(marker(8, MarkerType.ABORT), leader_epoch=0)
    assert log.first_unstable_offset(log.end_offset) is None


def test_an_end_that_is_not_below_the_high_watermark_settles_nothing(bench: Workbench) -> None:
    log = bench.open()
    log.append(sequenced(7, 0, transactional=True), leader_epoch=0)
    log.append(marker(7, MarkerType.COMMIT), leader_epoch=0)
    assert log.first_unstable_offset(1) == 0
    assert log.first_unstable_offset(2) is None


def test_aborted_transactions_are_found_by_range_also_after_restarts(bench: Workbench) -> None:
    log = bench.open(segment_bytes=250)
    log.append(sequenced(7, 0, transactional=True), leader_epoch=0)
    log.append(sequenced(8, 0, transactional=True), leader_epoch=0)
    log.append(batch(b"plain"), leader_epoch=0)
    log.append(marker(7, MarkerType.ABORT), leader_epoch=0)
    log.append(marker(8, MarkerType.ABORT), leader_epoch=0)
    log.append(batch(b"after"), leader_epoch=0)
    first, second = AbortedTransaction(7, 0, 3, 1), AbortedTransaction(8, 1, 4, 5)
    for _ in range(3):
        assert log.aborted_transactions(offset=0, end_offset=6) == [first, second]
        assert log.aborted_transactions(offset=4, end_offset=6) == [second]
        assert log.aborted_transactions(offset=0, end_offset=1) == [first]
        assert log.aborted_transactions(offset=5, end_offset=6) == []
        log.close()
        log = bench.open(segment_bytes=250)


def test_markers_of_old_epochs_are_refused(bench: Workbench) -> None:
    log = bench.open()
    log.append(sequenced(7, 0, epoch=3, transactional=True), leader_epoch=0)
    with pytest.raises(InvalidProducerEpoch, match="a marker of epoch 2"):
        log.append(marker(7, MarkerType.COMMIT, epoch=2), leader_epoch=0)
    log.append(marker(7, MarkerType.COMMIT, epoch=3, coordinator_epoch=5), leader_epoch=0)
    with pytest.raises(TransactionCoordinatorFenced, match="coordinator epoch 4"):
        log.append(marker(7, MarkerType.COMMIT, epoch=3, coordinator_epoch=4), leader_epoch=0)


def test_a_plain_batch_inside_a_transaction_is_refused(bench: Workbench) -> None:
    log = bench.open()
    log.append(sequenced(7, 0, transactional=True), leader_epoch=0)
    with pytest.raises(InvalidTransactionState, match="open since offset 0"):
        log.append(sequenced(7, 1), leader_epoch=0)


# --- keeping in bounds ---------------------------------------------------------------------------------


def test_retention_by_time_takes_sealed_segments_and_leaves_the_active_one(bench: Workbench) -> None:
    log = bench.open(segment_bytes=1, retention_ms=2_000)
    for number in range(4):
        log.append(batch(timestamp_ms=NOW_MS + number * 1_000), leader_epoch=0)
    log.sync()
    bench.clock.advance(4_000)
    assert removed(log, below_offset=log.end_offset) == 2
    assert log.log_start_offset == 2
    assert [record.offset for record in records_of(log)] == [2, 3]
    bench.clock.advance(60_000)
    assert removed(log, below_offset=log.end_offset) == 1
    assert [record.offset for record in records_of(log)] == [3]
    assert bench.names(".index") == []
    with pytest.raises(OffsetOutOfRange):
        log.read(offset=1, bytes_max=100)


def test_retention_by_size_keeps_at_least_the_size(bench: Workbench) -> None:
    log = bench.open(segment_bytes=1, retention_ms=-1, retention_bytes=3 * len(batch()))
    for _ in range(6):
        log.append(batch(), leader_epoch=0)
    log.sync()
    assert removed(log, below_offset=6) == 3
    assert (log.log_start_offset, log.size) == (3, 3 * len(batch()))


def test_retention_takes_nothing_above_the_high_watermark_and_nothing_unsealed(bench: Workbench) -> None:
    log = bench.open(segment_bytes=1, retention_ms=0)
    for _ in range(4):
        log.append(batch(), leader_epoch=0)
    bench.clock.advance(10_000)
    assert removed(log, below_offset=4) == 0
    log.sync()
    assert removed(log, below_offset=2) == 2


def test_retention_of_a_compacted_topic_deletes_nothing(bench: Workbench) -> None:
    log = bench.open(segment_bytes=1, retention_ms=0, delete=False, compact=True)
    for _ in range(4):
        log.append(batch(), leader_epoch=0)
    log.sync()
    bench.clock.advance(10_000)
    assert removed(log, below_offset=4) == 0


def test_deleted_records_stay_deleted_over_a_restart(bench: Workbench) -> None:
    log = bench.open(segment_bytes=300)
    for _ in range(10):
        log.append(batch(), leader_epoch=0)
    log.sync()
    log.delete_records(7).run()
    assert [record.offset for record in records_of(log)] == [7, 8, 9]
    log.close()
    log = bench.open(segment_bytes=300)
    assert log.log_start_offset == 7
    assert [record.offset for record in records_of(log)] == [7, 8, 9]


def test_all_records_can_be_deleted_and_the_offsets_go_on(bench: Workbench) -> None:
    log = bench.open()
    log.append(batch(), leader_epoch=0)
    log.delete_records(1).run()
    assert records_of(log) == []
    log.close()
    log = bench.open()
    assert log.append(batch(), leader_epoch=0) == Appended(1, 1)


def test_records_beyond_the_end_cannot_be_deleted(bench: Workbench) -> None:
    with pytest.raises(OffsetOutOfRange):
        bench.open().delete_records(1)


@pytest.mark.parametrize("offset", range(12))
def test_truncation_forgets_everything_from_an_offset_on(bench: Workbench, offset: int) -> None:
    log = bench.open(segment_bytes=350)
    for number in range(12):
        log.append(sequenced(7, number, transactional=number >= 6), leader_epoch=number // 4)
    log.sync()
    log.truncate_to(offset)
    assert [record.offset for record in records_of(log)] == list(range(offset))
    assert (log.end_offset, log.synced_offset) == (offset, offset)
    assert all(entry.start_offset < offset for entry in log.epochs.entries)
    assert log.first_unstable_offset(100) == (6 if offset > 6 else None)
    assert log.append(sequenced(7, offset, transactional=True), leader_epoch=9) == Appended(offset, offset)
    log.close()
    log = bench.open(segment_bytes=350)
    assert [record.offset for record in records_of(log)] == list(range(offset + 1))
    assert log.recovery.clean


def test_truncating_inside_a_batch_takes_the_whole_batch(bench: Workbench) -> None:
    log = bench.open()
    log.append(batch(b"a"), leader_epoch=0)
    log.append(batch(b"b", b"c", b"d"), leader_epoch=0)
    log.truncate_to(3)
    assert log.end_offset == 1


def test_a_log_can_begin_again_at_another_offset(bench: Workbench) -> None:
    log = bench.open(segment_bytes=200)
    for number in range(5):
        log.append(sequenced(7, number), leader_epoch=0)
    log.sync()
    log.restart_at(100)
    assert (log.log_start_offset, log.end_offset) == (100, 100)
    assert len(log.producers) == 0
    assert log.append(batch(), leader_epoch=1) == Appended(100, 100)
    log.close()
    assert bench.open(segment_bytes=200).log_start_offset == 100


# --- replicas ------------------------------------------------------------------------------------------


def test_a_follower_keeps_the_leaders_bytes_gaps_and_epochs(bench: Workbench) -> None:
    leader = bench.open(segment_bytes=300)
    for number in range(9):
        leader.append(sequenced(7, number), leader_epoch=number // 3)
    data = b"".join(bytes(found.data) for found in leader.batches(offset=0) if found.header.base_offset not in (4, 5))
    follower = Workbench(bench.disk, bench.directory + "-copy").open(segment_bytes=300)
    assert follower.append_replicated(data + data[:30]) == 7
    assert b"".join(bytes(found.data) for found in follower.batches(offset=0)) == data
    assert follower.end_offset == 9
    assert follower.epochs.entries == leader.epochs.entries
    assert [record.offset for record in records_of(follower, offset=4)] == [6, 7, 8]
    with pytest.raises(InvalidBatch, match="the log ends at 9"):
        follower.append_replicated(data)


# --- opening and closing ---------------------------------------------------------------------------------


def test_a_closed_log_is_opened_without_reading_it(bench: Workbench) -> None:
    log = bench.open(segment_bytes=300)
    for number in range(20):
        log.append(sequenced(7, number), leader_epoch=0)
    log.close()
    log = bench.open(segment_bytes=300)
    assert (log.recovery.clean, log.recovery.scanned_bytes) == (True, 0)
    assert log.append(sequenced(7, 20), leader_epoch=0) == Appended(20, 20)


def test_a_log_that_was_not_closed_is_read_from_the_last_seal_on(bench: Workbench) -> None:
    log = bench.open(segment_bytes=300)
    for number in range(20):
        log.append(batch(b"%d" % number), leader_epoch=0)
    log.sync()
    again = bench.open(segment_bytes=300)
    assert not again.recovery.clean
    assert again.recovery.scanned_bytes == log.segments[-1].size
    assert [record.offset for record in records_of(again)] == list(range(20))


def test_the_mark_of_a_clean_stop_is_gone_with_the_first_append(bench: Workbench) -> None:
    bench.open().close()
    log = bench.open()
    assert log.recovery.clean
    log.append(batch(), leader_epoch=0)
    assert not bench.open().recovery.clean


def test_a_closed_log_refuses_work(bench: Workbench) -> None:
    log = bench.open()
    log.close()
    log.close()
    for work in (
        lambda: log.append(batch(), leader_epoch=0),
        lambda: log.read(offset=0, bytes_max=1),
        log.sync,
        log.roll,
        lambda: log.delete_records(0).run(),
    ):
        with pytest.raises(LogClosed, match="the log is closed"):
            work()


def test_a_foreign_segment_name_is_a_wrong_layout(bench: Workbench) -> None:
    bench.open().close()
    bench.disk.open(f"{bench.directory}/segment-1.log", create=True).close()
    with pytest.raises(InvalidTopicLayout, match=r"segment-1\.log"):
        bench.open()


def test_a_log_of_another_format_version_is_refused(bench: Workbench) -> None:
    from ottla.storage.checkpoint import encode_number, write_atomically

    bench.open().close()
    write_atomically(bench.disk, f"{bench.directory}/log-format", encode_number("log-format", 2))
    with pytest.raises(InvalidTopicLayout, match="log format 2, this Ottla reads 1; the log is newer: upgrade Ottla"):
        bench.open()


def test_descriptors_and_indexes_come_back_after_release(bench: Workbench) -> None:
    log = bench.open(segment_bytes=300, index_interval_bytes=0)
    for number in range(20):
        log.append(batch(b"%d" % number), leader_epoch=0)
    log.sync()
    log.release()
    assert [record.offset for record in records_of(log, offset=3)] == list(range(3, 20))
