"""Which batches a reader of committed records must not see.

A small state machine over the batches of a fetch, in offset order, and the list of aborted transactions
that came with it. Knows nothing of where either came from.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.records.batch import BatchHeader, Buffer
from ottla.records.control import MarkerType, parse_marker


class AbortedTransactions:
    """Follows one partition's batches and says which belong to an aborted transaction."""

    __slots__ = ("_open", "_waiting")

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        """`aborted` holds (producer id, first offset) of each aborted transaction in the range to be read."""
        self._waiting = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether this batch, the next in order, is to be left out; control batches always are.

        `batch` begins with the whole batch, whose checksum has been verified.
        """
        if not self._waiting and not self._open:
            return header.is_control
        while self._waiting and self._waiting[-1][0] <= header.last_offset:
            self._open.add(self._waiting.pop()[1])
        if header.is_control:
            if header.producer_id in self._open:
                marker = parse_marker(batch, checked=True)
                if marker is not None and marker.marker_type is MarkerType.ABORT:
                    self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
