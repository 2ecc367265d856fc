"""What readers may see of a partition. Pure.

On a topic whose acknowledgements mean the disk, nothing is visible that a power loss could take back
and number again. On one that trusts the page cache, what is written is visible, as in Kafka.
"""

from __future__ import annotations

from enum import StrEnum


class AcksAll(StrEnum):
    """What `acks=all` promises: the setting `ottla.acks.all`."""

    DISK = "disk"
    OS = "os"


def high_watermark(acks_all: AcksAll, *, end_offset: int, synced_offset: int) -> int:
    """Exclusive: the offset below which records may be read."""
    return synced_offset if acks_all is AcksAll.DISK else end_offset


def last_stable_offset(high_watermark: int, first_unstable_offset: int | None) -> int:
    """Exclusive: the offset below which every transaction has ended."""
    if first_unstable_offset is None:
        return high_watermark
    return min(high_watermark, first_unstable_offset)
