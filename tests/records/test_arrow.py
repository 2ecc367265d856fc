"""Batches to Arrow columns and back, by the compiled kernel and by its fall-back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import CorruptBatch, InvalidBatch, InvalidRecord, InvalidText
from ottla.records import arrow, kernel
from ottla.records.arrow import HEADERS_TYPE, SCHEMA, collect, from_arrow, pack_compiled, pack_plain, to_arrow
from ottla.records.batch import restamp_append_time
from ottla.records.builder import RECORDS_BYTES_MAX, build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType, build_marker
from ottla.records.packing import Packed, RecordTuple, pack_records
from ottla.records.reader import read_batch
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

EVERY_COLUMN = tuple(SCHEMA.names)
EVERYTHING = 63
WITHOUT_HEADERS = 31

Pack = Callable[..., Packed]


@pytest.fixture
def pack(is_compiled: bool) -> Pack:
    """Both ways from Arrow to packed records."""
    return pack_compiled if is_compiled else pack_plain


def columns_of(implementation: Implementation, run: bytes, *, flags: int = EVERYTHING, **limits: Any) -> Any:
    """What to_arrow gives, from the implementation that is asked for."""
    builder = implementation.columns(flags)
    next_offset = collect(run, builder, **limits)
    wanted = [name for name in SCHEMA.names if flags & arrow._FLAGS[name]]
    found = arrow._assemble(builder.take(), wanted, next_offset)
    found.rows.validate(full=True)
    return found


def as_rows(found: Any) -> list[dict[str, Any]]:
    plain = found.rows
    if "timestamp" in plain.schema.names:
        at = plain.schema.get_field_index("timestamp")
        plain = plain.set_column(at, "timestamp", plain.column(at).view(pa.int64()))
    rows: list[dict[str, Any]] = plain.to_pylist()
    return rows


def expected_rows(batch: bytes | bytearray, timestamp_type: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestampType": timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for record in read_batch(batch)
    ]


def run_of(*sizes: int, codec: Codec = Codec.NONE) -> bytes:
    """Batches of so many records each, at consecutive offsets."""
    run, offset = b"", 0
    for size in sizes:
        given_records: list[RecordTuple] = [(b"k%d" % n, b"v%d" % n, NOW_MS + n, ()) for n in range(size)]
        run += build_batch(given_records, base_offset=offset, codec=codec)
        offset += size
    return run


@pytest.mark.parametrize("codec", Codec)
def test_every_column_holds_what_the_records_do(implementation: Implementation, codec: Codec) -> None:
    batch = bytes(build_batch(TYPICAL, codec=codec, base_offset=50))
    found = columns_of(implementation, batch)
    assert as_rows(found) == expected_rows(batch)
    assert (found.row_count, found.next_offset) == (len(TYPICAL), 57)


@given(given_records=records)
def test_any_records_give_the_same_columns_in_both_implementations(given_records: list[RecordTuple]) -> None:
    batch = bytes(build_batch(given_records))
    for implementation in (PLAIN, compiled() or PLAIN):
        assert as_rows(columns_of(implementation, batch)) == expected_rows(batch)


@pytest.mark.parametrize("columns", [("value",), ("offset", "key"), EVERY_COLUMN, ("timestampType", "timestamp")])
def test_only_the_columns_asked_for_come_in_the_order_asked_for(columns: tuple[str, ...]) -> None:
    found = to_arrow(build_batch(TYPICAL), columns=columns)
    assert found.rows.schema == pa.schema([SCHEMA.field(name) for name in columns])
    assert found.rows.equals(to_arrow(build_batch(TYPICAL), columns=EVERY_COLUMN).rows.select(columns))


def test_rows_are_counted_also_without_columns(implementation: Implementation) -> None:
    assert columns_of(implementation, run_of(3, 4), flags=0).row_count == 7


def test_a_column_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="'topic'"):
        to_arrow(b"", columns=("value", "topic"))


def test_many_batches_become_one_run_of_rows(implementation: Implementation) -> None:
    found = columns_of(implementation, run_of(100, 1, 999, 3_000))
    assert found.rows.column("offset").to_pylist() == list(range(4_100))


@pytest.mark.parametrize(("start", "end"), [(0, 30), (5, 25), (10, 20), (12, 13), (15, 15), (29, 99), (40, 50)])
def test_rows_outside_the_offsets_are_left_out(implementation: Implementation, start: int, end: int) -> None:
    found = columns_of(implementation, run_of(10, 10, 10), start_offset=start, end_offset=end)
    assert found.rows.column("offset").to_pylist() == list(range(start, min(end, 30)))


@pytest.mark.parametrize(
    ("start", "end", "following"), [(0, 99, 30), (0, 15, 15), (0, 10, 10), (35, 99, 35), (0, 0, 0)]
)
def test_reading_goes_on_after_the_last_batch_or_at_the_end_asked_for(start: int, end: int, following: int) -> None:
    assert to_arrow(run_of(10, 10, 10), start_offset=start, end_offset=end).next_offset == following


def test_a_cut_off_last_batch_is_left_for_the_next_fetch(implementation: Implementation) -> None:
    run = run_of(10, 10)
    found = columns_of(implementation, run[:-1])
    assert (found.row_count, found.next_offset) == (10, 10)


def test_nothing_to_read_gives_no_rows(implementation: Implementation) -> None:
    found = columns_of(implementation, b"", start_offset=7)
    assert (found.row_count, found.next_offset, as_rows(found)) == (0, 7, [])


def test_log_append_time_shows_in_the_timestamp_and_its_type(implementation: Implementation) -> None:
    batch = build_batch(TYPICAL)
    restamp_append_time(batch, timestamp_ms=NOW_MS + 9)
    assert as_rows(columns_of(implementation, bytes(batch))) == expected_rows(batch, timestamp_type=1)


def test_control_batches_and_aborted_transactions_are_left_out(implementation: Implementation) -> None:
    kept = build_batch([(None, b"kept", 0, ())], base_offset=2)
    lost = build_batch([(None, b"lost", 0, ())] * 2, producer_id=5, transactional=True)
    end = build_marker(
        MarkerType.ABORT, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=3
    )
    found = columns_of(implementation, bytes(lost + kept + end), aborted=[(5, 0)])
    assert found.rows.column("value").to_pylist() == [b"kept"]
    assert found.next_offset == 4


def test_a_header_only_batch_moves_reading_on(implementation: Implementation) -> None:
    found = columns_of(implementation, raw_batch(b"", count=0, last_offset_delta=6))
    assert (found.row_count, found.next_offset) == (0, 7)


def test_a_wrong_checksum_is_corrupt_unless_it_was_checked_already() -> None:
    batch = build_batch(TYPICAL)
    batch[17] ^= 1
    with pytest.raises(CorruptBatch):
        to_arrow(batch)
    assert to_arrow(batch, checked=True).row_count == len(TYPICAL)


@pytest.mark.parametrize("payload", BROKEN_PAYLOADS.values(), ids=BROKEN_PAYLOADS.keys())
def test_a_broken_payload_is_invalid(implementation: Implementation, payload: bytes) -> None:
    with pytest.raises(InvalidBatch) as caught:
        columns_of(implementation, raw_batch(payload))
    assert not isinstance(caught.value, InvalidText)


@pytest.mark.parametrize("headers", BROKEN_HEADERS.values(), ids=BROKEN_HEADERS.keys())
def test_broken_headers_are_invalid_when_headers_are_wanted(implementation: Implementation, headers: bytes) -> None:
    batch = raw_batch(raw_record(headers=headers))
    with pytest.raises(InvalidBatch):
        columns_of(implementation, batch)
    assert columns_of(implementation, batch, flags=WITHOUT_HEADERS).row_count == 1


@pytest.mark.parametrize("key", NOT_UTF8)
def test_a_header_key_that_is_not_utf8_has_an_error_of_its_own(implementation: Implementation, key: bytes) -> None:
    with pytest.raises(InvalidText):
        columns_of(implementation, raw_batch(raw_record(headers=header_bytes(key))))


@given(key=st.binary(max_size=6) | st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_what_is_utf8_is_judged_as_python_judges_it(key: bytes) -> None:
    batch = raw_batch(raw_record(headers=header_bytes(key)))
    try:
        text = key.decode()
    except UnicodeDecodeError:
        with pytest.raises(InvalidText):
            columns_of(compiled() or PLAIN, batch)
    else:
        assert as_rows(columns_of(compiled() or PLAIN, batch))[0]["headers"][0]["key"] == text


def test_a_record_count_beyond_the_payload_is_refused_before_anything_is_reserved(
    implementation: Implementation,
) -> None:
    place = {"last_offset_delta": 2**31 - 1, "base_offset": 0, "base_timestamp": 0, "append_time_ms": None}
    for count in (2**62, 2, -1):
        with pytest.raises(InvalidBatch):
            implementation.columns(EVERYTHING).add(
                raw_record(), count=count, **place, start_offset=0, end_offset=2**63 - 1
            )


def test_columns_of_the_kernel_cannot_be_used_after_they_were_taken(kernel_implementation: Implementation) -> None:
    columns = kernel_implementation.columns(EVERYTHING)
    columns.take()
    with pytest.raises(ValueError, match="taken"):
        columns.take()
    with pytest.raises(ValueError, match="taken"):
        collect(run_of(3), columns)


def test_columns_of_the_kernel_cannot_be_used_after_they_failed(kernel_implementation: Implementation) -> None:
    columns = kernel_implementation.columns(EVERYTHING)
    with pytest.raises(InvalidBatch):
        collect(raw_batch(raw_record() + b"\x00"), columns)
    with pytest.raises(ValueError, match="failed"):
        columns.take()


def rows_of(given_records: list[RecordTuple]) -> Any:
    """The records as an Arrow record batch, by way of Arrow's own builders."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record[0] for record in given_records], pa.binary()),
            pa.array([record[1] for record in given_records], pa.binary()),
            pa.array([record[2] for record in given_records], pa.int64()),
            pa.array(
                [[{"key": key, "value": value} for key, value in record[3]] for record in given_records], HEADERS_TYPE
            ),
        ],
        names=["key", "value", "timestamp", "headers"],
    )


