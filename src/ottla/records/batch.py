"""The outside of a record batch: its 61-byte header, its checksum, its offsets.

The broker never unpacks a record; what it must know stands in this header. Nothing here copies
the records or looks into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NoReturn

from fastcrc.crc32 import iscsi
from msgspec import Struct as Value
from msgspec.structs import astuple

from ottla.errors import CorruptBatch, InvalidBatch, TruncatedBatch, UnsupportedBatch
from ottla.protocol.wire import COPIED_BYTES_MAX

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Base offset and length: what stands before the bytes that the length counts."""
CRC_START = 21
"""The checksum covers everything from the attributes on."""
PREFIX_SIZE = 16
"""Base offset, length and leader epoch: what a leader may rewrite without a new checksum."""
MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
OFFSET_DELTA_MAX = 2**31 - 1

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_HEADER = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qii")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_CRC_AT = 17
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
_read_header = _HEADER.unpack_from
crc32c: Callable[[Buffer], int] = iscsi
"""The checksum of batches."""


class TimestampType(IntEnum):
    """Whose clock a batch's timestamps come from."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(Value, frozen=True, gc=False):
    """The header of one batch, field by field as it stands on the wire."""

    base_offset: int
    length: int
    """Bytes that follow the length field; the whole batch is `size`."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """The first record's timestamp, or the delete horizon when that bit is set."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The compression codec's number; see `ottla.records.compression`."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may go, if compaction has set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def peek(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. The batch's own bytes need not all be there.

    Raises TruncatedBatch, UnsupportedBatch or InvalidBatch; the checksum is not looked at.
    """
    if len(buffer) - position < HEADER_SIZE:
        raise TruncatedBatch(f"{len(buffer) - position} bytes are left, a batch header is {HEADER_SIZE}")
    header = BatchHeader(*_read_header(buffer, position))
    if header.magic != MAGIC or header.length < _LENGTH_MIN or header.last_offset_delta < 0 or header.record_count < 0:
        _refuse(header)
    return header


def _refuse(header: BatchHeader) -> NoReturn:
    if header.magic != MAGIC:
        raise UnsupportedBatch(f"magic {header.magic}: only record batches of magic {MAGIC} are stored")
    if header.length < _LENGTH_MIN:
        raise InvalidBatch(f"length {header.length} is shorter than a batch header")
    raise InvalidBatch(
        f"last offset delta {header.last_offset_delta}, record count {header.record_count}: neither may be negative"
    )


def check(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of a whole batch at `position` whose checksum is right."""
    if len(buffer) - position < HEADER_SIZE:
        raise TruncatedBatch(f"{len(buffer) - position} bytes are left, a batch header is {HEADER_SIZE}")
    header = BatchHeader(*_read_header(buffer, position))
    length = header.length
    if header.magic != MAGIC or length < _LENGTH_MIN or header.last_offset_delta < 0 or header.record_count < 0:
        _refuse(header)
    end = position + length + LOG_OVERHEAD
    if end > len(buffer):
        raise TruncatedBatch(f"the batch needs {header.size} bytes, {len(buffer) - position} are left")
    if type(buffer) is memoryview or (type(buffer) is bytes and length <= COPIED_BYTES_MAX):
        computed = crc32c(buffer[position + CRC_START : end])
    else:
        computed = crc32c(memoryview(buffer)[position + CRC_START : end])
    if computed != header.crc:
        raise CorruptBatch(
            f"checksum {computed:#010x}, the batch at offset {header.base_offset} says {header.crc:#010x}"
        )
    return header


def walk(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch's position and header; a cut-off last batch ends the walk quietly.

    That is how a fetch response ends: the broker may cut at any byte.
    """
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = peek(buffer, position)
        following = position + header.length + LOG_OVERHEAD
        if following > end:
            return
        yield position, header
        position = following


prefix: Callable[[int, int, int], bytes] = _PREFIX.pack
"""The first 16 bytes of a batch (base offset, length, leader epoch), to be written instead of those that came."""


def restamp(batch: bytearray | memoryview, *, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Give a batch its place in the log, in place; the checksum does not cover these fields."""
    _PREFIX.pack_into(batch, position, base_offset, _PREFIX.unpack_from(batch, position)[1], leader_epoch)


def restamp_append_time(batch: bytearray, *, timestamp_ms: int) -> None:
    """Mark a whole batch as stamped by the log, in place, with a new checksum."""
    attributes = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)[0] | LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    seal(batch)


def seal(batch: bytearray) -> None:
    """Write the checksum of a finished batch into its header."""
    with memoryview(batch) as view, view[CRC_START:] as covered:
        checksum = crc32c(covered)
    _CRC.pack_into(batch, _CRC_AT, checksum)


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header as given; `seal` puts the right checksum into the finished batch."""
    return _HEADER.pack(*astuple(header))
