"""Taking records out of a batch, as compaction does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.errors import BatchError, CorruptBatch
from ottla.records.batch import TimestampType, check, peek, restamp_append_time
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.filter import filter_batch
from ottla.records.packing import RecordTuple
from ottla.records.reader import read_batch, unpack
from ottla.records.varint import INT64_MAX
from tests.records.samples import NOW_MS, TYPICAL, header_bytes, raw_batch, raw_record, records


@pytest.mark.parametrize("codec", Codec)
def test_the_records_that_are_kept_keep_offset_and_content(codec: Codec) -> None:
    batch = build_batch(TYPICAL, codec=codec, base_offset=100)
    kept = filter_batch(batch, lambda offset, key, value_is_null: offset % 2 == 0)
    assert read_batch(kept) == [record for record in read_batch(batch) if record.offset % 2 == 0]


def test_the_caller_is_asked_about_each_record() -> None:
    asked: list[tuple[int, bytes | None, bool]] = []

    def keep(offset: int, key: bytes | None, value_is_null: bool) -> bool:
        asked.append((offset, key, value_is_null))
        return False

    filter_batch(build_batch(TYPICAL[2:6], base_offset=10), keep)
    assert asked == [(10, b"", False), (11, b"tombstone", True), (12, b"empty value", False), (13, None, True)]


def test_the_batch_keeps_its_place_its_producer_and_its_codec() -> None:
    batch = build_batch(
        TYPICAL,
        codec=Codec.LZ4,
        base_offset=100,
        leader_epoch=4,
        producer_id=8,
        producer_epoch=2,
        base_sequence=30,
        transactional=True,
    )
    before = peek(batch)
    after = check(filter_batch(batch, lambda offset, key, value_is_null: offset == 103))
    assert after == replace(
        before, length=after.length, crc=after.crc, record_count=1, max_timestamp=NOW_MS + 1_000_000
    )
    assert (after.last_offset, after.last_sequence) == (106, 36)


def test_the_max_timestamp_is_that_of_what_stays() -> None:
    batch = build_batch([(None, b"", NOW_MS + shift, ()) for shift in (0, 50, -10)])
    assert peek(filter_batch(batch, lambda offset, *_: offset != 1)).max_timestamp == NOW_MS
    assert peek(filter_batch(batch, lambda offset, *_: offset == 2)).max_timestamp == NOW_MS - 10


def test_a_log_append_time_batch_keeps_its_max_timestamp() -> None:
    batch = build_batch(TYPICAL)
    restamp_append_time(batch, timestamp_ms=NOW_MS + 5)
    for horizon_ms in (None, NOW_MS + 1_000):
        kept = filter_batch(batch, lambda offset, *_: offset > 4, delete_horizon_ms=horizon_ms)
        assert peek(kept).timestamp_type is TimestampType.LOG_APPEND_TIME
        assert {record.timestamp_ms for record in read_batch(kept)} == {NOW_MS + 5}


def test_the_bytes_of_a_record_are_copied_as_they_are() -> None:
    odd = raw_record(attributes=0x55, offset_delta=1, headers=header_bytes(b"\xff not text"))
    kept = filter_batch(raw_batch(raw_record() + odd, count=2), lambda offset, *_: offset == 1)
    assert unpack(peek(kept), kept) == odd


def test_nothing_taken_out_gives_the_same_bytes() -> None:
    batch = bytes(build_batch(TYPICAL, codec=Codec.GZIP))
    assert filter_batch(batch, lambda *_: True) is batch
    assert filter_batch(batch + b"the next batch", lambda *_: True) == batch


@pytest.mark.parametrize("codec", Codec)
def test_everything_taken_out_leaves_a_header_without_records(codec: Codec) -> None:
    batch = build_batch(TYPICAL, codec=codec, base_offset=100, producer_id=8, producer_epoch=2, base_sequence=30)
    empty = filter_batch(batch, lambda *_: False, delete_horizon_ms=NOW_MS)
    header = check(empty)
    assert (len(empty), header.record_count, header.codec, read_batch(empty)) == (61, 0, 0, [])
    assert (header.base_offset, header.last_offset, header.producer_id, header.last_sequence) == (100, 106, 8, 36)


def test_a_header_only_batch_stays_as_it_is() -> None:
    empty = raw_batch(b"", count=0, last_offset_delta=6)
    assert filter_batch(empty, lambda *_: True) is empty


@pytest.mark.parametrize("codec", Codec)
def test_a_new_delete_horizon_is_written_and_leaves_the_timestamps(codec: Codec) -> None:
    batch = build_batch(TYPICAL, codec=codec)
    marked = filter_batch(batch, lambda *_: True, delete_horizon_ms=NOW_MS + 123_456)
    assert peek(marked).delete_horizon_ms == NOW_MS + 123_456
    assert peek(marked).max_timestamp == peek(batch).max_timestamp
    assert read_batch(marked) == read_batch(batch)


def test_a_delete_horizon_stays_through_later_passes() -> None:
    marked = filter_batch(build_batch(TYPICAL), lambda *_: True, delete_horizon_ms=NOW_MS + 99)
    later = filter_batch(marked, lambda offset, *_: offset > 2)
    assert peek(later).delete_horizon_ms == NOW_MS + 99
    assert read_batch(later) == read_batch(marked)[3:]


def test_the_same_delete_horizon_again_changes_nothing() -> None:
    marked = filter_batch(build_batch(TYPICAL), lambda *_: True, delete_horizon_ms=NOW_MS + 99)
    assert filter_batch(marked, lambda *_: True, delete_horizon_ms=NOW_MS + 99) is marked


def test_a_batch_with_a_wrong_checksum_is_not_given_a_right_one() -> None:
    batch = build_batch(TYPICAL)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        filter_batch(batch, lambda *_: False)


def test_a_bound_on_the_decompressed_bytes_is_passed_on() -> None:
    with pytest.raises(BatchError):
        filter_batch(build_batch(TYPICAL, codec=Codec.GZIP), lambda *_: True, decompressed_bytes_max=100)


@given(given_records=records, data=st.data())
def test_filtering_agrees_with_a_filter_on_the_records(given_records: list[RecordTuple], data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(Codec))
    horizon_ms = data.draw(st.none() | st.integers(0, INT64_MAX))
    wanted = data.draw(st.sets(st.integers(0, len(given_records) - 1)))
    batch = build_batch(given_records, codec=codec)
    kept = filter_batch(batch, lambda offset, *_: offset in wanted, delete_horizon_ms=horizon_ms)
    assert read_batch(kept) == [record for record in read_batch(batch) if record.offset in wanted]
    if wanted:
        assert peek(kept).max_timestamp == max(record.timestamp_ms for record in read_batch(kept))