@given(given_records=records, data=st.data())
def test_columns_pack_to_the_bytes_that_tuples_do(given_records: list[RecordTuple], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(given_records) - 1))
    rows = rows_of(given_records).slice(first)
    expected = pack_records(given_records[first:], RECORDS_BYTES_MAX)
    assert pack_plain(rows, timestamp_ms=0) == expected
    if kernel.AVAILABLE:
        assert pack_compiled(rows, timestamp_ms=0) == expected


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_survives_the_way_through_arrow_and_back(codec: Codec) -> None:
    batch = build_batch(TYPICAL, codec=codec, producer_id=4, base_sequence=2)
    rows = to_arrow(batch, columns=EVERY_COLUMN).rows
    assert from_arrow(rows, timestamp_ms=0, codec=codec, producer_id=4, base_sequence=2) == batch


def test_a_missing_column_is_null_and_a_missing_timestamp_is_the_one_given(pack: Pack) -> None:
    rows = pa.record_batch({"value": pa.array([b"a", None])})
    assert pack(rows, timestamp_ms=77) == pack_records([(None, b"a", 77, ()), (None, None, 77, ())], RECORDS_BYTES_MAX)


def test_a_null_timestamp_is_the_one_given_and_null_headers_are_none(pack: Pack) -> None:
    rows = pa.record_batch(
        {
            "key": pa.nulls(2),
            "timestamp": pa.array([None, 5], pa.timestamp("ms")),
            "headers": pa.array([None, []], HEADERS_TYPE),
        }
    )
    assert pack(rows, timestamp_ms=9) == pack_records([(None, None, 9, ()), (None, None, 5, ())], RECORDS_BYTES_MAX)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(3)])
