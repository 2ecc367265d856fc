"""One segment of a log: a run of batches in a file, with its indexes and, when finished, its seal.

A segment finds positions and bytes. It does not decide when to roll, what may be read, or what is
durable; `log` does. Files and indexes of sealed segments are opened at first use and can be let go.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from struct import Struct

from ottla.errors import BatchError, InvalidTopicLayout, StorageError, StorageFault
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader, Buffer, peek
from ottla.storage import aborted_index, offset_index, seal, time_index
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.checkpoint import read_small, write_atomically
from ottla.storage.disk import Disk, File
from ottla.storage.ends import LOOK_FIRST, SegmentEnd
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.scan import SegmentIndexes, build_indexes
from ottla.storage.seal import FileSum, Seal
from ottla.storage.time_index import TimeIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_SUFFIX = ".timeindex"
ABORTED_SUFFIX = ".txnindex"
SEAL_SUFFIX = ".seal"
SNAPSHOT_SUFFIX = ".snapshot"
DATA_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX, ABORTED_SUFFIX)
"""What a segment is made of, beside its seal."""

LOOKUP_BYTES = 8192
"""Read at once when a batch is looked for: an index interval, usually, and the header after it."""

_LOOKUP = Struct(">qi11xi")
_marker_offset = attrgetter("last_offset")
_logger = logging.getLogger(__name__)

AbortedOf = Callable[["Segment"], list[AbortedTransaction]]


def file_name(base_offset: int, suffix: str) -> str:
    """A segment's file: twenty digits of its first offset, and what it holds."""
    return f"{base_offset:020d}{suffix}"


def parse_name(directory: str, name: str) -> tuple[int, str]:
    """Base offset and suffix of a segment's file; a name that is not one is a foreign layout."""
    digits, dot, rest = name.partition(".")
    if len(digits) != 20 or not digits.isascii() or not digits.isdigit():
        raise InvalidTopicLayout(f"{directory}/{name}", "a segment's name is its first offset in twenty digits")
    return int(digits), dot + rest


