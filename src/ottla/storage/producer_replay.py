"""Bring producer state up to date from a snapshot and the batches behind it.

Used when a log is opened or truncated, and when the aborted transactions of one segment must be found
again. Knows segments and snapshots; the rules of producers are `producer_state`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.errors import BatchError
from ottla.records.batch import BatchHeader, Buffer
from ottla.records.control import parse_marker
from ottla.storage import producer_snapshot
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.checkpoint import read_small
from ottla.storage.disk import Disk
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scan import batches
from ottla.storage.segment import LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment, file_name

_OFFSET_MAX = 2**63 - 1
_logger = logging.getLogger(__name__)


def replay_batch(states: ProducerStates, header: BatchHeader, data: Buffer) -> AbortedTransaction | None:
    """Let one batch of the log act on the state; returns the transaction that it aborted, if it did."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.replay_batch(header, base_offset=header.base_offset)
        return None
    try:
        marker = parse_marker(data, checked=True)
    except BatchError as error:
        # Its checksum is right, so no crash explains it; a marker that nobody can read ends nothing.
        _logger.warning("the control batch at offset %d is not understood: %s", header.base_offset, error)
        return None
    return None if marker is None else states.replay_marker(header, marker, offset=header.base_offset)


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets of all snapshots there, ascending."""
    names = (name for name in disk.names(directory) if name.endswith(SNAPSHOT_SUFFIX))
    return sorted(int(name[:20]) for name in names if len(name) == 20 + len(SNAPSHOT_SUFFIX) and name[:20].isdigit())


def remove_snapshots(disk: Disk, directory: str, *, below: int = 0, beyond: int = _OFFSET_MAX) -> None:
    """Remove every snapshot of a state that is earlier or later than the log."""
    for offset in snapshot_offsets(disk, directory):
        if not below <= offset <= beyond:
            disk.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")


def producers_at(disk: Disk, directory: str, segments: Sequence[Segment], end_offset: int) -> ProducerStates:
    """The producers as they were at an offset."""
    start_offset, states = _load_snapshot(disk, directory, segments, at_most=end_offset)
    replay_segments(states, segments, start_offset=start_offset, end_offset=end_offset)
    return states


def _load_snapshot(
    disk: Disk, directory: str, segments: Sequence[Segment], *, at_most: int
) -> tuple[int, ProducerStates]:
    """The newest good snapshot at or before an offset; an empty state at the first segment when there is none."""
    at_least = segments[0].base_offset if segments else 0
    for offset in reversed(snapshot_offsets(disk, directory)):
        if not at_least <= offset <= at_most:
            # One from before the first segment knows nothing of the batches that are gone since.
            continue
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        data = read_small(disk, path)
        try:
            if data is not None:
                return offset, ProducerStates(producer_snapshot.decode(data))
        except producer_snapshot.DamagedSnapshot as error:
            _logger.warning("%s is damaged (%s): an older state and the log serve instead", path, error)
            disk.remove(path)
    return at_least, ProducerStates()


def replay_segments(
    states: ProducerStates, segments: Sequence[Segment], *, start_offset: int, end_offset: int
) -> dict[int, list[AbortedTransaction]]:
    """Replay the batches of a range; returns the aborted transactions by the segment that ended them."""
    aborted: dict[int, list[AbortedTransaction]] = {}
    for segment in segments:
        if segment.end_offset <= start_offset or segment.base_offset >= end_offset:
            continue
        ended = aborted.setdefault(segment.base_offset, [])
        try:
            position = segment.position_of(start_offset) if start_offset > segment.base_offset else 0
            for found in batches(segment.file, position=position, end=segment.size, verify=False):
                if found.header.base_offset >= end_offset:
                    break
                transaction = replay_batch(states, found.header, found.data)
                if transaction is not None:
                    ended.append(transaction)
        except BatchError as error:
            # Damage costs what is damaged: what this segment would have told of its producers.
            _logger.error("%s: damaged inside: %s; its later producers are not known", segment.path(LOG_SUFFIX), error)
    return aborted


def aborted_in(disk: Disk, directory: str, segments: Sequence[Segment], segment: Segment) -> list[AbortedTransaction]:
    """The aborted transactions of one segment, found again from the log."""
    start_offset, states = _load_snapshot(disk, directory, segments, at_most=segment.base_offset)
    aborted = replay_segments(states, segments, start_offset=start_offset, end_offset=segment.end_offset)
    return aborted.get(segment.base_offset, [])
