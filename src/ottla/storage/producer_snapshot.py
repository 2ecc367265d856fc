"""The file that keeps the producers of a partition over a restart: Kafka's `.snapshot` format.

Kafka's format holds each producer's last batch only. Behind its entries, where Kafka's readers stop,
stands a section of our own with the batches before that, so that a retry is recognised after a
restart as well as before it. The checksum covers both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from struct import Struct

from fastcrc.crc32 import iscsi as crc32c

from ottla.records.batch import NO_SEQUENCE
from ottla.storage.producer_state import NO_OFFSET, ProducerBatch, ProducerEntry

VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_EARLIER_HEAD = Struct(">qb")
_EARLIER = Struct(">iqiq")


class DamagedSnapshot(ValueError):
    """The bytes are not a whole snapshot; an older one, or the log itself, must serve."""


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    """The `.snapshot` file."""
    producers = list(entries)
    parts = [_COUNT.pack(len(producers))]
    for entry in producers:
        last = entry.batches[-1] if entry.batches else ProducerBatch(NO_SEQUENCE, NO_OFFSET, 0, entry.last_timestamp_ms)
        parts.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    for entry in producers:
        parts.append(_EARLIER_HEAD.pack(entry.producer_id, len(entry.batches)))
        parts += [_EARLIER.pack(*batch) for batch in entry.batches]
    body = b"".join(parts)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[ProducerEntry]:
    """Read a snapshot, ours or one that Kafka wrote; raises DamagedSnapshot."""
    try:
        version, checksum = _HEAD.unpack_from(data)
        if version != VERSION:
            raise DamagedSnapshot(f"version {version} is not {VERSION}")
        if crc32c(data[_HEAD.size :]) != checksum:
            raise DamagedSnapshot("the checksum is wrong")
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
        position = _HEAD.size + _COUNT.size
        entries = {}
        for _ in range(count):
            entry = _decode_entry(data, position)
            entries[entry.producer_id] = entry
            position += _ENTRY.size
        _decode_earlier(data, position, entries)
        return list(entries.values())
    except (struct.error, KeyError) as error:
        raise DamagedSnapshot(f"cut short or contradictory: {error}") from error


def _decode_entry(data: bytes, position: int) -> ProducerEntry:
    fields = _ENTRY.unpack_from(data, position)
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, coordinator_epoch, first = fields
    entry = ProducerEntry(producer_id, epoch, coordinator_epoch, first, timestamp_ms)
    if last_sequence != NO_SEQUENCE:
        entry.batches.append(ProducerBatch(last_sequence, last_offset, offset_delta, timestamp_ms))
    return entry


def _decode_earlier(data: bytes, position: int, entries: dict[int, ProducerEntry]) -> None:
    """Our own section: all remembered batches of each producer, oldest first."""
    while position < len(data):
        producer_id, count = _EARLIER_HEAD.unpack_from(data, position)
        position += _EARLIER_HEAD.size
        batches = entries[producer_id].batches
        batches.clear()
        for _ in range(count):
            batches.append(ProducerBatch._make(_EARLIER.unpack_from(data, position)))
            position += _EARLIER.size
