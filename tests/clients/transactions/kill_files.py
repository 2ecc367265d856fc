"""What stands in the files of a server: what its coordinator has decided, and which markers its partitions have.

For a server that is down. Between a kill and the next start it tells, whatever clients there were, what the kill has
hit: transactions that were open, and decisions of which some partitions know nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ottla.coordinators.transactions import records
from ottla.coordinators.transactions.records import TransactionLogKey, TransactionLogValue, TransactionStatus
from ottla.records.batch import BatchHeader, walk
from ottla.records.control import Marker, MarkerType, parse_marker
from ottla.records.reader import read_batch

TRANSACTION_STATE = "__transaction_state"
DECIDED = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
"""Decisions that markers have to follow."""


class Batch(NamedTuple):
    """One batch of a partition."""

    header: BatchHeader
    data: memoryview


class MarkerAt(NamedTuple):
    """A marker and its place."""

    offset: int
    marker: Marker


def partitions(data: Path, topic: str) -> dict[int, Path]:
    """The directory of each partition of a topic."""
    found = (path for path in data.glob(f"{topic}-*") if path.name.removeprefix(f"{topic}-").isdigit())
    return {int(path.name.rpartition("-")[2]): path for path in found}


def batches(partition: Path) -> Iterator[Batch]:
    """Every whole batch, oldest first."""
    for segment in sorted(partition.glob("*.log")):
        content = memoryview(segment.read_bytes())
        for position, header in walk(content):
            yield Batch(header, content[position : position + header.size])


def markers(data: Path, topic: str) -> dict[int, list[MarkerAt]]:
    """The markers in each partition of a topic."""
    found: dict[int, list[MarkerAt]] = {}
    for number, path in partitions(data, topic).items():
        found[number] = []
        for header, content in batches(path):
            marker = parse_marker(content) if header.is_control else None
            if marker is not None:
                found[number].append(MarkerAt(header.base_offset, marker))
    return found


def decisions(data: Path) -> Iterator[tuple[str, TransactionLogValue]]:
    """All that the coordinator has written of any transactional id; what is said of one id is in order."""
    for path in partitions(data, TRANSACTION_STATE).values():
        for header, content in batches(path):
            if header.is_control:
                continue
            for record in read_batch(content):
                decoded = records.decode(record.key or b"", record.value)
                if decoded is None or not isinstance(decoded.key, TransactionLogKey):
                    continue
                if isinstance(decoded.value, TransactionLogValue):
                    yield decoded.key.transactional_id, decoded.value


def standings(data: Path) -> dict[str, TransactionLogValue]:
    """How each transactional id stands."""
    return dict(decisions(data))


@dataclass
class Tally:
    """What became of the transactions of some transactional ids."""

    commits: int = 0
    aborts: int = 0
    fences: int = 0
    """Aborts that were the coordinator's own decision: somebody else had come, or it took too long."""
    ids: set[str] = field(default_factory=set)


def tally(data: Path, prefix: str) -> Tally:
    """Count over all ids that begin like this."""
    found = Tally()
    for transactional_id, value in decisions(data):
        if not transactional_id.startswith(prefix):
            continue
        found.ids.add(transactional_id)
        found.commits += value.transaction_status == TransactionStatus.COMPLETE_COMMIT
        found.aborts += value.transaction_status == TransactionStatus.COMPLETE_ABORT
        found.fences += value.transaction_status == TransactionStatus.PREPARE_ABORT and value.is_fenced
    return found


@dataclass(frozen=True)
class Hit:
    """What a kill of the server has interrupted."""

    open_ids: frozenset[str]
    """Ids with a transaction that was neither committed nor aborted."""
    missing_markers: Mapping[str, int]
    """By id whose decision stands, and of which it is not written that it has come to its end: how many partitions have
    no marker yet. Those of groups' offsets are not counted."""

    @classmethod
    def of(cls, data: Path) -> Hit:
        now = standings(data)
        return cls(
            frozenset(name for name, value in now.items() if value.transaction_status == TransactionStatus.ONGOING),
            {name: _missing(data, value) for name, value in now.items() if value.transaction_status in DECIDED},
        )

    @property
    def unmarked_count(self) -> int:
        """How many decisions have not reached all partitions."""
        return sum(count > 0 for count in self.missing_markers.values())


def _missing(data: Path, value: TransactionLogValue) -> int:
    """How many partitions still have the transaction open."""
    count = 0
    for topic in value.transaction_partitions or ():
        paths = partitions(data, topic.topic)
        for number in topic.partition_ids:
            is_open = False
            for header, _ in batches(paths[number]) if number in paths else ():
                if header.producer_id == value.producer_id:
                    is_open = header.is_transactional and not header.is_control
            count += is_open
    return count


def torn(data: Path, topic: str) -> tuple[int, list[str]]:
    """Of the transactions of version 2 in a topic: how many there are, and those that ended in two ways or not at all.

    Such a transaction has an epoch of its own, one below that of its markers.
    """
    ends: dict[tuple[int, int], set[MarkerType | None]] = {}
    for path in partitions(data, topic).values():
        still_open: set[tuple[int, int]] = set()
        for header, content in batches(path):
            marker = parse_marker(content) if header.is_control else None
            if marker is None:
                still_open.add((header.producer_id, header.producer_epoch))
                continue
            # One that has got no marker of its own is covered by the next of its producer.
            ended = {key for key in still_open if key[0] == header.producer_id}
            still_open -= ended
            for key in ended:
                ends.setdefault(key, set()).add(marker.marker_type)
        for key in still_open:
            ends.setdefault(key, set()).add(None)
    wrong = [f"producer {key[0]} epoch {key[1]}: {kinds}" for key, kinds in ends.items() if len(kinds | {None}) != 2]
    return len(ends), wrong