class Segment(SegmentEnd):
    """The batches from `base_offset` up to, not including, `end_offset`."""

    __slots__ = (
        "_aborted_of",
        "_directory",
        "_disk",
        "_interval_bytes",
        "_is_held",
        "created_ms",
        "first_timestamp_ms",
        "seal",
    )

    _file: File | None
    _indexes: SegmentIndexes | None

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, interval_bytes: int, now_ms: int, aborted_of: AbortedOf
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._interval_bytes = interval_bytes
        self._aborted_of = aborted_of
        self._file = None
        self._indexes = None
        self._is_held = False
        self.last_batch_offset = self.last_batch_position = -1
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.first_timestamp_ms: int | None = None
        self.created_ms = now_ms
        self.seal: Seal | None = None
        self.index_entries_max = 0
        self.look_from_ms = LOOK_FIRST

    def __repr__(self) -> str:
        state = "sealed" if self.seal else "open"
        return f"<Segment {self.base_offset}..{self.end_offset} {self.size} bytes {state}>"

    # --- files -------------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX))
        return self._file

    def create(self) -> None:
        """Make the segment's empty file; its name is durable when the directory is synced."""
        self._file = self._disk.open(self.path(LOG_SUFFIX), create=True)
        if self._file.size:
            # Left behind by an append that failed half-way: nothing in it was ever acknowledged.
            self._file.truncate(0)
        self._indexes = SegmentIndexes(self.base_offset, interval_bytes=self._interval_bytes)

    def adopt(self, found: Seal) -> None:
        """Trust what a seal says of the files."""
        self.seal = found
        self.look_from_ms = LOOK_FIRST
        self.size = found.log_bytes
        self.end_offset = found.end_offset
        self.max_timestamp_ms = found.max_timestamp_ms
        self.max_timestamp_offset = found.max_timestamp_offset
        self.created_ms = found.sealed_at_ms
        self.last_batch_offset = self.last_batch_position = -1
        self._indexes = None

    def adopt_scan(self, indexes: SegmentIndexes, *, size: int, end_offset: int) -> None:
        """Take over what a scan of the file found."""
        self.seal = None
        self.look_from_ms = LOOK_FIRST
        self.size = size
        self.end_offset = end_offset
        self.last_batch_offset = self.last_batch_position = -1
        self._indexes = indexes
        self.max_timestamp_ms = indexes.max_timestamp_ms
        self.max_timestamp_offset = indexes.max_timestamp_offset

    def release(self) -> None:
        """Let go of the descriptor and, when the seal can bring them back, of the indexes.

        A slice that somebody still reads keeps the descriptor alive. What is held stays, and so does the
        descriptor of a segment that is not sealed: only it is told of writes that failed later.
        """
        if self._is_held or self.seal is None:
            return
        self._file = None
        self._indexes = None

    def let_go(self) -> None:
        """The files are gone, and nobody will ask for them again."""
        self._file = None
        self._indexes = None

    def reopen(self) -> None:
        """Another file stands under the name now: open that one at the next use."""
        self._file = None

    def hold(self) -> None:
        """Open what a reader needs, so that the files behind the names may be replaced."""
        self.file  # noqa: B018 - opened by being asked for
        self.indexes  # noqa: B018
        self._is_held = True

    def remove(self) -> None:
        """Delete the segment's files, its seal first, so that half a segment is never trusted."""
        with suppress(StorageError):
            # Held, so that its space is given back when it is let go of, and not by taking its name away.
            self.file  # noqa: B018 - opened by being asked for
        for suffix in (SEAL_SUFFIX, *DATA_SUFFIXES, SNAPSHOT_SUFFIX):
            self._disk.remove(self.path(suffix))
        self._file = None

    # --- writing -----------------------------------------------------------------------------------

    def append(self, parts: Sequence[Buffer], *, first: int, last: int, newest_ms: int, size: int) -> None:
        """Write one batch of that size, in parts, with the offsets that it was given."""
        file, indexes = self._file or self.file, self._indexes
        assert indexes is not None, "only a segment that was opened for writing grows"
        file.append(parts)
        position = self.size
        if newest_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = indexes.max_timestamp_ms = newest_ms
            self.max_timestamp_offset = indexes.max_timestamp_offset = last
        if position - indexes.indexed_at > indexes.interval_bytes:
            indexes.enter(position=position, last_offset=last)
            if indexes.count >= self.index_entries_max:
                self.look_from_ms = LOOK_FIRST
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = newest_ms
        self.last_batch_offset, self.last_batch_position = first, position
        self.size = position + size
        self.end_offset = last + 1

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        assert self._indexes is not None
        self._indexes.aborted.append(transaction)

    def index_files(self) -> list[tuple[str, bytes]]:
        """The index files as they are now, by path."""
        indexes = self.indexes
        return [
            (self.path(INDEX_SUFFIX), indexes.offsets.to_bytes()),
            (self.path(TIME_SUFFIX), indexes.times.to_bytes()),
            (self.path(ABORTED_SUFFIX), aborted_index.encode(indexes.aborted)),
        ]

    def make_seal(
        self, files: list[tuple[str, bytes]], *, now_ms: int, cleaned: bool = False, closed: bool = False
    ) -> Seal:
        """What the seal of this segment would say, given its index files."""
        return Seal(
            log_bytes=self.size,
            end_offset=self.end_offset,
            max_timestamp_ms=self.max_timestamp_ms,
            max_timestamp_offset=self.max_timestamp_offset,
            sealed_at_ms=now_ms,
            index=FileSum.of(files[0][1]),
            time_index=FileSum.of(files[1][1]),
            aborted_index=FileSum.of(files[2][1]),
            cleaned=cleaned,
            closed=closed,
        )

    def finish(self) -> None:
        """No batch follows in this segment."""
        self.indexes.finish()

    def sound_seal(self) -> Seal:
        """The seal, once the index files are known to be the ones that it speaks of."""
        if self._indexes is None:
            self._indexes = self._load_indexes()
        assert self.seal is not None, "only a sealed segment is asked"
        return self.seal

    def unseal(self) -> None:
        """Make a sealed segment writable again; it counts as unsealed once the directory is synced."""
        # The indexes are read while the seal can still vouch for them.
        self.sound_seal()
        self._disk.remove(self.path(SEAL_SUFFIX))
        self.seal = None

    def cut(self, *, position: int, end_offset: int) -> None:
        """Truncate the file; the caller has removed the seal durably."""
        indexes = self.indexes
        remaining = self._build_indexes(position)
        self.file.truncate(position)
        self.file.sync()
        remaining.aborted = [entry for entry in indexes.aborted if entry.last_offset < end_offset]
        self.first_timestamp_ms = None
        self.adopt_scan(remaining, size=position, end_offset=end_offset)

    # --- looking up --------------------------------------------------------------------------------

    @property
    def indexes(self) -> SegmentIndexes:
        if self._indexes is None:
            self._indexes = self._load_indexes()
        return self._indexes

    def position_of(self, offset: int) -> int:
        """Where the first batch begins whose last offset is at or beyond `offset`; `size` if none is."""
        if offset <= self.base_offset:
            return 0
        if offset >= self.end_offset:
            return self.size
        if offset == self.last_batch_offset:
            return self.last_batch_position
        position = self.indexes.offsets.floor(offset - self.base_offset)
        while position < self.size:
            chunk = self.file.read(position=position, size=min(LOOKUP_BYTES, self.size - position))
            at = 0
            while len(chunk) - at >= HEADER_SIZE:
                base_offset, length, delta = _LOOKUP.unpack_from(chunk, at)
                if base_offset + delta >= offset:
                    return position + at
                if length < HEADER_SIZE - LOG_OVERHEAD:
                    raise self._damaged(position + at, "a batch length is impossible")
                at += length + LOG_OVERHEAD
            if at == 0:
                raise self._damaged(position, "the file ends inside a batch header")
            position += at
        return self.size

    def header_at(self, position: int) -> BatchHeader:
        try:
            return peek(self.file.read(position=position, size=HEADER_SIZE))
        except BatchError as error:
            raise self._damaged(position, str(error)) from error

    def bound_behind(self, position: int) -> int:
        """An offset that no batch before `position` reaches, not far behind it."""
        relative_offset = self.indexes.offsets.ceiling(position)
        return self.end_offset if relative_offset is None else self.base_offset + relative_offset

    def rolling_timestamp_ms(self) -> int | None:
        """The first batch's timestamp, from which `segment.ms` counts; None in an empty segment."""
        if self.first_timestamp_ms is None and self.size:
            self.first_timestamp_ms = self.header_at(0).max_timestamp
        return self.first_timestamp_ms

    def aborted_between(self, first_offset: int, *, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Aborted transactions that touch the range, and whether later segments cannot hold another."""
        if self._indexes is None and self.seal is not None and not self.seal.aborted_index.size:
            # Nothing is read from the disk to find nothing in it.
            return [], False
        overlapping = []
        aborted = self.indexes.aborted
        # They stand in the order of their markers.
        for at in range(bisect_left(aborted, first_offset, key=_marker_offset), len(aborted)):
            entry = aborted[at]
            if entry.first_offset < end_offset:
                overlapping.append(entry)
            if entry.last_stable_offset >= end_offset:
                return overlapping, True
        return overlapping, False

    def _damaged(self, position: int, what: str) -> StorageFault:
        return StorageFault(self.path(LOG_SUFFIX), f"damaged at byte {position}: {what}; close the log and reopen it")

    # --- indexes on disk ---------------------------------------------------------------------------

    def _load_indexes(self) -> SegmentIndexes:
        """The indexes that the seal speaks of; built anew when a file is missing, short or wrong."""
        assert self.seal is not None, "an open segment has its indexes in memory"
        offsets = self._read_index(INDEX_SUFFIX, self.seal.index, offset_index.ENTRY_BYTES)
        times = self._read_index(TIME_SUFFIX, self.seal.time_index, time_index.ENTRY_BYTES)
        aborted = self._read_index(ABORTED_SUFFIX, self.seal.aborted_index, aborted_index.ENTRY_BYTES)
        if offsets is None or times is None:
            indexes = self._build_indexes(self.size)
        else:
            indexes = SegmentIndexes.of(
                self.base_offset,
                OffsetIndex.from_bytes(offsets),
                TimeIndex.from_bytes(times),
                interval_bytes=self._interval_bytes,
            )
            indexes.max_timestamp_ms = self.max_timestamp_ms
            indexes.max_timestamp_offset = self.max_timestamp_offset
        indexes.aborted = aborted_index.decode(aborted) if aborted is not None else self._aborted_of(self)
        if offsets is None or times is None or aborted is None:
            self._indexes = indexes
            self._rewrite_indexes()
        return indexes

    def _build_indexes(self, end: int) -> SegmentIndexes:
        try:
            return build_indexes(self.file, base_offset=self.base_offset, interval_bytes=self._interval_bytes, end=end)
        except BatchError as error:
            raise StorageFault(
                self.path(LOG_SUFFIX), f"damaged inside: {error}; close the log and reopen it"
            ) from error

    def _read_index(self, suffix: str, expected: FileSum, entry_bytes: int) -> bytes | None:
        if self._disk.size(self.path(suffix)) == expected.size and expected.size % entry_bytes == 0:
            data = read_small(self._disk, self.path(suffix))
            if data is not None and FileSum.of(data) == expected:
                return data
        _logger.warning("%s is missing or wrong: it is built anew from the segment", self.path(suffix))
        return None

    def _rewrite_indexes(self) -> None:
        """Put indexes that were built anew on disk; reading goes on from memory when that fails."""
        assert self.seal is not None
        try:
            files = self.index_files()
            for path, data in files:
                write_atomically(self._disk, path, data)
            renewed = self.make_seal(
                files, now_ms=self.seal.sealed_at_ms, cleaned=self.seal.cleaned, closed=self.seal.closed
            )
            write_atomically(self._disk, self.path(SEAL_SUFFIX), seal.encode(renewed))
            self.seal = renewed
        except StorageError as error:
            _logger.warning("the indexes of %s could not be written back: %s", self.path(LOG_SUFFIX), error)
