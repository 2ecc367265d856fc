"""Building batches: what comes out, and which records no batch can hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from ottla.errors import InvalidRecord, UnsupportedCompression
from ottla.records.batch import HEADER_SIZE, TimestampType, check, peek
from ottla.records.builder import RECORDS_BYTES_MAX, build_batch
from ottla.records.compression import Codec
from ottla.records.packing import RecordTuple
from ottla.records.reader import read_batch
from ottla.records.varint import INT64_MAX, INT64_MIN
from tests.records.samples import NOW_MS, PLAIN, TYPICAL, Implementation, compiled, records

GOOD: RecordTuple = (b"k", b"v", NOW_MS, ())


class Bytes(bytes):
    """A kind of bytes."""


class Text(str):
    """A kind of text."""


BAD_RECORDS: dict[str, Any] = {
    "no tuple": 7,
    "None": None,
    "three fields": (b"k", b"v", 0),
    "five fields": (b"k", b"v", 0, (), ()),
    "a key of text": ("k", b"v", 0, ()),
    "a key of a mutable kind": (bytearray(b"k"), b"v", 0, ()),
    "a value of a number": (b"k", 5, 0, ()),
    "a timestamp of None": (b"k", b"v", None, ()),
    "a timestamp of a fraction": (b"k", b"v", 1.5, ()),
    "a timestamp above 64 bits": (b"k", b"v", 2**63, ()),
    "a timestamp below 64 bits": (b"k", b"v", -(2**63) - 1, ()),
    "headers of None": (b"k", b"v", 0, None),
    "headers of a number": (b"k", b"v", 0, 3),
    "a header that is no pair": (b"k", b"v", 0, [b"h"]),
    "a header of three": (b"k", b"v", 0, [("h", b"v", b"w")]),
    "a header that is a number": (b"k", b"v", 0, [5]),
    "a header key of bytes": (b"k", b"v", 0, [(b"h", b"v")]),
    "a header key of None": (b"k", b"v", 0, [(None, b"v")]),
    "a header key that is half a character": (b"k", b"v", 0, [("\ud800", b"v")]),
    "a header value of text": (b"k", b"v", 0, [("h", "v")]),
}


@pytest.mark.parametrize("bad", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_a_record_that_no_batch_can_hold_is_named_by_its_index(implementation: Implementation, bad: Any) -> None:
    with pytest.raises(InvalidRecord, match="record 2"):
        implementation.pack_records([GOOD, GOOD, bad, GOOD], RECORDS_BYTES_MAX)


@pytest.mark.parametrize("nothing", [[], (), iter(())])
def test_a_batch_needs_at_least_one_record(implementation: Implementation, nothing: Any) -> None:
    with pytest.raises(InvalidRecord, match="at least one"):
        implementation.pack_records(nothing, RECORDS_BYTES_MAX)


def test_records_that_are_no_sequence_are_refused(implementation: Implementation) -> None:
    with pytest.raises(InvalidRecord):
        implementation.pack_records(5, RECORDS_BYTES_MAX)  # type: ignore[arg-type]


def test_lists_and_kinds_of_bytes_and_text_are_as_good(implementation: Implementation) -> None:
    expected = implementation.pack_records([(b"k", b"v", 1, (("h", b"x"),))], RECORDS_BYTES_MAX)
    same: Any = [[Bytes(b"k"), Bytes(b"v"), True, [[Text("h"), Bytes(b"x")]]]]
    assert implementation.pack_records(same, RECORDS_BYTES_MAX) == expected


def test_the_bound_on_the_records_is_inclusive(implementation: Implementation) -> None:
    size = len(implementation.pack_records(TYPICAL, RECORDS_BYTES_MAX)[0]) - HEADER_SIZE
    assert len(implementation.pack_records(TYPICAL, size)[0]) == HEADER_SIZE + size
    with pytest.raises(InvalidRecord, match=f"record {len(TYPICAL) - 1}: .* beyond"):
        implementation.pack_records(TYPICAL, size - 1)


def test_an_error_from_the_callers_own_iterator_is_the_callers(implementation: Implementation) -> None:
    def failing() -> Any:
        yield GOOD
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        implementation.pack_records(failing(), RECORDS_BYTES_MAX)


VALUES = (b"", b"v", b"v" * 63, b"v" * 64, b"v" * 9_000) * 50


def test_values_alone_are_packed_as_records_without_key_and_headers(implementation: Implementation) -> None:
    expected = PLAIN.pack_records([(None, value, NOW_MS, ()) for value in VALUES], RECORDS_BYTES_MAX)
    assert implementation.pack_values(VALUES, timestamp_ms=NOW_MS, bytes_max=RECORDS_BYTES_MAX) == expected


@pytest.mark.parametrize("others", [(), (b"v", None), ("v",), (b"v", Bytes(b"v")), (b"v", bytearray(b"v")), (5, b"v")])
def test_what_is_not_bytes_throughout_is_left_to_others(implementation: Implementation, others: Any) -> None:
    assert implementation.pack_values(others, timestamp_ms=NOW_MS, bytes_max=RECORDS_BYTES_MAX) is None


def test_the_bound_on_values_is_inclusive(implementation: Implementation) -> None:
    packed = implementation.pack_values(VALUES, timestamp_ms=NOW_MS, bytes_max=RECORDS_BYTES_MAX)
    assert packed is not None
    size = len(packed[0]) - HEADER_SIZE
    assert implementation.pack_values(VALUES, timestamp_ms=NOW_MS, bytes_max=size) == packed
    with pytest.raises(InvalidRecord, match=f"record {len(VALUES) - 1}: .* beyond"):
        implementation.pack_values(VALUES, timestamp_ms=NOW_MS, bytes_max=size - 1)


@given(given_records=records)
def test_both_implementations_give_the_same_bytes(given_records: list[RecordTuple]) -> None:
    other = compiled()
    if other is None:
        pytest.skip("the compiled kernel is not in use")
    packed = PLAIN.pack_records(given_records, RECORDS_BYTES_MAX)
    assert other.pack_records(given_records, RECORDS_BYTES_MAX) == packed


def test_ten_thousand_records_of_mixed_sizes_give_the_same_bytes(kernel_implementation: Implementation) -> None:
    many: list[RecordTuple] = [
        (
            b"k" * (n % 70),
            b"v" * (n * 7 % 300) if n % 11 else None,
            NOW_MS - n * n,
            [("h", b"x" * n)] if n < 300 else [],
        )
        for n in range(10_000)
    ]
    assert kernel_implementation.pack_records(many, RECORDS_BYTES_MAX) == PLAIN.pack_records(many, RECORDS_BYTES_MAX)


@pytest.mark.parametrize("codec", Codec)
def test_a_built_batch_has_a_right_checksum_and_its_codec(codec: Codec) -> None:
    header = check(build_batch(TYPICAL, codec=codec))
    assert (header.codec, header.record_count, header.last_offset_delta) == (codec, 7, 6)


def test_the_base_timestamp_is_the_first_and_the_max_timestamp_the_largest() -> None:
    header = peek(build_batch([(None, b"", stamp, ()) for stamp in (50, 70, 40)]))
    assert (header.base_timestamp, header.max_timestamp) == (50, 70)


@pytest.mark.parametrize("stamps", [[-1], [-5_000, 3], [INT64_MIN, INT64_MAX], [INT64_MAX, INT64_MIN, 0]])
def test_negative_and_extreme_timestamps_survive(stamps: list[int]) -> None:
    batch = build_batch([(None, b"", stamp, ()) for stamp in stamps])
    assert [record.timestamp_ms for record in read_batch(batch)] == stamps
    assert peek(batch).max_timestamp == max(stamps)


def test_a_log_append_time_batch_says_so() -> None:
    batch = build_batch(TYPICAL, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert peek(batch).timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_codec_that_does_not_exist_is_unsupported() -> None:
    with pytest.raises(UnsupportedCompression):
        build_batch(TYPICAL, codec=6)


def test_a_level_reaches_the_codec() -> None:
    many: list[RecordTuple] = [(b"%d" % n, b"%d" % (n * n), NOW_MS, ()) for n in range(2_000)]
    assert build_batch(many, codec=Codec.ZSTD, level=19) != build_batch(many, codec=Codec.ZSTD)


@pytest.mark.parametrize(
    "field",
    [
        {"base_offset": 2**63},
        {"base_offset": 2**63 - 3},
        {"leader_epoch": 2**31},
        {"producer_id": -(2**63) - 1},
        {"producer_epoch": 2**15},
        {"base_sequence": 2**31},
    ],
)
def test_a_batch_field_that_does_not_fit_is_refused(field: dict[str, int]) -> None:
    with pytest.raises(InvalidRecord):
        build_batch(TYPICAL, **field)  # type: ignore[arg-type]
