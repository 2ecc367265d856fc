"""The inside of a batch: records and spans, and a name for everything that can be wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given

from ottla.errors import CorruptBatch, DecompressionTooLarge, InvalidBatch, InvalidText, TruncatedBatch
from ottla.records.batch import HEADER_SIZE, peek
from ottla.records.builder import build_batch
from ottla.records.compression import Codec, compress
from ottla.records.packing import RecordTuple
from ottla.records.reader import Record, read_batch, unpack
from ottla.records.varint import INT64_MAX, INT64_MIN, encode, read_int32, read_int64
from tests.records.samples import (
    BROKEN_HEADERS,
    BROKEN_PAYLOADS,
    NOT_UTF8,
    NOW_MS,
    PLAIN,
    TYPICAL,
    Implementation,
    as_given,
    compiled,
    header_bytes,
    raw_batch,
    raw_record,
    records,
)


def decode(implementation: Implementation, batch: bytes) -> list[Record]:
    header = peek(batch)
    return implementation.decode_records(header, unpack(header, batch))


@pytest.mark.parametrize("codec", Codec)
def test_key_value_timestamp_and_headers_survive(codec: Codec) -> None:
    assert as_given(read_batch(build_batch(TYPICAL, codec=codec))) == TYPICAL


@given(given_records=records)
def test_any_records_survive_in_both_implementations(given_records: list[RecordTuple]) -> None:
    batch = bytes(build_batch(given_records))
    for implementation in (PLAIN, compiled() or PLAIN):
        found = decode(implementation, batch)
        assert as_given(found) == given_records
        assert [record.offset for record in found] == list(range(len(given_records)))


@pytest.mark.parametrize("codec", Codec)
def test_keys_and_values_of_a_mebibyte_survive(codec: Codec) -> None:
    big = bytes(range(256)) * 4096
    given_records: list[RecordTuple] = [(big, big, NOW_MS, [("big", big)]), (None, b"", NOW_MS, []), (b"", big, 0, [])]
    assert as_given(read_batch(build_batch(given_records, codec=codec))) == given_records


def test_a_null_key_is_not_an_empty_key() -> None:
    found = read_batch(build_batch([(None, None, 0, []), (b"", b"", 0, [])]))
    assert [(record.key, record.value) for record in found] == [(None, None), (b"", b"")]


def test_offsets_count_from_the_base_offset() -> None:
    assert [record.offset for record in read_batch(build_batch(TYPICAL, base_offset=2**62))][:2] == [2**62, 2**62 + 1]


def test_offsets_may_have_gaps(implementation: Implementation) -> None:
    batch = raw_batch(raw_record(offset_delta=2) + raw_record(offset_delta=9), count=2, last_offset_delta=10)
    assert [record.offset for record in decode(implementation, batch)] == [2, 9]


def test_a_log_append_time_batch_gives_every_record_its_max_timestamp(implementation: Implementation) -> None:
    batch = raw_batch(
        raw_record(timestamp_delta=5) + raw_record(timestamp_delta=-7, offset_delta=1),
        count=2,
        attributes=0x08,
        max_timestamp=NOW_MS + 99,
    )
    assert [record.timestamp_ms for record in decode(implementation, batch)] == [NOW_MS + 99, NOW_MS + 99]


def test_deltas_count_from_the_delete_horizon_when_there_is_one(implementation: Implementation) -> None:
    batch = raw_batch(raw_record(timestamp_delta=-1_000), attributes=0x40, base_timestamp=NOW_MS + 1_000)
    assert decode(implementation, batch)[0].timestamp_ms == NOW_MS


def test_timestamps_wrap_as_in_java(implementation: Implementation) -> None:
    batch = raw_batch(raw_record(timestamp_delta=1), base_timestamp=INT64_MAX)
    assert decode(implementation, batch)[0].timestamp_ms == INT64_MIN


def test_a_header_only_batch_has_no_records(implementation: Implementation) -> None:
    assert decode(implementation, raw_batch(b"", count=0)) == []
    assert decode(implementation, raw_batch(b"", count=0, attributes=int(Codec.ZSTD))) == []


def test_bytes_after_the_batch_are_not_looked_at() -> None:
    assert len(read_batch(bytes(build_batch(TYPICAL)) + b"more")) == len(TYPICAL)


@pytest.mark.parametrize("payload", BROKEN_PAYLOADS.values(), ids=BROKEN_PAYLOADS.keys())
def test_a_broken_payload_is_invalid(implementation: Implementation, payload: bytes) -> None:
    with pytest.raises(InvalidBatch) as caught:
        decode(implementation, raw_batch(payload))
    assert not isinstance(caught.value, InvalidText)


@pytest.mark.parametrize("payload", BROKEN_PAYLOADS.values(), ids=BROKEN_PAYLOADS.keys())
def test_a_broken_payload_has_no_spans(implementation: Implementation, payload: bytes) -> None:
    batch = raw_batch(payload)
    # Where the content of a record is wrong only after the value, spans have no reason to look.
    if payload == BROKEN_PAYLOADS["a record longer than its content"]:
        assert len(list(implementation.spans(peek(batch), payload))) == 1
        return
    with pytest.raises(InvalidBatch):
        list(implementation.spans(peek(batch), unpack(peek(batch), batch)))


@pytest.mark.parametrize("headers", BROKEN_HEADERS.values(), ids=BROKEN_HEADERS.keys())
def test_broken_headers_are_invalid(implementation: Implementation, headers: bytes) -> None:
    with pytest.raises(InvalidBatch) as caught:
        decode(implementation, raw_batch(raw_record(headers=headers)))
    assert not isinstance(caught.value, InvalidText)


@pytest.mark.parametrize("key", NOT_UTF8)
def test_a_header_key_that_is_not_utf8_has_an_error_of_its_own(implementation: Implementation, key: bytes) -> None:
    with pytest.raises(InvalidText):
        decode(implementation, raw_batch(raw_record(headers=header_bytes(key))))


def test_a_header_key_that_is_not_utf8_does_not_hide_the_span(implementation: Implementation) -> None:
    payload = raw_record(headers=header_bytes(b"\xff"))
    assert [span.key for span in implementation.spans(peek(raw_batch(payload)), payload)] == [b"k"]


def test_spans_say_where_each_record_lies(implementation: Implementation) -> None:
    one = raw_record(key=None, value=None, timestamp_delta=70_000)
    two = raw_record(key=b"", value=b"", offset_delta=3, headers=header_bytes(b"h"))
    batch = raw_batch(one + two, count=2, last_offset_delta=3)
    assert list(implementation.spans(peek(batch), one + two)) == [
        (0, 70_000, None, True, 0, len(one)),
        (3, 0, b"", False, len(one), len(one) + len(two)),
    ]


def test_spans_of_many_records_cover_the_payload(implementation: Implementation) -> None:
    batch = build_batch([(b"%d" % n, b"v", NOW_MS, ()) for n in range(5_000)])
    header = peek(batch)
    found = list(implementation.spans(header, unpack(header, batch)))
    assert [span.key for span in found] == [b"%d" % n for n in range(5_000)]
    assert [span.end for span in found] == [*(span.start for span in found[1:]), len(batch) - HEADER_SIZE]


@pytest.mark.parametrize("count", [0, 2, 2**31 - 1])
def test_a_wrong_record_count_is_invalid(count: int) -> None:
    with pytest.raises(InvalidBatch):
        read_batch(raw_batch(raw_record(), record_count=count))


def test_a_batch_that_would_end_beyond_the_last_offset_is_invalid() -> None:
    with pytest.raises(InvalidBatch, match="last offset"):
        read_batch(raw_batch(raw_record() + raw_record(offset_delta=1), count=2, base_offset=INT64_MAX))


def test_a_wrong_checksum_is_corrupt_unless_it_was_checked_already() -> None:
    batch = build_batch(TYPICAL)
    batch[17] ^= 1
    with pytest.raises(CorruptBatch):
        read_batch(batch)
    assert len(read_batch(batch, checked=True)) == len(TYPICAL)


@pytest.mark.parametrize("checked", [False, True])
def test_a_batch_cut_in_its_records_is_truncated(checked: bool) -> None:
    with pytest.raises(TruncatedBatch):
        read_batch(build_batch(TYPICAL)[:-1], checked=checked)


def test_a_batch_that_unpacks_to_too_much_is_refused() -> None:
    batch = build_batch([(None, bytes(100_000), 0, ())], codec=Codec.GZIP)
    with pytest.raises(DecompressionTooLarge):
        read_batch(batch, decompressed_bytes_max=99_999)


def test_records_after_the_decompressed_ones_are_invalid() -> None:
    payload = compress(Codec.LZ4, raw_record() + b"\x00")
    with pytest.raises(InvalidBatch):
        read_batch(raw_batch(payload, attributes=int(Codec.LZ4)))


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -(2**31)])
def test_numbers_of_32_bits_come_back(value: int) -> None:
    assert read_int32(encode(value), 0) == (value, len(encode(value)))


@pytest.mark.parametrize("value", [0, -1, 2**31, INT64_MAX, INT64_MIN])
def test_numbers_of_64_bits_come_back(value: int) -> None:
    assert read_int64(encode(value), 0) == (value, len(encode(value)))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\x10", b"\x80" * 5 + b"\x00"])
def test_a_number_that_does_not_fit_32_bits_is_invalid(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        read_int32(data, 0)
