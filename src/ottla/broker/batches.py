"""One batch of a Produce request: what it must be to be appended, and what its producer is told."""

from __future__ import annotations

from ottla.broker.answers import TimedOut
from ottla.error_codes import ErrorCode
from ottla.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicName,
    InvalidTransactionState,
    Refusal,
    UnsupportedCompression,
)
from ottla.partitions.partition import Partition
from ottla.protocol.messages.produce import PartitionProduceResponse
from ottla.protocol.wire import Buffer
from ottla.records.batch import TRANSACTIONAL_BIT, BatchHeader, TimestampType, check
from ottla.records.compression import Codec
from ottla.records.plain import PLAIN_ATTRIBUTES, room_for_records
from ottla.records.reader import RECORD_BYTES_MIN, spans, unpack

ZSTD_VERSION_MIN = 7


def append_batch(partition: Partition, index: int, records: Buffer | None, *, version: int) -> PartitionProduceResponse:
    """Append a batch of a request that names no transactional id. Raises a Refusal."""
    header = checked(partition, records, version)
    if header.attributes & TRANSACTIONAL_BIT:
        raise InvalidTransactionState("a transactional batch in a request that names no transactional id")
    assert records is not None
    return append_checked(partition, index, records, header)


def checked(partition: Partition, records: Buffer | None, version: int) -> BatchHeader:
    """The header of a batch that may be appended, as far as its bytes tell."""
    if not records:
        raise InvalidRecord("a produce request without a record batch")
    header = check(records)
    room = room_for_records(header, len(records))
    if header.record_count * RECORD_BYTES_MIN > room:
        raise InvalidRecord(f"{header.record_count} records are said to be in {room} bytes")
    is_unusual = header.attributes & ~(PLAIN_ATTRIBUTES | TRANSACTIONAL_BIT) or header.record_count < 1
    if is_unusual or partition.config.log.compact or partition.is_internal:
        _check_unusual(partition, records, header, version)
    return header


def append_checked(partition: Partition, index: int, records: Buffer, header: BatchHeader) -> PartitionProduceResponse:
    """Append a batch that may be, and say where it stands. Raises a Refusal."""
    written = partition.append(records, header)
    return PartitionProduceResponse(
        index, 0, written.appended.first_offset, written.append_time_ms, partition.log.log_start_offset
    )


def refused(index: int, error: Refusal, code: ErrorCode | None = None) -> PartitionProduceResponse:
    """What a producer is told of a batch that was not appended."""
    return PartitionProduceResponse(
        index=index,
        error_code=error.code if code is None else code,
        base_offset=-1,
        log_start_offset=-1,
        error_message=str(error),
    )


def not_on_disk(timeout_ms: int) -> TimedOut:
    """What is said of a batch that was appended, and has not become durable in time."""
    return TimedOut(f"not on disk after {timeout_ms} ms")


def _check_unusual(partition: Partition, records: Buffer, header: BatchHeader, version: int) -> None:
    """What needs a second look: anything but a plain batch for a plain topic."""
    if partition.is_internal:
        raise InvalidTopicName("Ottla keeps its own state in this topic; clients may read it, not write to it")
    if header.is_control:
        raise InvalidRecord("control batches are the broker's to write")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestamp("a producer stamps records with CreateTime; LogAppendTime is the broker's to set")
    if header.record_count < 1:
        raise InvalidRecord("a batch without records")
    if header.codec > Codec.ZSTD:
        raise UnsupportedCompression(f"compression codec {header.codec} is not known")
    if header.codec == Codec.ZSTD and version < ZSTD_VERSION_MIN:
        raise UnsupportedCompression(f"zstd needs Produce {ZSTD_VERSION_MIN} or later, this is {version}")
    if partition.config.log.compact:
        for record in spans(header, unpack(header, records)):
            if record.key is None:
                raise InvalidRecord("a compacted topic takes no record without a key")
