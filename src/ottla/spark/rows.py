"""Rows of Arrow columns shared out among partitions, and packed into batches: the way of a table into a topic.

Says which partition gets which rows and lays their bytes end to end; knows nothing of topics, nor of what becomes of
the batches. With the compiled kernel no step is taken for each record in Python; without it the results are the same,
byte for byte.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ottla.client.routing import murmur2_partition
from ottla.errors import InvalidRecord
from ottla.records import kernel, packing
from ottla.records.arrow import InputColumns, bytes_buffers, header_buffers, record_tuples, timestamp_buffers
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import RECORDS_BYTES_MAX
from ottla.records.packing import Packed
from ottla.records.varint import wrap_int64

RECORD_OVERHEAD_BYTES = 21
"""What a record is reckoned to take beside its value when turns are measured."""


@dataclass(slots=True)
class Turns:
    """How rows without a key are spread: so many bytes for one partition, then for the next one."""

    bytes_max: int
    at: int = 0
    """Whose turn it is: an index among the partitions that rows are spread over."""
    bytes_sent: int = 0

    def among(self, count: int) -> int:
        """Whose turn it is among so many, which may be fewer than they were."""
        if self.at >= count:
            self.at, self.bytes_sent = self.at % count, 0
        return self.at


class Share(NamedTuple):
    """The rows of one partition: places in the order that `Shares` has."""

    partition: int
    start: int
    end: int


class Shares(NamedTuple):
    """Rows by partition, each partition's in their own order."""

    order: bytearray
    """The number of the row at each place, as 32-bit integers."""
    found: list[Share]


class PackableRows(Protocol):
    """Rows that are to become records: columns `key`, `value`, `headers` and `timestamp`, each of which may be missing.

    Keys and values are of a binary or string type. InvalidRecord for what no record can hold.
    """

    def shared_out(self, *, partition_count: int, spread: Sequence[int], turns: Turns, chosen: Any = None) -> Shares:
        """Which partition gets which rows: the `chosen` one (an int32 column), else by key like Kafka's, else in turns.

        `spread` are the partitions that rows without a key go to. InvalidRecord for a chosen one that is not there.
        """
        ...

    def pack(
        self, order: bytearray, *, start: int, end: int, batch_bytes: int, timestamp_ms: int
    ) -> tuple[Packed, int]:
        """The rows at these places, as many as a batch of so many bytes takes, at least one; and the place after.

        `timestamp_ms` is for those without a time of their own.
        """
        ...


def packable(rows: pa.RecordBatch) -> PackableRows:
    """The rows, by the kernel where it is there."""
    return PlainRows(rows) if kernel.compiled is None else KernelRows(rows)


class KernelRows:
    """Rows that the compiled kernel works on, straight from Arrow's buffers."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        assert kernel.compiled is not None, "the kernel is there"
        columns = InputColumns(rows)
        self._count: int = rows.num_rows
        self._keys, self._values = bytes_buffers(columns.key), bytes_buffers(columns.value)
        self._route = kernel.compiled.route_rows
        self._columns = kernel.compiled.PackedColumns(
            self._count,
            self._keys,
            self._values,
            timestamp_buffers(columns.timestamp),
            header_buffers(columns.headers),
        )

    def shared_out(self, *, partition_count: int, spread: Sequence[int], turns: Turns, chosen: Any = None) -> Shares:
        valid, data = (None, None) if chosen is None else chosen.buffers()
        order, found, turns.at, turns.bytes_sent = self._route(
            self._count,
            self._keys,
            self._values,
            None if chosen is None else (chosen.offset, valid, None, data),
            partition_count,
            spread,
            turns.among(len(spread)),
            turns.bytes_sent,
            turns.bytes_max,
        )
        return Shares(order, [Share(*each) for each in found])

    def pack(
        self, order: bytearray, *, start: int, end: int, batch_bytes: int, timestamp_ms: int
    ) -> tuple[Packed, int]:
        packed: tuple[Packed, int] = self._columns.pack(order, start, end, batch_bytes, RECORDS_BYTES_MAX, timestamp_ms)
        return packed


class PlainRows:
    """Rows by way of Python values."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._records = record_tuples(rows, timestamp_ms=0)
        times = InputColumns(rows).timestamp
        self._times_ms: list[int | None] = [None] * len(self._records) if times is None else times.to_pylist()

    def shared_out(self, *, partition_count: int, spread: Sequence[int], turns: Turns, chosen: Any = None) -> Shares:
        turns.among(len(spread))
        named = [None] * len(self._records) if chosen is None else chosen.to_pylist()
        by_partition: dict[int, list[int]] = {}
        for row, ((key, value, _, _), partition) in enumerate(zip(self._records, named, strict=True)):
            if partition is None and key is not None:
                partition = murmur2_partition(key, partition_count)
            elif partition is None:
                if turns.bytes_sent >= turns.bytes_max:
                    turns.at, turns.bytes_sent = (turns.at + 1) % len(spread), 0
                turns.bytes_sent += RECORD_OVERHEAD_BYTES + len(value or b"")
                partition = spread[turns.at]
            if not 0 <= partition < partition_count:
                raise InvalidRecord(f"record {row}: there is no such partition; the topic has {partition_count}")
            by_partition.setdefault(partition, []).append(row)
        order = array("i")
        found: list[Share] = []
        for partition, numbers in sorted(by_partition.items()):
            found.append(Share(partition, len(order), len(order) + len(numbers)))
            order.extend(numbers)
        return Shares(bytearray(order.tobytes()), found)

    def pack(
        self, order: bytearray, *, start: int, end: int, batch_bytes: int, timestamp_ms: int
    ) -> tuple[Packed, int]:
        chosen: list[Any] = []
        size = HEADER_SIZE
        base_ms = 0
        for row in memoryview(order).cast("i")[start:end]:
            key, value, _, headers = self._records[row]
            own_ms = self._times_ms[row]
            record = (key, value, timestamp_ms if own_ms is None else own_ms, headers)
            if not chosen:
                base_ms = record[2]
            # Laid out alone to be measured; its number and its time, which are counted from the first, may take more.
            alone, _, _, _ = packing.pack_records([record], RECORDS_BYTES_MAX)
            taken = _placed_size(len(alone) - HEADER_SIZE, len(chosen), wrap_int64(record[2] - base_ms))
            if chosen and size + taken > batch_bytes:
                break
            size += taken
            chosen.append(record)
        return packing.pack_records(chosen, RECORDS_BYTES_MAX), start + len(chosen)


def _placed_size(alone: int, number: int, later_ms: int) -> int:
    """What a record takes under this number, so much later than the first, given what it takes as a first one."""
    body = alone - next(size for size in range(1, 6) if _varint_size(alone - size) == size)
    body += _varint_size(number) - 1 + _varint_size(later_ms) - 1
    return body + _varint_size(body)


def _varint_size(value: int) -> int:
    # Signs alternate, so that small numbers below zero are short too.
    return max(1, -(-((value << 1) ^ (value >> 63)).bit_length() // 7))
