"""Record batches to Arrow columns and back, for Spark and for analysis.

The only module here, with `numpy_columns`, that needs pyarrow and numpy; the broker never imports it.
Topic and partition are not its business: they are the same for every row of a fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.errors import InvalidRecord
from ottla.records import kernel, packing
from ottla.records.batch import (
    LOG_APPEND_TIME_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Buffer,
    TimestampType,
    check,
    walk,
)
from ottla.records.builder import RECORDS_BYTES_MAX, finish_batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from ottla.records.isolation import AbortedTransactions
from ottla.records.numpy_columns import (
    WANT_HEADERS,
    WANT_KEY,
    WANT_OFFSET,
    WANT_TIMESTAMP,
    WANT_TIMESTAMP_TYPE,
    WANT_VALUE,
)
from ottla.records.numpy_columns import Columns as NumpyColumns
from ottla.records.packing import Packed
from ottla.records.reader import unpack_view
from ottla.records.varint import INT64_MAX

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
HEADERS_GIVEN_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""What others hand us may claim less; a name that is missing is found when its record is packed."""
TIMESTAMP_TYPE = pa.timestamp("ms", tz="UTC")

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", HEADERS_TYPE, nullable=False),
    ]
)
"""Every column there is, named as Spark's Kafka source names it."""

DEFAULT_COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")

_FLAGS = {
    "key": WANT_KEY,
    "value": WANT_VALUE,
    "offset": WANT_OFFSET,
    "timestamp": WANT_TIMESTAMP,
    "timestampType": WANT_TIMESTAMP_TYPE,
    "headers": WANT_HEADERS,
}


class ColumnBuilder(Protocol):
    """What collects records as columns: the kernel's `Columns`, or numpy's."""

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
        """Append the records of one unpacked payload."""
        ...

    def take(self) -> tuple[Any, ...]:
        """The finished buffers, in the order that `numpy_columns.Columns.take` gives."""
        ...


class ArrowRecords(NamedTuple):
    """Records as columns."""

    rows: pa.RecordBatch
    row_count: int
    """Known also when no column was asked for."""
    next_offset: int
    """Where to read on: after the last whole batch, whether or not its records were wanted."""


