"""Which leader epoch began at which offset, in one partition.

A follower, or a consumer that comes back, asks where an epoch ended to find out what it must forget.
Pure: the file it is kept in is `checkpoint`'s business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    """The first offset that was written under a leader epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Epochs and their first offsets, both ascending."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._entries: list[EpochStart] = []
        for entry in entries:
            self.assign(entry.epoch, start_offset=entry.start_offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when none is known."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, *, start_offset: int) -> bool:
        """Note a new epoch; true when it was one. Entries it contradicts are dropped."""
        if epoch < 0 or epoch <= self.latest:
            return False
        while self._entries and self._entries[-1].start_offset >= start_offset:
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start_offset))
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch under which an offset was written, -1 when unknown."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[at - 1].epoch if at else UNDEFINED_EPOCH

    def end_offset(self, epoch: int, *, log_end_offset: int) -> EpochStart:
        """The largest known epoch at or below `epoch`, and the offset where it ended.

        As Kafka's OffsetForLeaderEpoch answers: undefined for an epoch newer than any, and for one
        older than the first entry that epoch itself with the first entry's start.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest:
            return EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest:
            return EpochStart(epoch, log_end_offset)
        at = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        following = self._entries[at]
        known = self._entries[at - 1].epoch if at else epoch
        return EpochStart(known, following.start_offset)

    def truncate_end(self, end_offset: int) -> bool:
        """Forget epochs that began at or beyond `end_offset`; true when anything changed."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) != before

    def truncate_start(self, start_offset: int) -> bool:
        """Forget epochs that ended before `start_offset`; the one that covers it now begins there."""
        at = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if at == 0 or (at == 1 and self._entries[0].start_offset == start_offset):
            return False
        self._entries[:at] = [EpochStart(self._entries[at - 1].epoch, start_offset)]
        return True
