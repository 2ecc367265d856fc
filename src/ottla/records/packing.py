"""Records to the bytes inside a batch, in plain Python.

Used when the compiled kernel is not there; the functions of `ottla.records._kernel` with the same names give
the same bytes and refuse the same input. Knows nothing of headers, checksums or compression of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from ottla.errors import InvalidRecord
from ottla.records.batch import HEADER_SIZE
from ottla.records.varint import INT64_MAX, INT64_MIN, encode, wrap_int64

RecordTuple = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]]]
"""Key, value, timestamp in milliseconds, headers."""

Packed = tuple[bytearray, int, int, int]
"""The records behind room for a batch header; their count, first timestamp and largest timestamp."""

_NULL = encode(-1)


def pack_records(records: Iterable[RecordTuple], bytes_max: int) -> Packed:
    """Lay the records end to end, numbered from 0; InvalidRecord names the index of the one that cannot be."""
    try:
        rows = tuple(records)
    except TypeError as e:
        raise InvalidRecord("the records are not a sequence") from e
    out = bytearray(HEADER_SIZE)
    base_timestamp = max_timestamp = 0
    for index, record in enumerate(rows):
        key, value, timestamp_ms, headers = _fields(index, record)
        if index == 0:
            base_timestamp = max_timestamp = timestamp_ms
        elif timestamp_ms > max_timestamp:
            max_timestamp = timestamp_ms
        body = b"".join(
            (
                b"\x00",
                encode(wrap_int64(timestamp_ms - base_timestamp)),
                encode(index),
                _NULL if key is None else encode(len(key)),
                key or b"",
                _NULL if value is None else encode(len(value)),
                value or b"",
                _headers(index, headers),
            )
        )
        length = encode(len(body))
        if len(out) - HEADER_SIZE + len(length) + len(body) > bytes_max:
            raise InvalidRecord(f"record {index}: the batch would grow beyond {bytes_max} bytes of records")
        out += length
        out += body
    if not rows:
        raise InvalidRecord("a batch needs at least one record")
    return out, len(rows), base_timestamp, max_timestamp


def pack_values(values: tuple[object, ...], *, timestamp_ms: int, bytes_max: int) -> Packed | None:
    """Values without keys and headers, all of one time, as `pack_records`; None unless all of them are bytes."""
    if set(map(type, values)) != {bytes}:
        return None
    return pack_records(((None, value, timestamp_ms, ()) for value in cast(tuple[bytes, ...], values)), bytes_max)


def _fields(index: int, record: RecordTuple) -> RecordTuple:
    try:
        key, value, timestamp_ms, headers = record
    except (TypeError, ValueError) as e:
        raise InvalidRecord(f"record {index}: not a key, value, timestamp and headers") from e
    if not (key is None or isinstance(key, bytes)):
        raise InvalidRecord(f"record {index}: the key is {type(key).__name__}, not bytes or None")
    if not (value is None or isinstance(value, bytes)):
        raise InvalidRecord(f"record {index}: the value is {type(value).__name__}, not bytes or None")
    if not isinstance(timestamp_ms, int):
        raise InvalidRecord(f"record {index}: the timestamp is {type(timestamp_ms).__name__}, not int")
    if not INT64_MIN <= timestamp_ms <= INT64_MAX:
        raise InvalidRecord(f"record {index}: the timestamp does not fit 64 bits")
    return key, value, timestamp_ms, headers


def _headers(index: int, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    try:
        pairs = tuple(headers)
    except TypeError as e:
        raise InvalidRecord(f"record {index}: the headers are {type(headers).__name__}, not a sequence") from e
    if not pairs:
        return b"\x00"
    out = [encode(len(pairs))]
    for pair in pairs:
        try:
            key, value = pair
        except (TypeError, ValueError) as e:
            raise InvalidRecord(f"record {index}: a header is not a key and a value") from e
        if not isinstance(key, str):
            raise InvalidRecord(f"record {index}: a header's key is {type(key).__name__}, not str")
        if not (value is None or isinstance(value, bytes)):
            raise InvalidRecord(f"record {index}: a header's value is {type(value).__name__}, not bytes or None")
        try:
            text = key.encode()
        except UnicodeEncodeError as e:
            raise InvalidRecord(f"record {index}: a header's key is not Unicode text") from e
        out += (encode(len(text)), text, _NULL if value is None else encode(len(value)), value or b"")
    return b"".join(out)
