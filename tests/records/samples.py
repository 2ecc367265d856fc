"""Records and batches that the tests of this folder are about: chosen, generated, and broken by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.records import kernel, packing, reader
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, pack_header, seal
from ottla.records.numpy_columns import Columns as NumpyColumns
from ottla.records.packing import Packed, RecordTuple
from ottla.records.plain import PlainRun, Run
from ottla.records.reader import Record, Span
from ottla.records.varint import INT64_MAX, INT64_MIN, encode

NOW_MS = 1_700_000_000_000

TYPICAL: list[RecordTuple] = [
    (b"key", b"value", NOW_MS, []),
    (None, b"no key", NOW_MS + 5, [("trace", b"abc"), ("empty", b""), ("null", None)]),
    (b"", b"empty key", NOW_MS - 5, [("", b"empty name")]),
    (b"tombstone", None, NOW_MS + 1_000_000, []),
    (b"empty value", b"", NOW_MS, [("schlüssel", b"\xff\x00"), ("schlüssel", b"again")]),
    (None, None, NOW_MS, []),
    (b"long" * 100, b"x" * 20_000, NOW_MS + 1, []),
]

maybe_bytes = st.none() | st.binary(max_size=200)
timestamps = st.integers(INT64_MIN, INT64_MAX) | st.integers(NOW_MS - 10_000, NOW_MS + 10_000)
header_lists = st.lists(st.tuples(st.text(max_size=20), maybe_bytes), max_size=4)
records = st.lists(st.tuples(maybe_bytes, maybe_bytes, timestamps, header_lists), min_size=1, max_size=40)


@dataclass(frozen=True)
class Implementation:
    """One of the two ways to do the same work."""

    name: str
    pack_records: Callable[[Iterable[RecordTuple], int], Packed]
    pack_values: Callable[..., Packed | None]
    decode_records: Callable[[BatchHeader, bytes], list[Record]]
    spans: Callable[[BatchHeader, bytes], Iterator[Span]]
    columns: Callable[[int], Any]
    run: type[PlainRun]


PLAIN = Implementation(
    "plain",
    packing.pack_records,
    packing.pack_values,
    reader.decode_records_plain,
    reader.spans_plain,
    NumpyColumns,
    PlainRun,
)


def compiled() -> Implementation | None:
    """The kernel, when this process uses it."""
    if kernel.compiled is None:
        return None
    return Implementation(
        "compiled",
        kernel.compiled.pack_records,
        kernel.compiled.pack_values,
        reader.decode_records,
        reader.spans,
        kernel.compiled.Columns,
        kernel.compiled.Run,
    )


def run_of(batches: Iterable[bytes], *, make: type[PlainRun] = Run, kind: Callable[[bytes], Any] = bytes) -> Run:
    """These batches as they come, with something before and behind each of them."""
    data, spans = b"before", []
    for batch in batches:
        spans.append((len(data), len(batch)))
        data += batch + b"behind"
    run = make(kind(data))
    for at, size in spans:
        run.add(at, size=size)
    return run


def place(run: Run, *, first_offset: int) -> None:
    """Give its batches their places, from that offset on, in a segment that begins with them."""
    assert run.place(
        first_offset=first_offset,
        leader_epoch=0,
        oldest_ms=0,
        newest_ms=2 * NOW_MS,
        batch_bytes_max=1 << 20,
        base_offset=first_offset,
        position=0,
        indexed_at=0,
        interval_bytes=4_096,
        max_timestamp_ms=-1,
        max_timestamp_offset=-1,
        timed_ms=-1,
    )


def as_given(found: Iterable[Record]) -> list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]:
    """Records in the shape in which they were handed to the builder."""
    return [(record.key, record.value, record.timestamp_ms, list(record.headers)) for record in found]


def raw_record(
    *,
    attributes: int = 0,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    key_length: int | None = None,
    value_length: int | None = None,
    headers: bytes = b"\x00",
    length_error: int = 0,
) -> bytes:
    """One record by hand; the lengths can be made to lie."""
    body = bytes([attributes]) + encode(timestamp_delta) + encode(offset_delta)
    for data, length in ((key, key_length), (value, value_length)):
        body += encode(length if length is not None else -1 if data is None else len(data)) + (data or b"")
    body += headers
    return encode(len(body) + length_error) + body


def raw_batch(payload: bytes, *, count: int = 1, **fields: int) -> bytes:
    """A batch with a right checksum around any payload."""
    batch = bytearray(HEADER_SIZE) + payload
    header = BatchHeader(
        base_offset=0,
        length=len(batch) - LOG_OVERHEAD,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    batch[:HEADER_SIZE] = pack_header(replace(header, **fields))
    seal(batch)
    return bytes(batch)


BROKEN_PAYLOADS: dict[str, bytes] = {
    "no bytes at all": b"",
    "shorter than any record": b"\x0a\x00\x00\x00\x01\x01",
    "a record length beyond the payload": raw_record(length_error=1),
    "a record length short of its content": raw_record(headers=b"\x00\x00", length_error=-1),
    "a record longer than its content": raw_record(headers=b"\x00\x00"),
    "a negative record length": encode(-7) + b"\x00" * 10,
    "a record of length 0": encode(0) + b"\x00" * 10,
    "a length that never ends": b"\xff" * 12,
    "a length of more than 32 bits": b"\x80\x80\x80\x80\x10" + b"\x00" * 20,
    "a timestamp of more than 64 bits": encode(16) + b"\x00" + b"\xff" * 9 + b"\x02" + b"\x00\x01\x01\x00\x00",
    "an offset delta beyond the batch": raw_record(offset_delta=1),
    "a negative offset delta": raw_record(offset_delta=-1),
    "a key length of -2": raw_record(key_length=-2),
    "a key length beyond the record": raw_record(key_length=1_000),
    "a key length of 2 GiB": raw_record(key_length=2**31 - 1),
    "a value length of -2": raw_record(value_length=-2),
    "a value length beyond the record": raw_record(value_length=1_000),
    "a value length of 2 GiB": raw_record(value_length=2**31 - 1),
    "no header count": raw_record(headers=b""),
    "bytes after the last record": raw_record() + b"\x00",
    "a second record that was not counted": raw_record() + raw_record(),
}

BROKEN_HEADERS: dict[str, bytes] = {
    "a negative header count": encode(-1),
    "more headers than bytes": encode(100),
    "2 Gi headers": encode(2**31 - 1) + b"\x00" * 8,
    "a null header key": encode(1) + encode(-1) + encode(-1),
    "a header key beyond the record": encode(1) + encode(90) + b"abc" + encode(-1),
    "a header value beyond the record": encode(1) + encode(1) + b"a" + encode(90) + b"abc",
    "a header value length of -2": encode(1) + encode(1) + b"a" + encode(-2),
    "a header count short of the headers": encode(1) + encode(1) + b"a" + encode(-1) + b"\x00\x00",
}

NOT_UTF8: Sequence[bytes] = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80")


def header_bytes(key: bytes, value: bytes | None = b"v") -> bytes:
    """One header, with its count."""
    return encode(1) + encode(len(key)) + key + (encode(-1) if value is None else encode(len(value)) + value)
