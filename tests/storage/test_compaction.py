"""What compaction keeps and what it removes, told one rule at a time, on a whole log."""

from __future__ import annotations

import errno
import multiprocessing
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from ottla.errors import DiskFull, StorageFault
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, TimestampType, pack_header, peek, seal
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType
from ottla.records.reader import Record
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.compaction import CompactionResult, Output, compact
from ottla.storage.compaction_plan import CompactionPlan
from ottla.storage.disk import OsDisk
from ottla.storage.key_map import KEY_BYTES_MAX, NEVER, KeyMap
from ottla.storage.log import Log
from ottla.storage.memory_disk import Crash, MemoryDisk, Moment
from ottla.storage.producer_replay import replay_batch
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scan import build_indexes
from ottla.storage.seal import decode
from tests.storage.workbench import CODECS, NOW_MS, Workbench, batch, installed, keyed, marker, records_of, sequenced

RETENTION_MS = 1000
EXPIRATION_MS = 50_000
DIRECTORY = "/data/topic-0"
MAGIC_AT = 16


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(seed=1)


@pytest.fixture
def bench(disk: MemoryDisk) -> Workbench:
    return Workbench(disk, DIRECTORY)


@pytest.fixture
def log(bench: Workbench) -> Log:
    return open_log(bench)


def open_log(bench: Workbench) -> Log:
    return bench.open(
        compact=True,
        delete=False,
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=RETENTION_MS,
        producer_id_expiration_ms=EXPIRATION_MS,
        index_interval_bytes=100,
    )


def write(log: Log, *batches: bytes) -> None:
    """One sealed segment."""
    for each in batches:
        log.append(each, leader_epoch=0)
    log.roll()
    log.sync()


def planned(log: Log) -> CompactionPlan:
    found = log.plan_compaction(high_watermark=log.synced_offset)
    assert found is not None
    if found.aborted_beyond is not None:
        return found
    end = found.end_offset
    aborted = log.aborted_transactions(offset=log.log_start_offset, end_offset=end)
    return replace(found, aborted_beyond=tuple(entry for entry in aborted if entry.last_offset >= end))


def compacted(bench: Workbench, log: Log, *, keys_max: int = 1000) -> CompactionResult:
    plan = planned(log)
    result = compact(bench.disk, bench.directory, plan, keys_max=keys_max)
    assert installed(log, plan, result)
    return result


def compacted_again(bench: Workbench, log: Log, *, after_ms: int = 0) -> CompactionResult:
    """Let time pass, write something unrelated, and compact."""
    bench.clock.advance(after_ms)
    write(log, keyed([(b"unrelated", b"")]))
    return compacted(bench, log)


