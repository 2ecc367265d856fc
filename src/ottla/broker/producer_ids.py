"""Producer ids that nobody has had: taken from the catalog in blocks, given out one by one.

A block costs one durable change of the metadata, an id nothing. Whatever of a block is left at a stop is lost,
which does no harm: there are enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.errors import OttlaError
from ottla.metadata.catalog import Catalog

BLOCK_SIZE = 1_000

Given = Callable[[int | OttlaError], None]


class ProducerIds:
    """The ids of one broker. Who waits is bounded by the requests that may be under way."""

    __slots__ = ("_block", "_catalog", "_waiting")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._block = iter(range(0))
        self._waiting: deque[Given] = deque()

    def take(self, given: Given) -> None:
        """Give out an id, at once or when the next block is there."""
        # Whoever came first is served first, also when there are ids again.
        if not self._waiting:
            producer_id = next(self._block, None)
            if producer_id is not None:
                given(producer_id)
                return
        self._waiting.append(given)
        if len(self._waiting) == 1:
            self._ask()

    def _ask(self) -> None:
        self._catalog.allocate_producer_ids(BLOCK_SIZE, self._take_block)

    def _take_block(self, block: range | OttlaError) -> None:
        if isinstance(block, OttlaError):
            waiting, self._waiting = self._waiting, deque()
            for given in waiting:
                given(block)
            return
        self._block = iter(block)
        while self._waiting:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._ask()
                return
            self._waiting.popleft()(producer_id)
