"""Records to columns with numpy: what stands in for the compiled kernel's `Columns`.

The same interface and the same results, some ten times slower. Imported by `ottla.records.arrow` only,
because numpy comes with the Spark extra.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottla.errors import DecompressionTooLarge, InvalidBatch, InvalidText
from ottla.records.batch import Buffer
from ottla.records.reader import RECORD_BYTES_MIN
from ottla.records.varint import INT32_MAX, INT64_MAX, read_int32

WANT_OFFSET = 1
WANT_TIMESTAMP = 2
WANT_TIMESTAMP_TYPE = 4
WANT_KEY = 8
WANT_VALUE = 16
WANT_HEADERS = 32

Ints = NDArray[np.int64]
BytesColumn = tuple[bytes | bytearray | None, bytes | bytearray, bytes | bytearray]
"""Validity bitmap (None when nothing is null), 32-bit offsets, data."""


class Columns:
    """Collects the records of many batches as columns; the flags say which."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.rows = 0
        self._numbers: dict[int, list[NDArray[Any]]] = {
            flag: [] for flag in (WANT_OFFSET, WANT_TIMESTAMP, WANT_TIMESTAMP_TYPE) if flags & flag
        }
        self._key = _BytesParts()
        self._value = _BytesParts()
        self._header_counts: list[int] = []
        self._header_key = _BytesParts()
        self._header_value = _BytesParts()

    def add(
        self,
        payload: Buffer,
        *,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_time_ms: int | None,
        start_offset: int,
        end_offset: int,
    ) -> None:
        """Append the records of one unpacked payload whose offset lies in start_offset..end_offset."""
        held = bytes(payload)
        if not 0 <= count <= len(held) // RECORD_BYTES_MIN or base_offset > INT64_MAX - max(last_offset_delta, 0):
            raise InvalidBatch(f"{count} records from offset {base_offset} in {len(held)} bytes")
        data = np.frombuffer(held, np.uint8)
        body, ends = _bounds(held, count)
        timestamp_delta, at = _take_numbers(data, body + 1, ends, 64)
        offset_delta, at = _take_numbers(data, at, ends, 32)
        if np.any((offset_delta < 0) | (offset_delta > last_offset_delta)):
            raise InvalidBatch("an offset delta lies outside the batch")
        key_at, key_length, at = _take_fields(data, at, ends)
        value_at, value_length, at = _take_fields(data, at, ends)
        if np.any(at >= ends):
            raise InvalidBatch("a record does not end where its length says")
        offsets = offset_delta + base_offset
        chosen = (offsets >= start_offset) & (offsets < end_offset)
        if self.flags & WANT_HEADERS:
            self._add_headers(held, at, ends, chosen)
        self.rows += int(np.count_nonzero(chosen))
        self._add_numbers(WANT_OFFSET, offsets[chosen])
        if append_time_ms is None:
            # The sum wraps, as in Java.
            self._add_numbers(WANT_TIMESTAMP, timestamp_delta[chosen] + np.int64(base_timestamp))
        else:
            self._add_numbers(WANT_TIMESTAMP, np.full_like(offsets[chosen], append_time_ms))
        self._add_numbers(WANT_TIMESTAMP_TYPE, np.full(offsets[chosen].shape, append_time_ms is not None, np.int32))
        if self.flags & WANT_KEY:
            self._key.extend(held, key_at[chosen], key_length[chosen])
        if self.flags & WANT_VALUE:
            self._value.extend(held, value_at[chosen], value_length[chosen])

    def take(self) -> tuple[Any, ...]:
        """Row count, offset, timestamp, timestamp type, key, value, header ends, header key, header value."""
        wants_headers = self.flags & WANT_HEADERS
        return (
            self.rows,
            self._taken(WANT_OFFSET, np.int64),
            self._taken(WANT_TIMESTAMP, np.int64),
            self._taken(WANT_TIMESTAMP_TYPE, np.int32),
            self._key.take() if self.flags & WANT_KEY else None,
            self._value.take() if self.flags & WANT_VALUE else None,
            _ends(np.array(self._header_counts, np.int64)) if wants_headers else None,
            self._header_key.take() if wants_headers else None,
            self._header_value.take() if wants_headers else None,
        )

    def _add_numbers(self, flag: int, values: NDArray[Any]) -> None:
        if self.flags & flag:
            self._numbers[flag].append(values)

    def _taken(self, flag: int, dtype: type[np.signedinteger[Any]]) -> bytes | None:
        if not self.flags & flag:
            return None
        return np.concatenate([np.empty(0, dtype), *self._numbers[flag]]).astype(dtype).tobytes()

    def _add_headers(self, payload: bytes, at: Ints, ends: Ints, chosen: NDArray[np.bool_]) -> None:
        keys: list[tuple[int, int]] = []
        values: list[tuple[int, int]] = []
        for start, end, wanted in zip(at.tolist(), ends.tolist(), chosen.tolist(), strict=True):
            found = _header_fields(payload, start, end)
            if wanted:
                self._header_counts.append(len(found))
                keys += (key for key, _ in found)
                values += (value for _, value in found)
        # After the whole batch was found well-formed, as the kernel does.
        for start, length in keys:
            try:
                payload[start : start + length].decode()
            except UnicodeDecodeError as e:
                raise InvalidText("a header key is not UTF-8") from e
        for parts, fields in ((self._header_key, keys), (self._header_value, values)):
            pairs = np.array(fields, np.int64).reshape(-1, 2)
            parts.extend(payload, pairs[:, 0], pairs[:, 1])