def values(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every data record that is not the unrelated one."""
    found = []
    for each in log.batches(offset=log.log_start_offset):
        if not each.header.is_control:
            start = each.header.base_offset
            found += [record for record in records_of(log, offset=start) if record.offset <= each.header.last_offset]
    return [(record.offset, record.key, record.value) for record in found if record.key != b"unrelated"]


def headers(log: Log, wanted: Callable[[BatchHeader], bool] = lambda header: True) -> list[BatchHeader]:
    found = [each.header for each in log.batches(offset=log.log_start_offset)]
    return [header for header in found if wanted(header)]


def markers(log: Log) -> list[BatchHeader]:
    return headers(log, lambda header: header.is_control)


def transactional(producer_id: int, key: bytes, value: bytes | None, *, sequence: int = 0) -> bytes:
    return batch(value, key=key, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


# --- keys ------------------------------------------------------------------------------------------


def test_a_thousand_updates_of_ten_keys_leave_the_last_ten(bench: Workbench, log: Log) -> None:
    for start in range(0, 1000, 100):
        write(log, *(keyed([(b"%d" % (n % 10), b"v%d" % n)]) for n in range(start, start + 100)))
    result = compacted(bench, log)
    assert values(log) == [(n, b"%d" % (n % 10), b"v%d" % n) for n in range(990, 1000)]
    assert (result.records_removed, result.records_kept) == (990, 10)


def test_a_newer_record_in_the_same_batch_takes_the_place_of_an_older(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]))
    compacted(bench, log)
    assert values(log) == [(1, b"b", b"2"), (2, b"a", b"3")]


def test_records_without_a_key_stay(bench: Workbench, log: Log) -> None:
    write(log, keyed([(None, b"1"), (b"a", b"2"), (None, None), (b"a", b"3")]))
    compacted(bench, log)
    compacted_again(bench, log, after_ms=10 * RETENTION_MS)
    assert values(log) == [(0, None, b"1"), (2, None, None), (3, b"a", b"3")]


def test_an_empty_key_is_a_key(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"", b"1"), (b"", b"2")]))
    compacted(bench, log)
    assert values(log) == [(1, b"", b"2")]


def test_long_keys_are_told_apart(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"x" * 100 + b"1", b"1"), (b"x" * 100 + b"2", b"2"), (b"x" * 100 + b"1", b"3")]))
    compacted(bench, log)
    assert [value for _, _, value in values(log)] == [b"2", b"3"]


def test_a_key_that_is_the_digest_of_another_is_a_key_of_its_own() -> None:
    keys = KeyMap()
    keys.note(b"k" * (KEY_BYTES_MAX + 1), 1)
    [digest] = keys._offsets
    assert keys.newest(digest) == NEVER
    assert keys.newest(digest[1:]) == NEVER


def test_the_active_segment_is_left_alone(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]))
    log.append(keyed([(b"a", b"2"), (b"a", b"3")]), leader_epoch=0)
    log.sync()
    result = compacted(bench, log)
    assert result.records_removed == 0
    assert len(values(log)) == 3


def test_records_are_compared_with_what_was_compacted_before(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1"), (b"b", b"1")]))
    compacted(bench, log)
    write(log, keyed([(b"a", b"2")]))
    result = compacted(bench, log)
    assert values(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert (result.records_removed, result.records_kept) == (1, 2)


def test_shrunken_segments_become_one(bench: Workbench, log: Log) -> None:
    for n in range(5):
        write(log, keyed([(b"a", b"%d" % n)]))
    result = compacted(bench, log)
    assert result.outputs == (Output(0, 5),)
    assert bench.names(".log") == [f"{0:020d}.log", f"{5:020d}.log"]


def test_no_file_of_a_replaced_segment_is_left(bench: Workbench, log: Log) -> None:
    for n in range(5):
        write(log, keyed([(b"a", b"%d" % n)]))
    compacted(bench, log)
    assert {name.partition(".")[0] for name in bench.names() if name[0].isdigit()} == {f"{0:020d}", f"{5:020d}"}
    assert bench.names(".cleaned") == []


# --- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(bench: Workbench, log: Log, codec: Codec) -> None:
    write(log, keyed([(b"a", b"0")]), batch(b"1", key=b"b", codec=codec), keyed([(b"a", b"2")]))
    before = log.read(offset=1, bytes_max=10_000, end_offset=3)
    compacted(bench, log)
    assert log.read(offset=1, bytes_max=10_000, end_offset=3) == before


@pytest.mark.parametrize("codec", CODECS)
def test_what_stays_of_a_batch_keeps_offset_time_headers_and_codec(bench: Workbench, log: Log, codec: Codec) -> None:
    records = [
        (b"a", b"1", NOW_MS, ()),
        (b"b", b"2", NOW_MS + 5, (("h", b"x"), ("h", None))),
        (b"a", b"3", NOW_MS + 3, ()),
    ]
    write(log, bytes(build_batch(records, codec=codec)))
    compacted(bench, log)
    assert records_of(log) == [
        Record(1, NOW_MS + 5, b"b", b"2", (("h", b"x"), ("h", None))),
        Record(2, NOW_MS + 3, b"a", b"3", ()),
    ]
    [header] = headers(log)
    assert (header.base_offset, header.last_offset_delta, header.codec) == (0, 2, codec)


def test_a_batch_that_cannot_be_read_stays_and_hides_nothing(bench: Workbench, log: Log) -> None:
    unreadable = bytearray(keyed([(b"a", b"2"), (b"a", b"3")]))
    unreadable[-8:] = b"\xff" * 8
    seal(unreadable)
    write(log, keyed([(b"a", b"1")]), bytes(unreadable), keyed([(b"b", b"1")]))
    before = log.read(offset=0, bytes_max=10_000)
    result = compacted(bench, log)
    assert log.read(offset=0, bytes_max=10_000) == before
    assert (result.records_removed, result.records_kept) == (0, 4)


def test_sizes_before_and_after_are_told(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    size = log.size
    result = compacted(bench, log)
    assert (result.bytes_before, result.bytes_after) == (size, size // 2)
    assert log.size == size // 2


def test_the_indexes_are_those_of_any_other_segment(bench: Workbench, disk: MemoryDisk, log: Log) -> None:
    write(log, *(keyed([(b"%d" % (n % 30), b"v")], timestamp_ms=NOW_MS + n) for n in range(60)))
    compacted(bench, log)
    rebuilt = build_indexes(disk.open(path_of(0, ".log")), base_offset=0, interval_bytes=100)
    assert len(rebuilt.times) > 10
    assert disk.files()[path_of(0, ".index")] == rebuilt.offsets.to_bytes()
    assert disk.files()[path_of(0, ".timeindex")] == rebuilt.times.to_bytes()


# --- tombstones ------------------------------------------------------------------------------------


def test_a_tombstone_removes_older_values_and_stays(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), keyed([(b"a", None)]))
    compacted(bench, log)
    assert values(log) == [(1, b"a", None)]


def test_the_first_compaction_gives_a_tombstone_its_horizon(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", None), (b"b", b"1")], timestamp_ms=NOW_MS - 77))
    result = compacted(bench, log)
    [header] = headers(log)
    assert header.delete_horizon_ms == result.next_horizon_ms == NOW_MS + RETENTION_MS
    assert [record.timestamp_ms for record in records_of(log)] == [NOW_MS - 77] * 2


def test_a_later_compaction_does_not_move_the_horizon(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", None)]))
    compacted(bench, log)
    compacted_again(bench, log, after_ms=RETENTION_MS - 1)
    assert values(log) == [(0, b"a", None)]
    assert headers(log)[0].delete_horizon_ms == NOW_MS + RETENTION_MS


def test_a_tombstone_goes_when_its_horizon_has_come(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", None), (b"b", b"1")]))
    compacted(bench, log)
    result = compacted_again(bench, log, after_ms=RETENTION_MS)
    assert values(log) == [(1, b"b", b"1")]
    assert result.records_removed == 1
    assert result.next_horizon_ms is None


def test_a_horizon_is_never_beyond_the_last_timestamp_there_is(bench: Workbench) -> None:
    log = bench.open(compact=True, min_cleanable_dirty_ratio=0.0, delete_retention_ms=2**63 - 1)
    write(log, keyed([(b"a", None)]))
    compacted(bench, log)
    assert headers(log)[0].delete_horizon_ms == 2**63 - 1
    assert records_of(log) == [Record(0, NOW_MS, b"a", None, ())]


def test_a_tombstone_stamped_by_the_log_goes_too(bench: Workbench, log: Log) -> None:
    write(log, batch(None, b"1", key=b"a", timestamp_type=TimestampType.LOG_APPEND_TIME), batch(None, key=b"a"))
    compacted(bench, log)
    compacted_again(bench, log, after_ms=RETENTION_MS)
    assert values(log) == []


def test_a_segment_that_lost_everything_still_covers_its_offsets(bench: Workbench) -> None:
    log = bench.open(compact=True, min_cleanable_dirty_ratio=0.0, delete_retention_ms=RETENTION_MS, segment_bytes=100)
    write(log, keyed([(b"a", None)]))
    compacted(bench, log)
    sealed_at_ms = log.segments[0].created_ms
    compacted_again(bench, log, after_ms=RETENTION_MS)
    first = log.segments[0]
    assert (first.base_offset, first.end_offset, first.size) == (0, 1, 0)
    assert (first.max_timestamp_ms, first.created_ms) == (NO_TIMESTAMP, sealed_at_ms)


# --- transactions ----------------------------------------------------------------------------------


def test_committed_records_replace_older_ones_and_keep_their_marker(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), transactional(7, b"a", b"2"), marker(7, MarkerType.COMMIT))
    compacted(bench, log)
    assert values(log) == [(1, b"a", b"2")]
    assert [header.base_offset for header in markers(log)] == [2]


def test_aborted_records_go_and_never_count_as_the_newest(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), transactional(7, b"a", b"2"), marker(7, MarkerType.ABORT))
    result = compacted(bench, log)
    assert values(log) == [(0, b"a", b"1")]
    assert (result.records_removed, result.records_kept) == (1, 1)


def test_records_of_an_open_transaction_are_not_touched(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    write(log, transactional(7, b"a", b"3"), keyed([(b"a", b"4")]))
    result = compacted(bench, log)
    assert values(log) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]
    assert result.outputs == (Output(0, 2),)


def test_a_transaction_aborted_behind_the_sources_is_known_as_aborted(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), transactional(7, b"a", b"2"))
    log.append(marker(7, MarkerType.ABORT), leader_epoch=0)
    log.sync()
    compacted(bench, log)
    assert values(log) == [(0, b"a", b"1")]


def test_a_transaction_committed_behind_the_sources_is_known_as_committed(bench: Workbench, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), transactional(7, b"a", b"2"))
    log.append(marker(7, MarkerType.COMMIT), leader_epoch=0)
    log.sync()
    compacted(bench, log)
    assert values(log) == [(1, b"a", b"2")]


def test_without_word_of_what_lies_behind_compaction_stops_before_an_unfinished_transaction(
    bench: Workbench, log: Log
) -> None:
    write(log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    write(log, transactional(7, b"a", b"3"))
    log.append(marker(7, MarkerType.ABORT), leader_epoch=0)
    log.sync()
    plan = replace(planned(log), aborted_beyond=None)
    result = compact(bench.disk, bench.directory, plan)
    assert plan.end_offset == 3
    assert result.outputs == (Output(0, 2),)


def test_nothing_is_written_when_no_dirty_segment_can_be_taken(bench: Workbench, log: Log) -> None:
    write(log, transactional(7, b"a", b"3"))
    log.append(marker(7, MarkerType.ABORT), leader_epoch=0)
    log.sync()
    result = compact(bench.disk, bench.directory, replace(planned(log), aborted_beyond=None))
    assert result == CompactionResult((), 0, 0, 0, 0, None)
    assert bench.names(".cleaned") == []


@pytest.mark.parametrize("kind", MarkerType)
def test_a_marker_whose_records_are_gone_gets_a_horizon_and_then_goes(
    bench: Workbench, log: Log, kind: MarkerType
) -> None:
    write(log, transactional(7, b"a", b"1"), marker(7, kind), keyed([(b"a", b"2")]))
    # A younger transaction says where the producer stands, so that the older one may vanish.
    write(log, transactional(7, b"z", b"1", sequence=1), marker(7, MarkerType.COMMIT))
    compacted(bench, log)
    assert [header.delete_horizon_ms for header in markers(log)] == [None, None]
    compacted_again(bench, log)
    assert [header.delete_horizon_ms for header in markers(log)] == [NOW_MS + RETENTION_MS, None]
    compacted_again(bench, log, after_ms=RETENTION_MS - 1)
    assert len(markers(log)) == 2
    compacted_again(bench, log, after_ms=1)
    assert [header.base_offset for header in markers(log)] == [4]


def test_an_aborted_transaction_leaves_the_index_once_its_records_are_gone(bench: Workbench, log: Log) -> None:
    write(log, transactional(7, b"a", b"1"), marker(7, MarkerType.ABORT))
    write(log, transactional(7, b"z", b"1", sequence=1), marker(7, MarkerType.COMMIT))
    compacted(bench, log)
    assert log.aborted_transactions(offset=0, end_offset=log.end_offset) == [AbortedTransaction(7, 0, 1, 2)]
    compacted_again(bench, log)
    assert log.aborted_transactions(offset=0, end_offset=log.end_offset) == []


def test_two_transactions_of_one_producer_are_told_apart(bench: Workbench, log: Log) -> None:
    write(
        log,
        transactional(7, b"a", b"1"),
        marker(7, MarkerType.ABORT),
        transactional(7, b"b", b"2", sequence=1),
        marker(7, MarkerType.COMMIT),
        transactional(7, b"c", b"3", sequence=2),
        marker(7, MarkerType.ABORT),
    )
    compacted(bench, log)
    assert values(log) == [(2, b"b", b"2")]


def test_transactions_that_overlap_are_told_apart(bench: Workbench, log: Log) -> None:
    write(
        log,
        transactional(7, b"a", b"1"),
        transactional(8, b"a", b"2"),
        keyed([(b"b", b"3")]),
        marker(8, MarkerType.ABORT),
        marker(7, MarkerType.COMMIT),
    )
    compacted(bench, log)
    assert values(log) == [(0, b"a", b"1"), (2, b"b", b"3")]


def test_a_control_record_of_an_unknown_kind_stays(bench: Workbench, log: Log) -> None:
    unknown = build_batch([(b"\0\0\0\x63", b"", NOW_MS, ())], control=True)
    write(log, bytes(unknown))
    compacted(bench, log)
    compacted_again(bench, log, after_ms=10 * RETENTION_MS)
    assert [header.base_offset for header in markers(log)] == [0]


# --- producers -------------------------------------------------------------------------------------


def replayed(log: Log) -> ProducerStates:
    """What the log alone says of its producers, without any snapshot."""
    states = ProducerStates()
    for found in log.batches(offset=log.log_start_offset):
        replay_batch(states, found.header, found.data)
    return states


def test_the_last_batch_of_a_producer_stays_without_its_records(bench: Workbench, log: Log) -> None:
    write(log, sequenced(5, 0, count=2), sequenced(5, 2, count=3), keyed([(b"k", b"newest")]))
    compacted(bench, log)
    kept = headers(log, lambda header: header.has_producer)
    assert [(header.base_offset, header.last_offset, header.record_count) for header in kept] == [(2, 4, 0)]
    assert kept[0].size == HEADER_SIZE
    entry = replayed(log).entry(5)
    assert entry is not None
    assert entry.last_sequence == 4


def test_an_empty_batch_goes_when_its_producer_has_written_again(bench: Workbench, log: Log) -> None:
    write(log, sequenced(5, 0), keyed([(b"k", b"newest")]))
    compacted(bench, log)
    write(log, sequenced(5, 1))
    compacted(bench, log)
    assert [header.base_offset for header in headers(log, lambda header: header.has_producer)] == [2]


def test_an_empty_batch_goes_when_its_producer_is_forgotten(bench: Workbench, log: Log) -> None:
    write(log, sequenced(5, 0), keyed([(b"k", b"newest")]))
    compacted(bench, log)
    compacted_again(bench, log, after_ms=EXPIRATION_MS - 1)
    assert len(headers(log, lambda header: header.has_producer)) == 1
    compacted_again(bench, log, after_ms=1)
    assert headers(log, lambda header: header.has_producer) == []


def test_a_producer_whose_transaction_ends_behind_the_sources_is_not_forgotten(bench: Workbench, log: Log) -> None:
    write(log, transactional(7, b"a", b"1"))
    bench.clock.advance(EXPIRATION_MS)
    log.append(marker(7, MarkerType.ABORT), leader_epoch=0)
    log.sync()
    compacted(bench, log)
    entry = replayed(log).entry(7)
    assert entry is not None
    assert entry.last_sequence == 0


def test_the_last_marker_of_a_producer_stays_whole(bench: Workbench, log: Log) -> None:
    write(log, transactional(7, b"a", b"1"), marker(7, MarkerType.COMMIT, epoch=1, coordinator_epoch=3))
    write(log, keyed([(b"a", b"2")]))
    for _ in range(4):
        compacted_again(bench, log, after_ms=RETENTION_MS)
    entry = replayed(log).entry(7)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch) == (1, 3)
    assert [header.base_offset for header in headers(log, lambda header: header.has_producer)] == [1]


def test_an_empty_batch_answers_to_no_timestamp(bench: Workbench, log: Log) -> None:
    ahead = batch(b"v", key=b"k", timestamp_ms=NOW_MS + 50, producer_id=5, producer_epoch=0, base_sequence=0)
    write(log, keyed([(b"a", b"1")]), ahead, keyed([(b"k", b"newest")], timestamp_ms=NOW_MS - 10))
    compacted(bench, log)
    newest = log.newest(end_offset=3)
    assert newest is not None
    assert (newest.timestamp_ms, newest.offset) == (NOW_MS, 0)
    assert log.offset_for_timestamp(NOW_MS + 1) is None


def test_a_marker_that_another_program_emptied_goes(bench: Workbench, log: Log) -> None:
    full = marker(7, MarkerType.COMMIT)
    header = peek(full)
    empty = bytearray(pack_header(structs.replace(header, length=HEADER_SIZE - 12, record_count=0)))
    seal(empty)
    log.append_replicated(empty)
    write(log, keyed([(b"a", b"1")]))
    compacted(bench, log)
    assert markers(log) == []


# --- the limit of keys -----------------------------------------------------------------------------


def small_segments(bench: Workbench) -> Log:
    """Ten keys in each of four segments, the same ten in all."""
    log = open_log(bench)
    for n in range(4):
        write(log, keyed([(b"%d" % key, b"%d" % n) for key in range(10)]))
    return log


def test_a_key_that_comes_again_takes_no_more_room(bench: Workbench) -> None:
    log = small_segments(bench)
    # Ten keys are known after each segment, and the next may bring ten more.
    assert compacted(bench, log, keys_max=20).outputs == (Output(0, 40),)


def test_a_segment_that_might_bring_too_many_keys_waits_for_the_next_time(bench: Workbench) -> None:
    log = small_segments(bench)
    first = compacted(bench, log, keys_max=19)
    assert first.outputs == (Output(0, 10),)
    assert log.plan_compaction(high_watermark=log.synced_offset) is not None
    compacted(bench, log, keys_max=19)
    compacted(bench, log, keys_max=19)
    last = compacted(bench, log, keys_max=19)
    assert last.outputs == (Output(0, 40),)
    assert values(log) == [(30 + key, b"%d" % key, b"3") for key in range(10)]


def test_the_first_dirty_segment_is_taken_however_many_keys_it_has(bench: Workbench) -> None:
    log = small_segments(bench)
    assert compacted(bench, log, keys_max=0).outputs == (Output(0, 10),)


# --- faults ----------------------------------------------------------------------------------------


def path_of(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def damage(disk: MemoryDisk, path: str, position: int) -> None:
    file = disk.open(path)
    content = bytearray(file.read(position=0, size=file.size))
    content[position] ^= 0xFF
    file.truncate(0)
    file.append([content])
    file.close()


@pytest.mark.parametrize("position", [MAGIC_AT, HEADER_SIZE + 2], ids=["header", "records"])
def test_a_damaged_source_is_named_with_its_position(
    bench: Workbench, disk: MemoryDisk, log: Log, position: int
) -> None:
    first, second = keyed([(b"a", b"1")]), keyed([(b"a", b"2")])
    write(log, first, second)
    plan = planned(log)
    damage(disk, path_of(0, ".log"), len(first) + position)
    before = disk.files()
    with pytest.raises(StorageFault, match=rf"{path_of(0, '.log')}.*byte {len(first)}"):
        compact(disk, DIRECTORY, plan)
    assert disk.files() == before


def test_damage_in_a_clean_source_is_found_before_anything_is_swapped(
    bench: Workbench, disk: MemoryDisk, log: Log
) -> None:
    write(log, keyed([(b"a", b"1")]))
    compacted(bench, log)
    write(log, keyed([(b"a", b"2")]))
    plan = planned(log)
    damage(disk, path_of(0, ".log"), HEADER_SIZE + 2)
    before = disk.files()
    with pytest.raises(StorageFault, match="byte 0"):
        compact(disk, DIRECTORY, plan)
    assert disk.files() == before


@pytest.mark.parametrize("suffix", [".txnindex", ".seal"])
def test_a_source_with_a_missing_file_is_not_compacted(
    bench: Workbench, disk: MemoryDisk, log: Log, suffix: str
) -> None:
    write(log, keyed([(b"a", b"1")]))
    plan = planned(log)
    disk.remove(path_of(0, suffix))
    with pytest.raises(StorageFault, match=f"{suffix}.*missing"):
        compact(disk, DIRECTORY, plan)


def test_a_source_with_a_damaged_seal_is_not_compacted(bench: Workbench, disk: MemoryDisk, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]))
    plan = planned(log)
    damage(disk, path_of(0, ".seal"), 3)
    with pytest.raises(StorageFault, match="damaged"):
        compact(disk, DIRECTORY, plan)


def test_a_source_that_changed_since_the_plan_is_not_compacted(bench: Workbench, disk: MemoryDisk, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]))
    plan = planned(log)
    shorter = plan.sources[0]._replace(size=plan.sources[0].size - 1)
    with pytest.raises(StorageFault, match="changed"):
        compact(disk, DIRECTORY, replace(plan, groups=((shorter,),)))


@pytest.mark.parametrize("suffix", [".log.cleaned", ".index.cleaned", ".txnindex.cleaned", ".seal.cleaned"])
@pytest.mark.parametrize("operation", ["create", "append", "sync"])
def test_a_disk_that_fails_leaves_only_the_sources(
    bench: Workbench, disk: MemoryDisk, log: Log, operation: str, suffix: str
) -> None:
    write(log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    plan = planned(log)
    before = disk.files()
    disk.fail_next(operation, suffix, errno.EIO)
    with pytest.raises(StorageFault):
        compact(disk, DIRECTORY, plan)
    assert disk.files() == before


def test_a_full_disk_leaves_only_the_sources(bench: Workbench, disk: MemoryDisk, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), keyed([(b"b", b"2")]))
    plan = planned(log)
    before = disk.files()
    disk.capacity_bytes = disk.used_bytes() + 10
    with pytest.raises(DiskFull):
        compact(disk, DIRECTORY, plan)
    assert disk.files() == before


def test_leftovers_of_an_interrupted_compaction_do_not_get_into_the_next(
    bench: Workbench, disk: MemoryDisk, log: Log
) -> None:
    write(log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".seal"):
        file = disk.open(path_of(0, suffix) + ".cleaned", create=True)
        file.append([b"left behind"])
        file.close()
    compacted(bench, log)
    assert values(log) == [(1, b"a", b"2")]
    log.close()
    assert values(open_log(bench)) == [(1, b"a", b"2")]


def test_everything_is_durable_before_the_swap_is_decided(bench: Workbench, disk: MemoryDisk, log: Log) -> None:
    write(log, keyed([(b"a", b"1")]), transactional(7, b"b", b"1"), marker(7, MarkerType.ABORT))
    plan = planned(log)
    result = compact(disk, DIRECTORY, plan)

    def die(operation: str, moment: Moment) -> None:
        if operation.startswith("rename .log.cleaned"):
            raise Crash

    disk.on_operation = die
    with pytest.raises(Crash):
        installed(log, plan, result)
    disk.on_operation = None
    disk.crash()
    recovered = open_log(bench)
    assert values(recovered) == [(0, b"a", b"1")]
    assert decode(disk.files()[path_of(0, ".seal")]).cleaned


# --- the same work in another process --------------------------------------------------------------


def test_a_child_process_can_do_it(tmp_path: Path) -> None:
    bench = Workbench(OsDisk(), str(tmp_path / "topic-0"))
    log = open_log(bench)
    write(log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    plan = planned(log)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply(compact, (bench.disk, bench.directory, plan))
    assert installed(log, plan, result)
    assert values(log) == [(1, b"a", b"2")]


def test_a_result_survives_the_way_back() -> None:
    result = CompactionResult((Output(0, 10),), 1, 2, 3, 4, 5)
    assert pickle.loads(pickle.dumps(result)) == result
