"""Finished record batches, ready to be sent or appended.

Packs with the compiled kernel when it is there and in plain Python otherwise; the bytes are the same.
Does not decide what goes into a batch, nor when it is full.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence

from ottla.errors import InvalidRecord
from ottla.records import kernel, packing
from ottla.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    pack_header,
    seal,
)
from ottla.records.compression import Codec, compress
from ottla.records.packing import Packed, RecordTuple
from ottla.records.varint import INT32_MAX, INT64_MAX

RECORDS_BYTES_MAX = INT32_MAX - (HEADER_SIZE - LOG_OVERHEAD)
"""A batch's length is a signed 32-bit number and counts most of the header too."""

_pack_records: Callable[[Iterable[RecordTuple], int], Packed] = (
    kernel.compiled.pack_records if kernel.compiled else packing.pack_records
)
_pack_values: Callable[..., Packed | None] = kernel.compiled.pack_values if kernel.compiled else packing.pack_values


def build_batch(
    records: Sequence[RecordTuple],
    *,
    codec: int = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    level: int | None = None,
) -> bytearray:
    """One batch of `records`, each a (key, value, timestamp in ms, headers), at consecutive offsets.

    Raises InvalidRecord, naming the index, for a record that no batch can hold, and
    UnsupportedCompression for a codec or level that does not exist.
    """
    return finish_batch(
        _pack_records(records, RECORDS_BYTES_MAX),
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        timestamp_type=timestamp_type,
        level=level,
    )


def packed_values(values: Iterable[object], timestamp_ms: int) -> Packed | None:
    """Values without keys and headers, for `finish_batch`; None unless there are some and all of them are bytes."""
    return _pack_values(tuple(values), timestamp_ms=timestamp_ms, bytes_max=RECORDS_BYTES_MAX)


def finish_batch(
    packed: Packed,
    *,
    codec: int,
    base_offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    control: bool,
    timestamp_type: TimestampType,
    level: int | None,
) -> bytearray:
    """Compress packed records, and write the header and checksum; takes over the packed buffer."""
    batch, count, base_timestamp, max_timestamp = packed
    attributes = codec
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    if codec != Codec.NONE:
        batch = compress_records(batch, codec, level)
    if base_offset > INT64_MAX - (count - 1):
        raise InvalidRecord(f"base offset {base_offset}: the batch would end beyond the last offset there is")
    header = BatchHeader(
        base_offset=base_offset,
        length=len(batch) - LOG_OVERHEAD,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    write_header(batch, header)
    return batch


def compress_records(batch: bytearray, codec: int, level: int | None) -> bytearray:
    """The same batch with its records compressed; the room for the header stays."""
    with memoryview(batch) as view, view[HEADER_SIZE:] as records:
        squeezed = compress(codec, records, level)
    if len(squeezed) > RECORDS_BYTES_MAX:
        raise InvalidRecord(f"the compressed records take {len(squeezed)} bytes, a batch holds {RECORDS_BYTES_MAX}")
    out = bytearray(HEADER_SIZE)
    out += squeezed
    return out


def write_header(batch: bytearray, header: BatchHeader) -> None:
    """Put the header into the room kept for it, and the right checksum into the header."""
    try:
        batch[:HEADER_SIZE] = pack_header(header)
    except struct.error as e:
        raise InvalidRecord(f"a field of the batch does not fit its width: {e}") from e
    seal(batch)