class _BytesParts:
    """One column of bytes, batch by batch."""

    def __init__(self) -> None:
        self._lengths: list[Ints] = [np.empty(0, np.int64)]
        self._data: list[bytes] = []
        self._size = 0

    def extend(self, payload: bytes, at: Ints, lengths: Ints) -> None:
        self._size += int(np.maximum(lengths, 0).sum())
        if self._size > INT32_MAX:
            raise DecompressionTooLarge("a column would pass 2 GiB: read fewer batches at once")
        ends = at + np.maximum(lengths, 0)
        self._data.append(b"".join([payload[start:end] for start, end in zip(at.tolist(), ends.tolist(), strict=True)]))
        self._lengths.append(lengths)

    def take(self) -> BytesColumn:
        lengths = np.concatenate(self._lengths)
        present = lengths >= 0
        validity = None if present.all() else np.packbits(present, bitorder="little").tobytes()
        return validity, _ends(np.maximum(lengths, 0)), b"".join(self._data)


def _ends(lengths: Ints) -> bytes:
    """Arrow's offsets: 0, then where each entry ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32).tobytes()


def _bounds(payload: bytes, count: int) -> tuple[Ints, Ints]:
    """Where each record's body begins and ends: the one loop that no vector can take over."""
    bodies: list[int] = []
    ends: list[int] = []
    position = 0
    for _ in range(count):
        length, body = read_int32(payload, position)
        position = body + length
        if length < RECORD_BYTES_MIN - 1 or position > len(payload):
            raise InvalidBatch(f"a record of {length} bytes, {len(payload) - body} are left")
        bodies.append(body)
        ends.append(position)
    if position != len(payload):
        raise InvalidBatch(f"{len(payload) - position} bytes follow the last record")
    return np.array(bodies, np.int64), np.array(ends, np.int64)


def _take_numbers(data: NDArray[np.uint8], at: Ints, ends: Ints, bits: int) -> tuple[Ints, Ints]:
    """A number of each record, and the positions after it."""
    value = np.zeros(at.shape, np.uint64)
    at = at.copy()
    going = np.arange(len(at))
    shift = 0
    while len(going):
        here = at[going]
        if shift >= bits or np.any(here >= ends[going]):
            raise InvalidBatch("a number in a record does not fit, or the record ends in it")
        byte = data[here].astype(np.uint64)
        group = byte & np.uint64(0x7F)
        if shift + 7 > bits and np.any(group >> np.uint64(bits - shift)):
            raise InvalidBatch("a number in a record does not fit")
        value[going] |= group << np.uint64(shift)
        at[going] += 1
        going = going[byte >= 0x80]
        shift += 7
    signed = (value >> np.uint64(1)) ^ (np.uint64(0) - (value & np.uint64(1)))
    return signed.view(np.int64), at


def _take_fields(data: NDArray[np.uint8], at: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """A key or value of each record: where it lies, its length (-1 for null), and the positions after it."""
    lengths, at = _take_numbers(data, at, ends, 32)
    if np.any((lengths < -1) | (lengths > ends - at)):
        raise InvalidBatch("a key or value of impossible length")
    return at, lengths, at + np.maximum(lengths, 0)


def _header_fields(payload: bytes, position: int, end: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Position and length of each header's key and value."""
    count, position = read_int32(payload, position)
    if not 0 <= count <= (end - position) // 2:
        raise InvalidBatch(f"{count} headers in {end - position} bytes")
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for _ in range(count):
        key_length, key_at = read_int32(payload, position)
        if key_length < 0:
            raise InvalidBatch("a header without a key")
        value_length, value_at = read_int32(payload, key_at + key_length)
        if value_length < -1:
            raise InvalidBatch(f"a header value of length {value_length}")
        position = value_at + max(value_length, 0)
        if position > end:
            raise InvalidBatch(f"a header reaches beyond its record's end, byte {end} of the payload")
        found.append(((key_at, key_length), (value_at, value_length)))
    if position != end:
        raise InvalidBatch("a record does not end where its length says")
    return found
