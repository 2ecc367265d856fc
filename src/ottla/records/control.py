"""Transaction markers: the control batches that end a transaction in a partition.

Builds and parses them; what a marker means for a log or a reader is decided elsewhere.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ottla.errors import InvalidBatch
from ottla.records.batch import CONTROL_BIT, NO_LEADER_EPOCH, Buffer, peek
from ottla.records.builder import build_batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.reader import read_batch

CONTROL_KEY_VERSION = 0
END_TRANSACTION_VERSION = 0

_CONTROL_KEY = Struct(">hh")
_END_TRANSACTION = Struct(">hi")


class MarkerType(IntEnum):
    """How a transaction ended; the number stands in the control record's key."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    marker_type: MarkerType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def build_marker(
    marker_type: MarkerType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """A control batch of one record that commits or aborts the producer's open transaction."""
    key = _CONTROL_KEY.pack(CONTROL_KEY_VERSION, marker_type)
    value = _END_TRANSACTION.pack(END_TRANSACTION_VERSION, coordinator_epoch)
    return build_batch(
        [(key, value, timestamp_ms, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def parse_marker(
    batch: Buffer, *, checked: bool = False, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Marker | None:
    """The marker in a control batch, or None for a control record of a kind that we do not know.

    Kafka adds kinds of control records as it grows, and versions that only append fields; both are let
    through. A control batch that compaction has emptied is None too. Raises BatchError for bad bytes and
    for a batch that is not a control batch.
    """
    header = peek(batch)
    if not header.attributes & CONTROL_BIT:
        raise InvalidBatch(f"the batch at offset {header.base_offset} is not a control batch")
    records = read_batch(batch, checked=checked, decompressed_bytes_max=decompressed_bytes_max)
    if not records:
        return None
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _CONTROL_KEY.size:
        raise InvalidBatch("a control record's key has a version and a type")
    version, number = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise InvalidBatch(f"control record version {version}")
    if number not in (MarkerType.ABORT, MarkerType.COMMIT):
        return None
    if value is None or len(value) < _END_TRANSACTION.size:
        raise InvalidBatch("a transaction marker's value has a version and a coordinator epoch")
    version, coordinator_epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        raise InvalidBatch(f"transaction marker version {version}")
    return Marker(MarkerType(number), header.producer_id, header.producer_epoch, coordinator_epoch)
