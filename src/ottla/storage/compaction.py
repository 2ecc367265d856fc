"""Compaction: sealed segments in, segments with only the newest record of each key out.

A plain function from files to files, so that a child process can run it. It leaves whole, synced files
with the suffix `.cleaned`; `swap` puts them in their place. Three walks: the headers of all sources
(which producers and open ends are there), the records of the dirty ones (which offset is the newest of
its key), and the rewriting. When to compact, and what, is `compaction_plan`'s to say.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import NamedTuple

from ottla.errors import Refusal, StorageError, StorageFault
from ottla.records.batch import BatchHeader, Buffer, peek
from ottla.records.control import MarkerType, parse_marker
from ottla.records.filter import filter_batch
from ottla.records.reader import spans, unpack
from ottla.storage import aborted_index, seal
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.checkpoint import write_fresh
from ottla.storage.compaction_plan import CompactionPlan, Source
from ottla.storage.compaction_sources import (
    AbortedTransactions,
    Survey,
    file_path,
    read_aborted,
    read_batches,
    read_seal,
    take_survey,
)
from ottla.storage.disk import Disk
from ottla.storage.key_map import KeyMap
from ottla.storage.log_config import SEGMENT_BYTES_MAX
from ottla.storage.scan import FoundBatch, SegmentIndexes, newest_ms
from ottla.storage.seal import FileSum, Seal
from ottla.storage.segment import ABORTED_SUFFIX, DATA_SUFFIXES, INDEX_SUFFIX, LOG_SUFFIX, SEAL_SUFFIX, TIME_SUFFIX
from ottla.storage.swap import CLEANED

KEYS_MAX = 2_000_000
"""How many keys are remembered at once (about 250 MB). A segment that might bring more waits for the next
compaction, but the first dirty one is always taken: its own size is then the bound."""
WRITE_BYTES = 1 << 20
"""How much is collected before it is written."""

_TIMESTAMP_MAX = 2**63 - 1
_logger = logging.getLogger(__name__)


class Output(NamedTuple):
    """A compacted segment that waits to be swapped in; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction left behind."""

    outputs: tuple[Output, ...]
    """To be swapped in from the first to the last: a tombstone must never be in place before the segments
    below it, or the value that it deletes could outlive it. They may end before the plan does; what lies
    behind them is as dirty as before."""
    records_removed: int
    records_kept: int
    bytes_before: int
    bytes_after: int
    next_horizon_ms: int | None
    """When the first of the tombstones and markers that were kept may go."""


def compact(disk: Disk, directory: str, plan: CompactionPlan, *, keys_max: int = KEYS_MAX) -> CompactionResult:
    """Write the `.cleaned` files that the plan asks for.

    Raises StorageFault, with file and position, when a source is damaged or the disk fails; nothing
    is left behind then.
    """
    seals = {source: read_seal(disk, directory, source) for source in plan.sources}
    survey = take_survey(disk, directory, plan)
    aborted = AbortedTransactions(read_aborted(disk, directory, seals, plan))
    keys, covered = _newest_offsets(disk, directory, plan, aborted, survey, keys_max=keys_max)
    groups = [[source for source in group if source in covered] for group in plan.groups]
    cleaner = _Cleaner(plan, keys, aborted, survey.kept_for_producers(plan))
    outputs = []
    bytes_before = bytes_after = 0
    try:
        for group in filter(None, groups):
            output = _OutputSegment(disk, directory, group[0].base_offset, plan.index_interval_bytes)
            try:
                for source in group:
                    for found in read_batches(disk, directory, source, verify=True):
                        cleaner.clean(found, output)
                bytes_before += sum(source.size for source in group)
                # An emptied segment is as old as what it was made from, or retention would never reach it.
                sealed_at_ms = max(seals[source].sealed_at_ms for source in group)
                bytes_after += output.finish(end_offset=group[-1].end_offset, sealed_at_ms=sealed_at_ms)
            finally:
                output.close()
            outputs.append(Output(group[0].base_offset, group[-1].end_offset))
    except Exception:
        _remove_outputs(disk, directory, plan)
        raise
    return CompactionResult(
        tuple(outputs), cleaner.removed, cleaner.kept, bytes_before, bytes_after, cleaner.next_horizon_ms
    )


def _newest_offsets(
    disk: Disk,
    directory: str,
    plan: CompactionPlan,
    aborted: AbortedTransactions,
    survey: Survey,
    *,
    keys_max: int,
) -> tuple[KeyMap, frozenset[Source]]:
    """The newest offset of every key in the dirty sources, and the sources that this is enough for.

    Those are always a leading run: the clean ones, and each dirty one whose keys all went in.
    """
    keys = KeyMap()
    covered: list[Source] = []
    unknown_from = survey.first_open_offset if plan.aborted_beyond is None else None
    dirty_count = 0
    for source in plan.sources:
        if unknown_from is not None and source.end_offset > unknown_from:
            break
        if source.base_offset >= plan.first_dirty_offset:
            if dirty_count and len(keys) + survey.record_counts.get(source, 0) > keys_max:
                break
            dirty_count += 1
            for found in read_batches(disk, directory, source, verify=True):
                if not found.header.is_control and not aborted.hold(found.header):
                    _note_keys(keys, found)
        covered.append(source)
    is_stuck = not dirty_count and plan.end_offset > plan.first_dirty_offset
    return keys, frozenset() if is_stuck else frozenset(covered)


def _note_keys(keys: KeyMap, found: FoundBatch) -> None:
    header = found.header
    try:
        # All of them before any is noted: a batch that turns out to be unreadable must not hide others.
        records = list(spans(header, unpack(header, found.data)))
    except Refusal as error:
        # Its checksum is right, so a producer sent it like this. Nobody can read it; it stays as it is.
        _logger.warning("the batch at offset %d cannot be read and stays: %s", header.base_offset, error)
        return
    for record in records:
        if record.key is not None:
            keys.note(record.key, header.base_offset + record.offset_delta)


# --- deciding --------------------------------------------------------------------------------------


class _Cleaner:
    """Follows the batches of all sources in order, and says what becomes of each."""

    __slots__ = (
        "_aborted",
        "_begun",
        "_for_producers",
        "_horizon_ms",
        "_keys",
        "_now_ms",
        "kept",
        "next_horizon_ms",
        "removed",
    )

    def __init__(
        self, plan: CompactionPlan, keys: KeyMap, aborted: AbortedTransactions, for_producers: frozenset[int]
    ) -> None:
        self._now_ms = plan.now_ms
        self._horizon_ms = min(plan.now_ms + plan.delete_retention_ms, _TIMESTAMP_MAX)
        self._keys = keys
        self._aborted = aborted
        self._for_producers = for_producers
        self._begun: set[int] = set()
        """Producers with a transactional batch since their last marker."""
        self.kept = 0
        self.removed = 0
        self.next_horizon_ms: int | None = None

    def clean(self, found: FoundBatch, output: _OutputSegment) -> None:
        """Write to `output` what stays of this batch."""
        cleaned = self._clean_control(found, output) if found.header.is_control else self._clean_data(found)
        if cleaned is None:
            return
        header = found.header if cleaned is found.data else peek(cleaned)
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is not None and horizon_ms > self._now_ms:
            self.next_horizon_ms = min(horizon_ms, self.next_horizon_ms or horizon_ms)
        output.write(header, cleaned)

    def _clean_data(self, found: FoundBatch) -> Buffer | None:
        header = found.header
        if header.is_transactional:
            self._begun.add(header.producer_id)
        try:
            remaining = self._filtered(found)
        except Refusal:
            # It was named in the log when its keys were looked for.
            remaining = found.data
        count = peek(remaining).record_count
        self.kept += count
        self.removed += header.record_count - count
        return remaining if count or header.base_offset in self._for_producers else None

    def _filtered(self, found: FoundBatch) -> Buffer:
        header = found.header
        is_aborted = self._aborted.hold(header)
        horizon_ms = header.delete_horizon_ms
        tombstones_go = horizon_ms is not None and horizon_ms <= self._now_ms
        newest = self._keys.newest
        has_tombstone = False

        def keep(offset: int, key: bytes | None, value_is_null: bool) -> bool:
            nonlocal has_tombstone
            if is_aborted:
                return False
            if key is None:
                return True
            if offset < newest(key) or (value_is_null and tombstones_go):
                return False
            has_tombstone |= value_is_null
            return True

        remaining = filter_batch(found.data, keep, checked=True)
        if has_tombstone and horizon_ms is None:
            remaining = filter_batch(remaining, _everything, delete_horizon_ms=self._horizon_ms, checked=True)
        return remaining

    def _clean_control(self, found: FoundBatch, output: _OutputSegment) -> Buffer | None:
        """A marker stays while a batch of its transaction is there, and then until its horizon.

        The last marker of a producer stays whole: an empty control batch says nothing of epochs.
        """
        header = found.header
        if not header.record_count:
            return None
        try:
            marker = parse_marker(found.data, checked=True)
        except Refusal as error:
            _logger.warning("the control batch at offset %d is not understood and stays: %s", header.base_offset, error)
            return found.data
        if marker is None:
            return found.data
        if header.producer_id in self._begun:
            self._begun.discard(header.producer_id)
            transaction = self._aborted.ended_by(header.base_offset)
            if transaction is not None and marker.marker_type is MarkerType.ABORT:
                output.note_aborted(transaction)
            return found.data
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return filter_batch(found.data, _everything, delete_horizon_ms=self._horizon_ms, checked=True)
        if horizon_ms <= self._now_ms and header.base_offset not in self._for_producers:
            return None
        return found.data


def _everything(offset: int, key: bytes | None, value_is_null: bool) -> bool:
    return True


# --- writing ---------------------------------------------------------------------------------------


class _OutputSegment:
    """The `.cleaned` files of one segment."""

    __slots__ = ("_base_offset", "_buffered", "_directory", "_disk", "_file", "_indexes", "_parts", "_size")

    def __init__(self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._indexes = SegmentIndexes(base_offset, interval_bytes=index_interval_bytes)
        self._parts: list[Buffer] = []
        self._buffered = 0
        self._size = 0
        self._file = disk.open(self._path(LOG_SUFFIX), create=True)
        # A compaction that was interrupted may have left one behind.
        self._file.truncate(0)

    def _path(self, suffix: str) -> str:
        return file_path(self._directory, self._base_offset, suffix) + CLEANED

    def write(self, header: BatchHeader, batch: Buffer) -> None:
        if self._size + len(batch) > SEGMENT_BYTES_MAX:
            # A horizon, or another compression level, can make a batch a little longer than it was.
            raise StorageFault(self._file.path, "grows beyond what a segment can hold; lower segment.bytes")
        self._indexes.note(position=self._size, last_offset=header.last_offset, max_timestamp_ms=newest_ms(header))
        self._parts.append(batch)
        self._size += len(batch)
        self._buffered += len(batch)
        if self._buffered >= WRITE_BYTES:
            self._flush()

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        self._indexes.aborted.append(transaction)

    def finish(self, *, end_offset: int, sealed_at_ms: int) -> int:
        """Make all files whole and durable, the seal last; returns the bytes of the log file."""
        self._flush()
        self._file.sync()
        indexes = self._indexes
        indexes.finish()
        offsets, times = indexes.offsets.to_bytes(), indexes.times.to_bytes()
        aborted = aborted_index.encode(indexes.aborted)
        write_fresh(self._disk, self._path(INDEX_SUFFIX), offsets)
        write_fresh(self._disk, self._path(TIME_SUFFIX), times)
        write_fresh(self._disk, self._path(ABORTED_SUFFIX), aborted)
        finished = Seal(
            log_bytes=self._size,
            end_offset=end_offset,
            max_timestamp_ms=indexes.max_timestamp_ms,
            max_timestamp_offset=indexes.max_timestamp_offset,
            sealed_at_ms=sealed_at_ms,
            index=FileSum.of(offsets),
            time_index=FileSum.of(times),
            aborted_index=FileSum.of(aborted),
            cleaned=True,
        )
        write_fresh(self._disk, self._path(SEAL_SUFFIX), seal.encode(finished))
        return self._size

    def close(self) -> None:
        self._file.close()

    def _flush(self) -> None:
        self._file.append([b"".join(self._parts)])
        self._parts.clear()
        self._buffered = 0


def _remove_outputs(disk: Disk, directory: str, plan: CompactionPlan) -> None:
    for group in plan.groups:
        for suffix in (SEAL_SUFFIX, *DATA_SUFFIXES):
            # What brought us here is worth more than this; the next start removes what is left.
            with contextlib.suppress(StorageError):
                disk.remove(file_path(directory, group[0].base_offset, suffix) + CLEANED)