def to_arrow(
    buffer: Buffer,
    *,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    start_offset: int = 0,
    end_offset: int = INT64_MAX,
    aborted: Iterable[tuple[int, int]] = (),
    checked: bool = False,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> ArrowRecords:
    """The records in a run of batches, as a fetch returns it, whose offset lies in start_offset..end_offset.

    A cut-off batch at the end is left for the next fetch, control batches are left out, and so are the
    transactions in `aborted`, given as (producer id, first offset). `checked` skips the checksums. When
    `headers` is not among the columns, headers are not looked at. Raises BatchError, and ValueError for a
    column that does not exist.
    """
    unknown = [name for name in columns if name not in _FLAGS]
    if unknown:
        raise ValueError(f"no column {unknown[0]!r}: there are {', '.join(_FLAGS)}")
    flags = sum({_FLAGS[name] for name in columns})
    builder: ColumnBuilder = (
        NumpyColumns(flags) if kernel.compiled is None else kernel.compiled.Columns(flags, len(buffer))
    )
    next_offset = collect(
        buffer,
        builder,
        start_offset=start_offset,
        end_offset=end_offset,
        aborted=aborted,
        checked=checked,
        decompressed_bytes_max=decompressed_bytes_max,
    )
    return _assemble(builder.take(), columns, next_offset)


def collect(
    buffer: Buffer,
    into: ColumnBuilder,
    *,
    start_offset: int = 0,
    end_offset: int = INT64_MAX,
    aborted: Iterable[tuple[int, int]] = (),
    checked: bool = False,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> int:
    """Feed the visible records of a run of batches to a builder; gives the offset to read on from."""
    transactions = AbortedTransactions(aborted)
    next_offset = start_offset
    with memoryview(buffer) as view:
        for position, header in walk(view):
            if header.base_offset >= end_offset:
                break
            if not checked:
                check(view, position)
            next_offset = max(next_offset, header.next_offset)
            if transactions.hides(header, view[position : position + header.size]):
                continue
            if header.last_offset < start_offset or not header.record_count:
                continue
            payload = unpack_view(header, view, position=position, decompressed_bytes_max=decompressed_bytes_max)
            into.add(
                payload,
                count=header.record_count,
                last_offset_delta=header.last_offset_delta,
                base_offset=header.base_offset,
                base_timestamp=header.base_timestamp,
                append_time_ms=header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None,
                start_offset=start_offset,
                end_offset=end_offset,
            )
    return min(next_offset, max(start_offset, end_offset))


def from_arrow(
    rows: pa.RecordBatch,
    *,
    timestamp_ms: int,
    codec: int = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    level: int | None = None,
) -> bytearray:
    """One finished batch of the columns `key`, `value`, `timestamp` and `headers`, each of which may be missing.

    Keys and values are of a binary or string type, timestamps of a timestamp type or 64-bit milliseconds;
    `timestamp_ms` stands in for the ones that are null. Raises InvalidRecord.
    """
    pack = pack_plain if kernel.compiled is None else pack_compiled
    return finish_batch(
        pack(rows, timestamp_ms=timestamp_ms),
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=False,
        timestamp_type=timestamp_type,
        level=level,
    )


def pack_compiled(rows: pa.RecordBatch, *, timestamp_ms: int, bytes_max: int = RECORDS_BYTES_MAX) -> Packed:
    """The rows as packed records, by the kernel."""
    assert kernel.compiled is not None
    columns = InputColumns(rows)
    packed: Packed = kernel.compiled.pack_columns(
        rows.num_rows,
        bytes_max,
        bytes_buffers(columns.key),
        bytes_buffers(columns.value),
        timestamp_buffers(columns.timestamp),
        timestamp_ms,
        header_buffers(columns.headers),
    )
    return packed


def timestamp_buffers(array: Any) -> tuple[int, Any, None, Any] | None:
    """A column of 64-bit numbers as the kernel takes it."""
    if array is None:
        return None
    valid, data = array.buffers()
    return array.offset, valid, None, data


def header_buffers(lists: Any) -> tuple[Any, int, Any, Any] | None:
    """A column of headers as the kernel takes it."""
    if lists is None:
        return None
    entries = lists.values
    # Flattened, a null entry becomes a null key, which the kernel refuses.
    keys, values = entries.flatten()
    return (
        (lists.offset, lists.buffers()[0], lists.buffers()[1], None),
        len(entries),
        bytes_buffers(keys),
        bytes_buffers(values),
    )


def pack_plain(rows: pa.RecordBatch, *, timestamp_ms: int, bytes_max: int = RECORDS_BYTES_MAX) -> Packed:
    """The rows as packed records, by way of Python values."""
    return packing.pack_records(record_tuples(rows, timestamp_ms=timestamp_ms), bytes_max)


def record_tuples(rows: pa.RecordBatch, *, timestamp_ms: int) -> list[Any]:
    """The rows as records; not all of them need be such that a batch can hold them."""
    columns = InputColumns(rows)
    count = rows.num_rows
    try:
        for array in (columns.key, columns.value, columns.timestamp, columns.headers):
            if array is not None:
                array.validate(full=True)
        keys = columns.key.to_pylist() if columns.key is not None else [None] * count
        values = columns.value.to_pylist() if columns.value is not None else [None] * count
        timestamps = columns.timestamp.to_pylist() if columns.timestamp is not None else [None] * count
        lists = columns.headers.to_pylist() if columns.headers is not None else [None] * count
    except (pa.ArrowInvalid, UnicodeDecodeError) as e:
        raise InvalidRecord(f"the columns do not hold together: {e}") from e
    return [
        (
            key,
            value,
            timestamp_ms if timestamp is None else timestamp,
            [(entry["key"], entry["value"]) if entry is not None else (None, None) for entry in entries or ()],
        )
        for key, value, timestamp, entries in zip(keys, values, timestamps, lists, strict=True)
    ]


class InputColumns:
    """The columns of a record batch that a record has, in the one type each that the packers know."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.key = self._cast(rows, "key", pa.binary())
        self.value = self._cast(rows, "value", pa.binary())
        self.headers = self._cast(rows, "headers", HEADERS_GIVEN_TYPE)
        timestamp = self._column(rows, "timestamp")
        if timestamp is not None and pa.types.is_timestamp(timestamp.type):
            target = pa.timestamp("ms", tz=timestamp.type.tz)
            # Microseconds may be cut off; a second too large for milliseconds may not.
            options = pc.CastOptions(target_type=target, allow_time_truncate=True)
            try:
                timestamp = timestamp.cast(options=options).view(pa.int64())
            except pa.ArrowInvalid as e:
                raise InvalidRecord(f"a timestamp does not fit 64 bits of milliseconds: {e}") from e
        elif timestamp is not None and timestamp.type != pa.int64():
            raise InvalidRecord(f"the column timestamp is {timestamp.type}, neither a timestamp nor int64")
        self.timestamp = timestamp

    @staticmethod
    def _column(rows: pa.RecordBatch, name: str) -> Any:
        found = rows.schema.get_all_field_indices(name)
        if len(found) > 1:
            raise InvalidRecord(f"there are {len(found)} columns named {name}")
        if not found or pa.types.is_null(rows.schema.field(found[0]).type):
            return None
        return rows.column(found[0])

    @classmethod
    def _cast(cls, rows: pa.RecordBatch, name: str, wanted: pa.DataType) -> Any:
        array = cls._column(rows, name)
        if array is None or array.type == wanted or (wanted == HEADERS_GIVEN_TYPE and array.type == HEADERS_TYPE):
            return array
        try:
            return array.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as e:
            raise InvalidRecord(f"the column {name} is {array.type}, not {wanted}") from e


def bytes_buffers(array: Any) -> tuple[int, Any, Any, Any] | None:
    """A column of bytes as the kernel takes it."""
    if array is None:
        return None
    valid, offsets, data = array.buffers()
    return array.offset, valid, offsets, data


def _assemble(taken: tuple[Any, ...], columns: Sequence[str], next_offset: int) -> ArrowRecords:
    """Arrow arrays around the finished buffers; nothing is copied."""
    count, offset, timestamp, timestamp_type, key, value, header_ends, header_key, header_value = taken
    arrays: dict[str, Any] = {}
    if offset is not None:
        arrays["offset"] = _fixed(pa.int64(), count, offset)
    if timestamp is not None:
        arrays["timestamp"] = _fixed(TIMESTAMP_TYPE, count, timestamp)
    if timestamp_type is not None:
        arrays["timestampType"] = _fixed(pa.int32(), count, timestamp_type)
    if key is not None:
        arrays["key"] = _variable(pa.binary(), count, key)
    if value is not None:
        arrays["value"] = _variable(pa.binary(), count, value)
    if header_ends is not None:
        header_count = len(header_key[1]) // 4 - 1
        entry_type = HEADERS_TYPE.value_type
        pairs = [_variable(pa.string(), header_count, header_key), _variable(pa.binary(), header_count, header_value)]
        entries = pa.StructArray.from_buffers(entry_type, header_count, [None], children=pairs)
        arrays["headers"] = pa.ListArray.from_buffers(
            HEADERS_TYPE, count, [None, pa.py_buffer(header_ends)], children=[entries]
        )
    rows = pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=_schema_of(tuple(columns)))
    return ArrowRecords(rows, count, next_offset)


@lru_cache(maxsize=64)
def _schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """Cached: for a small fetch, building it takes longer than decoding."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def _fixed(kind: pa.DataType, count: int, data: Any) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _variable(kind: pa.DataType, count: int, column: tuple[Any, Any, Any]) -> Any:
    valid, offsets, data = column
    bitmap = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])
