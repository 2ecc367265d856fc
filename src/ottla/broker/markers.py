"""Writes the markers that end transactions, in every partition that they have written to.

A decision that a client has been told of must reach all of its partitions, however long that takes: what is offline or
not there yet is tried again for as long as the broker runs, and after a restart the coordinator orders it anew. Only
what the catalog says is deleted gets no marker. Who ended the transaction, and why, is not known here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.clock import Clock
from ottla.coordinators.transactions.markers import TopicPartition, WriteMarkers
from ottla.errors import InvalidProducerEpoch, Refusal
from ottla.metadata.catalog import Catalog
from ottla.metadata.internal_topics import CONSUMER_OFFSETS
from ottla.partitions.hosted import HostedPartitions
from ottla.partitions.partition import Partition
from ottla.records.batch import peek
from ottla.records.control import MarkerType, build_marker
from ottla.scheduler import Scheduler

MARKERS_PER_PASS = 100
"""So many are written in one pass of the loop, a few milliseconds' work: a transaction may have thousands."""
RETRY_MS_MIN = 100
RETRY_MS_MAX = 1_000
"""How long it rests before it tries again; twice as long after each try, up to this."""

_logger = logging.getLogger(__name__)


class Groups(Protocol):
    """Where offsets that belong to a transaction wait for its end."""

    def end_transaction(
        self,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        marker_type: MarkerType,
        done: Callable[[Refusal | None], None],
    ) -> None: ...


class _Ending:
    """An order that is being carried out."""

    __slots__ = ("failed", "last_error", "open", "order", "retry_ms", "written")

    def __init__(self, order: WriteMarkers) -> None:
        self.order = order
        self.open = 0
        """How many partitions of this try are not settled."""
        self.failed: list[TopicPartition] = []
        self.last_error: Refusal | None = None
        self.retry_ms = RETRY_MS_MIN
        self.written: dict[TopicPartition, tuple[Partition, int]] = {}
        """Where the marker stands and may not be durable yet: up to which end of which log."""


class MarkerWriter:
    """Carries out orders. How many there can be is bounded by the transactional ids: each has one at a time."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        partitions: HostedPartitions,
        groups: Groups,
        scheduler: Scheduler,
        clock: Clock,
        coordinator_epoch: Callable[[str], int],
        completed: Callable[[WriteMarkers], None],
    ) -> None:
        """`coordinator_epoch` is asked for a transactional id; `completed` is told when all markers are durable."""
        self._catalog = catalog
        self._partitions = partitions
        self._groups = groups
        self._scheduler = scheduler
        self._clock = clock
        self._coordinator_epoch = coordinator_epoch
        self._completed = completed
        self._under_way: dict[WriteMarkers, _Ending] = {}
        self._to_write: deque[tuple[_Ending, TopicPartition]] = deque()
        self._left_in_pass = MARKERS_PER_PASS
        self._is_pass_counted = False
        self._is_stopped = False

    def carry_out(self, order: WriteMarkers) -> None:
        """Write these markers. An order that is given again while it is being carried out is one order."""
        if order in self._under_way:
            return
        ending = self._under_way[order] = _Ending(order)
        if order.partitions:
            self._try(ending, order.partitions)
        else:
            self._finish(ending)

    def stop(self) -> None:
        """Nothing is tried again. What is not written yet is ordered again after the next start."""
        self._is_stopped = True

    # --- trying --------------------------------------------------------------------------------------------

    def _try(self, ending: _Ending, places: tuple[TopicPartition, ...]) -> None:
        ending.open = len(places)
        self._to_write.extend((ending, place) for place in places)
        self._write()

    def _write(self) -> None:
        if not self._is_pass_counted:
            self._is_pass_counted = True
            self._scheduler.call_soon(self._next_pass)
        while self._to_write and self._left_in_pass:
            self._left_in_pass -= 1
            ending, place = self._to_write.popleft()
            settled = partial(self._settle, ending, place)
            try:
                self._end_in(ending, place, settled)
            except Refusal as error:
                settled(error)

    def _next_pass(self) -> None:
        self._left_in_pass = MARKERS_PER_PASS
        self._is_pass_counted = False
        if self._to_write:
            self._write()

    def _end_in(self, ending: _Ending, place: TopicPartition, settled: Callable[[Refusal | None], None]) -> None:
        order = ending.order
        if self._is_deleted(place):
            _logger.info("no marker of producer %d for %s-%d: it is deleted", order.producer_id, *place)
            settled(None)
        elif place.topic == CONSUMER_OFFSETS:
            self._groups.end_transaction(
                place.partition,
                producer_id=order.producer_id,
                producer_epoch=order.producer_epoch,
                marker_type=order.marker_type,
                done=settled,
            )
        else:
            partition = self._partitions.by_name(*place)
            before, end_offset = ending.written.get(place, (None, 0))
            if before is not partition:
                end_offset = self._append(partition, order)
                ending.written[place] = partition, end_offset
            partition.when_durable(end_offset, settled)

    def _is_deleted(self, place: TopicPartition) -> bool:
        """By the catalog's word and nobody else's: a partition that is not to be had now may be had later."""
        topic = self._catalog.image.topics.get(place.topic)
        if topic is None:
            # Its directory may be here, and the metadata that knew it may come back.
            return place.topic not in self._catalog.offline
        return place.partition >= len(topic.partitions)

    def _append(self, partition: Partition, order: WriteMarkers) -> int:
        """The end of the log that has the marker."""
        coordinator_epoch = self._coordinator_epoch(order.transactional_id)
        known = partition.log.producers.entry(order.producer_id)
        if known is not None:
            # An admin may have written a marker under an epoch of his own; that does not take the decision back.
            coordinator_epoch = max(coordinator_epoch, known.coordinator_epoch)
        marker = build_marker(
            order.marker_type,
            producer_id=order.producer_id,
            producer_epoch=order.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        try:
            partition.append(marker, peek(marker))
        except InvalidProducerEpoch as error:
            # A newer marker stands there and has ended whatever was open; it must be durable all the same.
            _logger.warning("%s needs no marker of %r: %s", partition.log.directory, order.transactional_id, error)
        return partition.log.end_offset

    # --- settling ------------------------------------------------------------------------------------------

    def _settle(self, ending: _Ending, place: TopicPartition, error: Refusal | None) -> None:
        if error is not None:
            ending.failed.append(place)
            ending.last_error = error
        ending.open -= 1
        if ending.open:
            return
        if not ending.failed:
            self._finish(ending)
            return
        if ending.retry_ms == RETRY_MS_MIN:
            # Once for each trouble, not for each try.
            _logger.warning(
                "the end of transaction %r waits for %d partitions: %s",
                ending.order.transactional_id,
                len(ending.failed),
                ending.last_error,
            )
        self._scheduler.call_later(ending.retry_ms, partial(self._retry, ending))
        ending.retry_ms = min(2 * ending.retry_ms, RETRY_MS_MAX)

    def _retry(self, ending: _Ending) -> None:
        if not self._is_stopped:
            places, ending.failed = tuple(ending.failed), []
            self._try(ending, places)

    def _finish(self, ending: _Ending) -> None:
        # Not from within whoever gave the order: thousands may be given, and come to their end, in one go.
        self._scheduler.call_soon(partial(self._tell, ending.order))

    def _tell(self, order: WriteMarkers) -> None:
        # Until it is told it is under way: given again just now, it must not be carried out twice.
        del self._under_way[order]
        self._completed(order)
