"""A batch with some of its records taken out, for compaction.

Offsets, producer fields and the records' own bytes stay as they were; who is kept is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ottla.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    check,
    peek,
)
from ottla.records.builder import compress_records, write_header
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from ottla.records.reader import Span, spans, unpack
from ottla.records.varint import INT64_MIN, encode, read_int32, read_int64, wrap_int64

Keep = Callable[[int, bytes | None, bool], bool]
"""Offset, key, whether the value is null: does the record stay?"""


def filter_batch(
    batch: Buffer,
    keep: Keep,
    *,
    delete_horizon_ms: int | None = None,
    checked: bool = False,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Buffer:
    """The batch that begins `batch`, with only the records that `keep` wants.

    Base offset and last offset delta stay, so the offsets that left are gaps. `delete_horizon_ms` marks
    when the batch's tombstones may go. Nothing taken out and no new horizon: the same bytes. Nothing left:
    a header without records, as Kafka writes it, which the caller may keep for the producer's sake.
    """
    header = peek(batch) if checked else check(batch)
    payload = unpack(header, batch, decompressed_bytes_max=decompressed_bytes_max)
    base_timestamp = header.base_timestamp
    attributes = header.attributes
    append_time = bool(attributes & LOG_APPEND_TIME_BIT)
    new_horizon = delete_horizon_ms is not None and delete_horizon_ms != header.delete_horizon_ms
    if new_horizon and delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    shift_ms = header.base_timestamp - base_timestamp
    # A log-append-time batch's readers never look at the deltas.
    verbatim = append_time or shift_ms == 0
    out = bytearray(HEADER_SIZE)
    kept = 0
    max_timestamp = INT64_MIN
    for span in spans(header, payload):
        if not keep(header.base_offset + span.offset_delta, span.key, span.value_is_null):
            continue
        kept += 1
        out += payload[span.start : span.end] if verbatim else _rebased(payload, span, shift_ms)
        max_timestamp = max(max_timestamp, wrap_int64(header.base_timestamp + span.timestamp_delta))
    if kept == header.record_count and not new_horizon:
        return batch if len(batch) == header.size else bytes(batch[: header.size])
    if not kept:
        return _empty(header)
    if header.codec != Codec.NONE:
        out = compress_records(out, header.codec, None)
    write_header(
        out,
        replace(
            header,
            length=len(out) - LOG_OVERHEAD,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if append_time else max_timestamp,
            record_count=kept,
        ),
    )
    return out


def _rebased(payload: bytes, span: Span, shift_ms: int) -> bytes:
    """The record's bytes with a timestamp delta that counts from another base."""
    _, body = read_int32(payload, span.start)
    _, rest = read_int64(payload, body + 1)
    changed = payload[body : body + 1] + encode(wrap_int64(span.timestamp_delta + shift_ms)) + payload[rest : span.end]
    return encode(len(changed)) + changed


def _empty(header: BatchHeader) -> bytearray:
    """Only the header is left: no records, so none that are compressed."""
    out = bytearray(HEADER_SIZE)
    write_header(
        out,
        replace(header, length=HEADER_SIZE - LOG_OVERHEAD, attributes=header.attributes & ~CODEC_MASK, record_count=0),
    )
    return out
