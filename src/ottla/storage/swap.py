"""Put compacted segments in the place of the ones they were made from, whatever happens in between.

Compaction leaves whole, synced files with the suffix `.cleaned`. Renaming their seal to `.seal.swap` is
the decision: before it a crash leaves the old segments, after it recovery finishes the swap. Each step
can be done twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.errors import StorageFault
from ottla.storage.checkpoint import read_small
from ottla.storage.disk import Disk
from ottla.storage.seal import DamagedSeal, Seal, decode
from ottla.storage.segment import DATA_SUFFIXES, LOG_SUFFIX, SEAL_SUFFIX, SNAPSHOT_SUFFIX, file_name

CLEANED = ".cleaned"
SWAP = ".swap"


@dataclass(slots=True)
class SwapJob:
    """Puts all outputs of one compaction in place, from the first to the last; any thread may run it."""

    disk: Disk
    directory: str
    base_offsets: Sequence[int]
    next_horizon_ms: int | None
    """When the first tombstones and markers that were kept may go."""
    seals: dict[int, Seal] = field(default_factory=dict)
    """Those of the segments that are in place now, by base offset."""

    def run(self) -> None:
        """Raises StorageFault, after which the log must be reopened: that finishes what was decided."""
        for base_offset in self.base_offsets:
            decide(self.disk, self.directory, base_offset)
            self.seals[base_offset] = finish(self.disk, self.directory, base_offset)


def decide(disk: Disk, directory: str, base_offset: int) -> None:
    """From here on the compacted segment counts, and no longer those it was made from."""
    path = f"{directory}/{file_name(base_offset, SEAL_SUFFIX)}"
    log_path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{CLEANED}"
    expected = _read_decided(disk, path + CLEANED).log_bytes
    if disk.size(log_path) != expected:
        raise StorageFault(log_path, f"has {disk.size(log_path)} bytes, its seal says {expected}; it is not swapped in")
    disk.sync_directory(directory)
    disk.rename(path + CLEANED, path + SWAP)
    disk.sync_directory(directory)


def finish(disk: Disk, directory: str, base_offset: int) -> Seal:
    """Complete a swap that was decided; returns the seal of the segment that now stands there."""
    path = f"{directory}/{file_name(base_offset, SEAL_SUFFIX)}"
    seal = _read_decided(disk, path + SWAP)
    for name in disk.names(directory):
        digits, dot, suffix = name.partition(".")
        if not (digits.isdigit() and dot + suffix == LOG_SUFFIX):
            continue
        replaced = int(digits)
        if base_offset < replaced < seal.end_offset:
            for kind in (SEAL_SUFFIX, *DATA_SUFFIXES, SNAPSHOT_SUFFIX):
                disk.remove(f"{directory}/{file_name(replaced, kind)}")
    for kind in DATA_SUFFIXES:
        target = f"{directory}/{file_name(base_offset, kind)}"
        if disk.size(target + CLEANED) is not None:
            disk.rename(target + CLEANED, target)
    disk.sync_directory(directory)
    disk.rename(path + SWAP, path)
    disk.sync_directory(directory)
    return seal


def finish_all(disk: Disk, directory: str) -> int:
    """After a crash: complete what was decided, drop what was not; returns how many swaps were completed."""
    finished = 0
    for name in disk.names(directory):
        if name.endswith(SEAL_SUFFIX + SWAP):
            finish(disk, directory, int(name.partition(".")[0]))
            finished += 1
    drop_undecided(disk, directory)
    return finished


def drop_undecided(disk: Disk, directory: str) -> None:
    """Remove compacted files whose swap was never decided."""
    for name in disk.names(directory):
        if name.endswith(CLEANED):
            disk.remove(f"{directory}/{name}")


def _read_decided(disk: Disk, path: str) -> Seal:
    data = read_small(disk, path)
    if data is None:
        raise StorageFault(path, "is missing, so its compaction is not swapped in")
    try:
        return decode(data)
    except DamagedSeal as error:
        # The seal was synced before the rename, so no crash explains this: stop rather than guess.
        raise StorageFault(
            path, f"the seal of a compacted segment is damaged ({error}); restore this partition from a copy"
        ) from error
