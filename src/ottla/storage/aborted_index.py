"""The aborted transactions of one segment: what a read_committed consumer must skip.

Kafka's `.txnindex` format, 34 bytes an entry, written into the segment that holds the abort marker.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

ENTRY_BYTES = 34
_VERSION = 0
_ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One aborted transaction in one partition; both offsets are inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset once this transaction had ended: no earlier entry matters beyond it."""


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    """The `.txnindex` file."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode(data: bytes) -> list[AbortedTransaction]:
    """Read a whole `.txnindex` file whose checksum the caller has checked."""
    return [AbortedTransaction._make(fields[1:]) for fields in _ENTRY.iter_unpack(data)]
