"""The inside of a record batch: its records, decoded or only delimited.

For clients, compaction and tools; the broker's produce and fetch paths never come here. Says nothing
about whether a record is visible to a reader: see `ottla.records.isolation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ottla.errors import InvalidBatch, InvalidText, TruncatedBatch
from ottla.records import kernel
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, BatchHeader, Buffer, check, peek
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Codec, decompress
from ottla.records.varint import INT64_MAX, read_int32, read_int64, wrap_int64

RECORD_BYTES_MIN = 7
"""Six varints of one byte and the attributes: no record is shorter."""

_SPANS_AT_ONCE = 1024
"""Spans are many times larger than the smallest records; so many are held at a time."""

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record as an application sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Span(NamedTuple):
    """Where one record lies in its batch's payload, and as much of it as compaction needs."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value_is_null: bool
    start: int
    """The first byte of the record, which is its length."""
    end: int


# Straight from a tuple of the fields: a named tuple's own constructor would take them apart again.
_make_record = partial(tuple.__new__, Record)
_make_span = partial(tuple.__new__, Span)


def read_batch(
    batch: Buffer, *, checked: bool = False, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The records of the batch that begins `batch`; `checked` says that its checksum was verified already.

    Raises TruncatedBatch when the batch's bytes are not all there, CorruptBatch for a wrong checksum,
    InvalidText for a header key that is not UTF-8, InvalidBatch for any other impossible content, and
    what `decompress` raises. Control batches are read like any other.
    """
    header = peek(batch) if checked else check(batch)
    return decode_records(header, unpack_view(header, batch, decompressed_bytes_max=decompressed_bytes_max))


def decode_records(header: BatchHeader, payload: Buffer) -> list[Record]:
    """The records of an unpacked payload."""
    if kernel.compiled is None:
        return decode_records_plain(header, bytes(payload))
    records: list[Record] = kernel.compiled.read_records(
        payload,
        header.record_count,
        header.last_offset_delta,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None,
        _make_record,
    )
    return records


def decode_records_plain(header: BatchHeader, payload: bytes) -> list[Record]:
    """What `decode_records` does without the kernel."""
    records: list[Record] = []
    append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    position = 0
    for _ in range(header.record_count):
        body, end = _record_bounds(payload, position)
        # The record's attributes are one unused byte. A field that claims more than the record holds
        # is found out below, when the record does not end where its length said.
        timestamp_delta, position = read_int64(payload, body + 1)
        offset_delta, position = _read_offset_delta(payload, position, header.last_offset_delta)
        key, position = _read_bytes(payload, position)
        value, position = _read_bytes(payload, position)
        headers, position = _read_headers(payload, position, end)
        if position != end:
            raise InvalidBatch(f"a record ends at byte {position} of the payload, its length says {end}")
        timestamp_ms = wrap_int64(header.base_timestamp + timestamp_delta) if append_time_ms is None else append_time_ms
        records.append(Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers))
    _require_end(payload, position)
    return records


def unpack(
    header: BatchHeader, batch: Buffer, *, position: int = 0, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The records' bytes of the batch at `position`, decompressed, after the header was found plausible."""
    return bytes(unpack_view(header, batch, position=position, decompressed_bytes_max=decompressed_bytes_max))


def unpack_view(
    header: BatchHeader, batch: Buffer, *, position: int = 0, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes | memoryview:
    """Like `unpack`, but records that are not compressed are not copied either."""
    if header.size > len(batch) - position:
        raise TruncatedBatch(f"the batch needs {header.size} bytes, {len(batch) - position} are left")
    if header.base_offset > INT64_MAX - header.last_offset_delta:
        raise InvalidBatch(f"base offset {header.base_offset}: the batch would end beyond the last offset there is")
    payload: bytes | memoryview = memoryview(batch)[position + HEADER_SIZE : position + header.size]
    if header.codec != Codec.NONE and (header.record_count or payload):
        payload = decompress(header.codec, payload, bytes_max=decompressed_bytes_max)
    if header.record_count > len(payload) // RECORD_BYTES_MIN:
        raise InvalidBatch(f"{header.record_count} records in {len(payload)} bytes")
    return payload


def spans(header: BatchHeader, payload: bytes) -> Iterator[Span]:
    """Each record of an unpacked payload, delimited but not decoded.

    Record headers are not looked at, so a header key that is not UTF-8 does not stop compaction.
    """
    if kernel.compiled is None:
        yield from spans_plain(header, payload)
        return
    position = 0
    left = header.record_count
    while left > 0:
        found: list[Span] = kernel.compiled.read_spans(
            payload, position, min(left, _SPANS_AT_ONCE), header.last_offset_delta, _make_span
        )
        yield from found
        position = found[-1].end
        left -= len(found)
    _require_end(payload, position)


def spans_plain(header: BatchHeader, payload: bytes) -> Iterator[Span]:
    """What `spans` does without the kernel."""
    position = 0
    for _ in range(header.record_count):
        start = position
        body, end = _record_bounds(payload, position)
        timestamp_delta, position = read_int64(payload, body + 1)
        offset_delta, position = _read_offset_delta(payload, position, header.last_offset_delta)
        key, position = _read_bytes(payload, position)
        value_length, position = read_int32(payload, position)
        if value_length < -1:
            raise InvalidBatch(f"a value of length {value_length}")
        # At least the count of headers follows the value.
        if position + max(value_length, 0) >= end:
            raise InvalidBatch(f"a record's value reaches beyond its end, byte {end} of the payload")
        yield Span(offset_delta, timestamp_delta, key, value_length < 0, start, end)
        position = end
    _require_end(payload, position)


def _record_bounds(payload: bytes, position: int) -> tuple[int, int]:
    """Where the record at `position` has its first byte after the length, and where it ends."""
    length, body = read_int32(payload, position)
    end = body + length
    if length < RECORD_BYTES_MIN - 1 or end > len(payload):
        raise InvalidBatch(f"a record of {length} bytes, {len(payload) - body} are left")
    return body, end


def _read_offset_delta(payload: bytes, position: int, last_offset_delta: int) -> tuple[int, int]:
    offset_delta, position = read_int32(payload, position)
    if not 0 <= offset_delta <= last_offset_delta:
        raise InvalidBatch(f"offset delta {offset_delta}, the batch ends at {last_offset_delta}")
    return offset_delta, position


def _read_bytes(payload: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_int32(payload, position)
    if length < 0:
        if length != -1:
            raise InvalidBatch(f"a key or value of length {length}")
        return None, position
    end = position + length
    return payload[position:end], end


def _read_headers(payload: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_int32(payload, position)
    if not count:
        return (), position
    # A header takes two bytes at least.
    if not 0 <= count <= (end - position) // 2:
        raise InvalidBatch(f"{count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _read_bytes(payload, position)
        if key is None:
            raise InvalidBatch("a header without a key")
        value, position = _read_bytes(payload, position)
        if position > end:
            raise InvalidBatch(f"a header reaches beyond its record's end, byte {end} of the payload")
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError as e:
            raise InvalidText(f"a header key is not UTF-8: {e.reason}") from e
    return tuple(headers), position


def _require_end(payload: bytes, position: int) -> None:
    if position != len(payload):
        raise InvalidBatch(f"{len(payload) - position} bytes follow the last record")
