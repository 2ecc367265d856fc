"""The outside of a batch: header, checksum, offsets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ottla.errors import CorruptBatch, InvalidBatch, TruncatedBatch, UnsupportedBatch
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    TimestampType,
    check,
    pack_header,
    peek,
    prefix,
    restamp,
    restamp_append_time,
    walk,
)
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.reader import read_batch
from tests.records.samples import NOW_MS, TYPICAL, raw_batch, raw_record


def test_every_field_of_the_header_comes_back() -> None:
    batch = build_batch(
        TYPICAL,
        codec=Codec.ZSTD,
        base_offset=2**40,
        leader_epoch=7,
        producer_id=2**50,
        producer_epoch=3,
        base_sequence=41,
        transactional=True,
    )

    header = peek(batch)

    assert header == BatchHeader(
        base_offset=2**40,
        length=len(batch) - LOG_OVERHEAD,
        leader_epoch=7,
        magic=2,
        crc=header.crc,
        attributes=0x14,
        last_offset_delta=len(TYPICAL) - 1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS + 1_000_000,
        producer_id=2**50,
        producer_epoch=3,
        base_sequence=41,
        record_count=len(TYPICAL),
    )
    assert (header.size, header.last_offset, header.next_offset) == (len(batch), 2**40 + 6, 2**40 + 7)
    assert (header.codec, header.is_transactional, header.is_control) == (4, True, False)
    assert (header.has_producer, header.last_sequence) == (True, 47)


def test_a_header_packs_to_the_bytes_it_was_read_from() -> None:
    batch = build_batch(TYPICAL)
    assert pack_header(peek(batch)) == batch[:HEADER_SIZE]


def test_a_batch_without_a_producer_has_no_last_sequence() -> None:
    header = peek(build_batch(TYPICAL))
    assert (header.has_producer, header.last_sequence) == (False, -1)


def test_the_last_sequence_wraps_to_zero_after_the_largest() -> None:
    header = peek(build_batch([(None, b"v", NOW_MS, ())] * 3, producer_id=1, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_the_delete_horizon_is_the_base_timestamp_when_its_bit_is_set() -> None:
    assert peek(raw_batch(raw_record(), attributes=0x40)).delete_horizon_ms == NOW_MS
    assert peek(raw_batch(raw_record())).delete_horizon_ms is None


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_a_header_cut_anywhere_is_truncated(size: int) -> None:
    with pytest.raises(TruncatedBatch):
        peek(build_batch(TYPICAL)[:size])


def test_a_batch_cut_after_its_header_is_truncated_only_for_the_check() -> None:
    batch = bytes(build_batch(TYPICAL)[:-1])
    assert peek(batch).record_count == len(TYPICAL)
    with pytest.raises(TruncatedBatch):
        check(batch)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_another_magic_is_unsupported(magic: int) -> None:
    with pytest.raises(UnsupportedBatch, match=f"magic {magic}"):
        peek(raw_batch(raw_record(), magic=magic))


@pytest.mark.parametrize("field", [{"length": 48}, {"length": -1}, {"last_offset_delta": -1}, {"record_count": -1}])
def test_an_impossible_header_field_is_invalid(field: dict[str, int]) -> None:
    with pytest.raises(InvalidBatch):
        peek(raw_batch(raw_record(), **field))


def test_a_flipped_bit_anywhere_under_the_checksum_is_corrupt() -> None:
    batch = build_batch([(b"k", b"v", NOW_MS, [("h", b"x")])])
    for position in range(21, len(batch)):
        changed = bytearray(batch)
        changed[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            check(changed)


def test_walking_gives_whole_batches_and_leaves_a_cut_off_last_one() -> None:
    one, two = bytes(build_batch(TYPICAL)), bytes(build_batch(TYPICAL[:2], base_offset=7))
    for cut in (1, 60, 61, len(two) - 1):
        found = list(walk(one + two + two[:cut]))
        assert [(position, header.base_offset) for position, header in found] == [(0, 0), (len(one), 7)]


def test_walking_can_begin_at_any_batch() -> None:
    one, two = bytes(build_batch(TYPICAL)), bytes(build_batch(TYPICAL[:2], base_offset=7))
    assert [header.base_offset for _, header in walk(one + two, len(one))] == [7]


def test_restamping_gives_a_new_place_without_a_new_checksum() -> None:
    batch = build_batch(TYPICAL)
    before = check(batch)
    restamp(batch, base_offset=99, leader_epoch=4)
    after = check(batch)
    assert after == replace(before, base_offset=99, leader_epoch=4)
    assert [record.offset for record in read_batch(batch)] == list(range(99, 106))


def test_the_prefix_is_what_restamping_writes() -> None:
    batch = build_batch(TYPICAL)
    restamp(batch, base_offset=99, leader_epoch=4)
    assert prefix(99, peek(batch).length, 4) == batch[:16]


def test_append_time_is_stamped_with_a_new_checksum_and_counts_for_every_record() -> None:
    batch = build_batch(TYPICAL)
    restamp_append_time(batch, timestamp_ms=NOW_MS + 77)
    assert check(batch).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp_ms for record in read_batch(batch)} == {NOW_MS + 77}
