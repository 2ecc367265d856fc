"""How much of all partitions is not on the disk yet, and who is hurried when that is too much.

It counts bytes and knows partitions only as those who can be asked to sync.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """Somebody with bytes that are not synced, who can be asked to sync them."""

    def ask_sync(self) -> None: ...


class UnsyncedBytes:
    """How many bytes all partitions together have not synced yet. Past the limit, writers wait.

    A partition with more than its own share is synced whatever its policy: long flushes are what makes the
    slowest requests slow. When half of the limit waits for syncs that have not begun, everybody is: else the other half
    would fill up too, and whoever waits would wait for ever if each had less than its share.
    """

    __slots__ = ("_holders", "_waiting", "bytes_max", "bytes_max_per_partition", "total")

    def __init__(self, *, bytes_max: int = 64 << 20, bytes_max_per_partition: int = 8 << 20) -> None:
        self.bytes_max = bytes_max
        self.bytes_max_per_partition = bytes_max_per_partition
        self.total = 0
        self._waiting = 0
        """Of them, those whose sync has not begun."""
        self._holders: set[Holder] = set()
        """Those with bytes whose sync has not begun and who were not hurried since."""

    @property
    def too_many(self) -> bool:
        return self.total > self.bytes_max

    @property
    def far_too_many(self) -> bool:
        """Whether making some wait has not helped."""
        return self.total > 2 * self.bytes_max

    def add(self, holder: Holder, size: int) -> None:
        """So many more."""
        self.total += size
        self._waiting += size
        self._holders.add(holder)
        if 2 * self._waiting > self.bytes_max:
            holders, self._holders = self._holders, set()
            for each in holders:
                each.ask_sync()

    def begin(self, holder: Holder, size: int) -> None:
        """So many of its bytes are being synced."""
        self._waiting -= size
        self._holders.discard(holder)

    def end(self, size: int) -> None:
        """So many have been synced."""
        self.total -= size

    def fail(self, size: int) -> None:
        """The sync of so many has failed, and is to be tried again."""
        self._waiting += size

    def drop(self, holder: Holder, size: int) -> None:
        """So many of its bytes never will be synced."""
        self.begin(holder, size)
        self.end(size)
