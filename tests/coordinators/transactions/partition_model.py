"""A model of one partition: what stands in its log, what of it survives a crash, and which producers it lets in.

It follows the rules of the real log (sequences, epochs, markers) and nothing else: no bytes, no offsets. Each entry
says which transaction of which client it belongs to, and each marker which decision it carries out, so that the truth
can be told afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from ottla.coordinators.transactions.markers import TopicPartition
from ottla.errors import InvalidProducerEpoch, NotLeader, OutOfOrderSequence
from ottla.records.control import MarkerType

NO_SEQUENCE = -1
NO_TOKEN = 0


class Entry(NamedTuple):
    """A batch, or a marker."""

    producer_id: int
    epoch: int
    sequence: int
    token: int
    """The transaction of the client that wrote it."""
    taken_at: int
    """How many decisions the coordinator had recorded by then."""
    marker_type: MarkerType | None = None
    decision: int = -1
    """For a marker: which decision it carries out."""


@dataclass
class _Producer:
    epoch: int
    last_sequence: int = NO_SEQUENCE
    is_open: bool = False


class ModelPartition:
    """A log that grows, is synced every now and then, and loses its tail in a crash."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.entries: list[Entry] = []
        self.durable_count = 0
        self.is_offline = False
        self._producers: dict[int, _Producer] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def is_open(self, producer_id: int, *, epoch: int) -> bool:
        """Whether an earlier batch of this transaction stands here already."""
        known = self._producers.get(producer_id)
        return known is not None and known.is_open and known.epoch == epoch

    @property
    def has_open(self) -> bool:
        return any(producer.is_open for producer in self._producers.values())

    def append(self, entry: Entry, durable: Callable[[], None]) -> None:
        """Take a batch; `durable` is called once it, or the original that it repeats, survives a crash."""
        if self.is_offline:
            raise NotLeader("the partition is offline")
        known = self._producers.get(entry.producer_id)
        if known is not None:
            if entry.epoch == known.epoch and entry.sequence <= known.last_sequence:
                self._when_durable(durable)
                return
            if entry.epoch < known.epoch:
                raise InvalidProducerEpoch(f"epoch {entry.epoch}, {known.epoch} was seen")
            expected = 0 if entry.epoch > known.epoch else known.last_sequence + 1
            if entry.sequence != expected:
                raise OutOfOrderSequence(f"sequence {entry.sequence}, {expected} was due")
        self._take(entry)
        self._when_durable(durable)

    def append_marker(self, entry: Entry, durable: Callable[[], None]) -> None:
        """The same for the end of a transaction."""
        if self.is_offline:
            raise NotLeader("the partition is offline")
        known = self._producers.get(entry.producer_id)
        assert known is None or entry.epoch >= known.epoch, "a marker that comes too late: what it ends has gone on"
        self._take(entry)
        self._when_durable(durable)

    def _take(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._replay(entry)

    def _replay(self, entry: Entry) -> None:
        known = self._producers.get(entry.producer_id)
        if known is None or known.epoch != entry.epoch:
            is_open = known is not None and known.is_open
            known = self._producers[entry.producer_id] = _Producer(entry.epoch, is_open=is_open)
        if entry.marker_type is not None:
            known.is_open = False
        else:
            known.last_sequence = entry.sequence
            known.is_open = True

    def _when_durable(self, durable: Callable[[], None]) -> None:
        self._waiting.append((len(self.entries), durable))

    def sync(self) -> None:
        """All that stands here survives from now on."""
        self.durable_count = len(self.entries)
        waiting, self._waiting = self._waiting, []
        for _, durable in waiting:
            durable()

    def crash(self, random: Random) -> None:
        """A part of what was not synced is lost, from some entry on; nobody is told."""
        kept = random.randint(self.durable_count, len(self.entries))
        del self.entries[kept:]
        self.durable_count = kept
        self._waiting.clear()
        self._producers.clear()
        self.is_offline = False
        for entry in self.entries:
            self._replay(entry)
