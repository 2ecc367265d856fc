"""The seal of a finished segment: a small file that says what its other files must be.

A seal is written when every byte of the segment is on disk, and removed (durably) before the segment
is written to again. So a segment with a seal needs no scan after a crash, and its indexes, which in
Kafka's format carry no checksum, are trusted only when they are the ones the seal speaks of.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastcrc.crc32 import iscsi as crc32c

VERSION = 1


class DamagedSeal(ValueError):
    """The bytes are not a whole seal; the segment is treated as one without."""


@dataclass(frozen=True, slots=True)
class FileSum:
    """A file's size and CRC-32C."""

    size: int
    crc: int

    @classmethod
    def of(cls, data: bytes) -> FileSum:
        return cls(len(data), crc32c(data))


@dataclass(frozen=True, slots=True)
class Seal:
    """What a finished segment holds."""

    log_bytes: int
    end_offset: int
    """Exclusive: the next segment begins here, also where compaction has removed the last records."""
    max_timestamp_ms: int
    max_timestamp_offset: int
    sealed_at_ms: int
    index: FileSum
    time_index: FileSum
    aborted_index: FileSum
    cleaned: bool = False
    """Compaction made this segment: it holds at most one record per key."""
    closed: bool = False
    """The segment was the active one of a log that was shut down cleanly."""


def encode(seal: Seal) -> bytes:
    """The `.seal` file: text, one field a line, closed by its own checksum."""
    lines = [
        f"seal {VERSION}",
        f"log_bytes {seal.log_bytes}",
        f"end_offset {seal.end_offset}",
        f"max_timestamp {seal.max_timestamp_ms} {seal.max_timestamp_offset}",
        f"sealed_at {seal.sealed_at_ms}",
        f"index {seal.index.size} {seal.index.crc}",
        f"timeindex {seal.time_index.size} {seal.time_index.crc}",
        f"txnindex {seal.aborted_index.size} {seal.aborted_index.crc}",
        f"cleaned {int(seal.cleaned)}",
        f"closed {int(seal.closed)}",
    ]
    body = ("\n".join(lines) + "\n").encode()
    return body + f"crc {crc32c(body)}\n".encode()


def decode(data: bytes) -> Seal:
    """Read a seal, or raise DamagedSeal."""
    body, found, checksum = data.rpartition(b"crc ")
    try:
        if not found or int(checksum) != crc32c(body):
            raise DamagedSeal("the checksum is wrong")
        fields = [[int(word) for word in line.split()[1:]] for line in body.decode().splitlines()]
        if fields[0] != [VERSION]:
            raise DamagedSeal(f"version {fields[0]} is not {VERSION}")
        return Seal(
            log_bytes=fields[1][0],
            end_offset=fields[2][0],
            max_timestamp_ms=fields[3][0],
            max_timestamp_offset=fields[3][1],
            sealed_at_ms=fields[4][0],
            index=FileSum(*fields[5]),
            time_index=FileSum(*fields[6]),
            aborted_index=FileSum(*fields[7]),
            cleaned=bool(fields[8][0]),
            closed=bool(fields[9][0]),
        )
    except (ValueError, IndexError, TypeError) as error:
        raise DamagedSeal(str(error)) from error