def test_text_and_large_and_fixed_columns_are_as_good(pack: Pack, kind: Any) -> None:
    rows = pa.record_batch({"value": pa.array(["abc", None], pa.string()).cast(pa.binary()).cast(kind)})
    assert pack(rows, timestamp_ms=0) == pack_records([(None, b"abc", 0, ()), (None, None, 0, ())], RECORDS_BYTES_MAX)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.timestamp("s"), 2), (pa.timestamp("us", "UTC"), 2_000_999), (pa.timestamp("ns"), 2_000_000_001)],
)
def test_timestamps_of_any_unit_become_milliseconds(pack: Pack, kind: Any, value: int) -> None:
    rows = pa.record_batch({"value": pa.array([b"a"]), "timestamp": pa.array([value], pa.int64()).cast(kind)})
    assert pack(rows, timestamp_ms=0)[2] == 2_000


@pytest.mark.parametrize(
    "columns",
    [
        {"value": pa.array([1])},
        {"value": pa.array([b"a"]), "timestamp": pa.array(["noon"])},
        {"value": pa.array([b"a"]), "timestamp": pa.array([2**62], pa.timestamp("s"))},
        {"value": pa.array([b"a"]), "headers": pa.array([b"h"])},
        {"value": pa.array([b"a"]), "headers": pa.array([[None]], HEADERS_TYPE)},
        {"value": pa.array([], pa.binary())},
    ],
    ids=["numbers", "text for a time", "too late a time", "bytes for headers", "a null header", "no rows"],
)
def test_columns_that_no_batch_can_hold_are_refused(pack: Pack, columns: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        pack(pa.record_batch(columns), timestamp_ms=0)


def test_a_header_without_a_key_is_named_by_its_row(pack: Pack) -> None:
    entries = [[], [{"key": "a", "value": b""}, {"key": None, "value": b"x"}]]
    nullable = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with pytest.raises(InvalidRecord):
        pack(pa.record_batch({"headers": pa.array(entries, nullable)}), timestamp_ms=0)


def test_two_columns_of_one_name_are_refused(pack: Pack) -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with pytest.raises(InvalidRecord, match="2 columns named value"):
        pack(twice, timestamp_ms=0)


def test_the_bound_on_the_records_is_inclusive(pack: Pack) -> None:
    size = len(pack(rows_of(TYPICAL), timestamp_ms=0)[0]) - 61
    assert pack(rows_of(TYPICAL), timestamp_ms=0, bytes_max=size)[1] == len(TYPICAL)
    with pytest.raises(InvalidRecord, match="beyond"):
        pack(rows_of(TYPICAL), timestamp_ms=0, bytes_max=size - 1)


@pytest.mark.parametrize("middle", [-1, 4, 5, -(2**31), 2**31 - 1])
def test_arrow_offsets_that_do_not_fit_their_data_are_refused(pack: Pack, middle: int) -> None:
    # Arrow itself looks at the first and the last offset only.
    buffers = [None, pa.array([0, middle, 3], pa.int32()).buffers()[1], pa.py_buffer(b"abc")]
    broken = pa.Array.from_buffers(pa.binary(), 2, buffers)
    with pytest.raises(InvalidRecord):
        pack(pa.RecordBatch.from_arrays([broken], names=["value"]), timestamp_ms=0)


def test_buffers_that_are_too_short_for_the_rows_are_refused(kernel_implementation: Implementation) -> None:
    assert kernel.compiled is not None
    short = {
        "offsets": ((0, None, b"\x00" * 8, b""), None, None, None),
        "validity": ((0, b"", b"\x00" * 12, b""), None, None, None),
        "timestamps": (None, None, (0, None, None, b"\x00" * 15), None),
        "first row": ((2**40, None, b"\x00" * 12, b""), None, None, None),
        "lists": (None, None, None, ((0, None, b"\x00" * 8, None), 0, None, None)),
        "list ends": (None, None, None, ((0, None, b"\x00\x00\x00\x00\x01\x00\x00\x00" * 2, None), 0, None, None)),
    }
    for key, value, timestamp, headers in short.values():
        with pytest.raises(InvalidRecord):
            kernel.compiled.pack_columns(2, RECORDS_BYTES_MAX, key, value, timestamp, 0, headers)


def test_records_read_back_as_they_were_put_into_columns() -> None:
    assert as_given(read_batch(from_arrow(rows_of(TYPICAL), timestamp_ms=0))) == TYPICAL
