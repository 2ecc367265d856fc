"""Open a partition's directory, after a clean stop or a crash, and say what was found.

What a seal vouches for is trusted. What was open when the power went is read batch by batch and cut at
the first byte that is not right. Damage that no crash explains (a sealed segment that is not what its
seal says) costs only what is damaged: the segments behind it stay, and the report names the gap.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ottla.errors import BatchError, InvalidBatch, InvalidTopicLayout, StorageError
from ottla.records.batch import OFFSET_DELTA_MAX
from ottla.storage import producer_snapshot, seal, swap
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.checkpoint import (
    DamagedCheckpoint,
    decode_epochs,
    decode_number,
    encode_epochs,
    encode_number,
    make_durable_directory,
    read_small,
    write_atomically,
)
from ottla.storage.disk import Disk
from ottla.storage.epochs import UNDEFINED_EPOCH, EpochStart, LeaderEpochs
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_replay import (
    aborted_in,
    producers_at,
    remove_snapshots,
    replay_batch,
)
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scan import CHUNK_BYTES, SegmentIndexes, batches, newest_ms
from ottla.storage.seal import DamagedSeal, Seal
from ottla.storage.segment import (
    DATA_SUFFIXES,
    LOG_SUFFIX,
    SEAL_SUFFIX,
    SNAPSHOT_SUFFIX,
    Segment,
    file_name,
    parse_name,
)
from ottla.storage.sync import seal_segments

FORMAT_VERSION = 1
FORMAT_FILE = "log-format"
LOG_START_FILE = "log-start-offset"
EPOCHS_FILE = "leader-epoch-checkpoint"
SYNC_FAILED_FILE = "sync-failed"
PROGRESS_BYTES = 256 << 20
"""A long scan says how far it is each time it has read this much."""

_REWRITE_SUFFIX = ".rewrite"
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    clean: bool = True
    """The log was closed in order; nothing had to be read."""
    scanned_bytes: int = 0
    cut_bytes: int = 0
    swaps_finished: int = 0
    damage: list[str] = field(default_factory=list)
    """What no crash explains, a sentence each, with path and position."""


@dataclass(slots=True)
class OpenedLog:
    """The state of a partition as its directory tells it. The last segment is the active one."""

    segments: list[Segment]
    log_start_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates
    report: RecoveryReport


class Recovery:
    """One opening of one partition's directory."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, *, now_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._segments: list[Segment] = []
        self._report = RecoveryReport()
        self._broken: dict[int, Seal] = {}
        """Seals of segments that are not as they say."""
        self._producers: ProducerStates | None = None
        """What the scan of the tail found; None when nothing had to be scanned."""
        self._epochs_saved: tuple[EpochStart, ...] | None = None
        self._epoch_newest = UNDEFINED_EPOCH
        """That the file knows: it may have begun without a record that is left."""

    def run(self) -> OpenedLog:
        """Bring the directory into order and read what must be known of it."""
        disk, directory = self._disk, self._directory
        ours = self._check_format()
        if not ours:
            make_durable_directory(disk, directory)
        self._report.swaps_finished = swap.finish_all(disk, directory)
        log_start_offset = self._read_log_start()
        bases = self._segment_bases()
        for base_offset in bases:
            self._segments.append(self._segment(base_offset))
        self._drop_below(log_start_offset)
        dirty = self._trust_seals()
        self._mend_damaged(self._segments[:dirty])
        lost_end_offset = self._report_lost(log_start_offset)
        epochs = self._read_epochs(dirty)
        self._scan_tail(dirty, epochs, contiguous=ours)
        log_start_offset = self._settle_ends(log_start_offset, lost_end_offset)
        log_end_offset = self._segments[-1].end_offset
        producers = self._producers_at(log_end_offset) if self._producers is None else self._producers
        epochs.truncate_start(log_start_offset)
        epochs.truncate_end(log_end_offset)
        # Offsets may be given out anew from here on, never under an epoch that was there before.
        epochs.assign(self._epoch_newest, start_offset=log_end_offset)
        for path, data in self._epochs_file(epochs):
            write_atomically(disk, path, data)
        self._remove_orphans(log_end_offset)
        if disk.size(f"{directory}/{SYNC_FAILED_FILE}") is not None:
            disk.remove(f"{directory}/{SYNC_FAILED_FILE}")
            disk.sync_directory(directory)
        if not ours:
            write_atomically(disk, f"{directory}/{FORMAT_FILE}", encode_number(FORMAT_FILE, FORMAT_VERSION))
        return OpenedLog(self._segments, log_start_offset, epochs, producers, self._report)

    # --- what stands there ---------------------------------------------------------------------------

    def _check_format(self) -> bool:
        """Whether the directory is one of ours, or a new or a foreign one that is to become ours."""
        path = f"{self._directory}/{FORMAT_FILE}"
        data = read_small(self._disk, path)
        if data is None:
            return False
        try:
            version = decode_number(FORMAT_FILE, data)
        except DamagedCheckpoint as error:
            self._damage(f"{path}: {error}; the format is taken to be version {FORMAT_VERSION}")
            return True
        if version != FORMAT_VERSION:
            age = "newer: upgrade Ottla" if version > FORMAT_VERSION else "older: open it with the Ottla that wrote it"
            raise InvalidTopicLayout(path, f"log format {version}, this Ottla reads {FORMAT_VERSION}; the log is {age}")
        return True

    def _read_log_start(self) -> int:
        path = f"{self._directory}/{LOG_START_FILE}"
        data = read_small(self._disk, path)
        if data is None:
            return 0
        try:
            return decode_number(LOG_START_FILE, data)
        except DamagedCheckpoint as error:
            # Deleted records may come back; that is better than records being lost.
            self._damage(f"{path}: {error}; the log starts at its first segment")
            return 0

    def _segment_bases(self) -> list[int]:
        names = (name for name in self._disk.names(self._directory) if name.endswith(LOG_SUFFIX))
        return sorted(parse_name(self._directory, name)[0] for name in names)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._disk,
            self._directory,
            base_offset,
            interval_bytes=self._config.index_interval_bytes,
            now_ms=self._now_ms,
            aborted_of=self._find_aborted,
        )

    def _find_aborted(self, segment: Segment) -> list[AbortedTransaction]:
        return aborted_in(self._disk, self._directory, self._segments, segment)

    def _report_lost(self, log_start_offset: int) -> int:
        """Seals whose segment is gone; returns where the last of them ended.

        A seal is removed before its segment, so no crash leaves one alone.
        """
        lost_end_offset = 0
        bases = {segment.base_offset for segment in self._segments}
        for name in self._disk.names(self._directory):
            if not name.endswith(SEAL_SUFFIX):
                continue
            segment = self._segment(parse_name(self._directory, name)[0])
            found = self._read_seal(segment) if segment.base_offset not in bases else None
            if found is not None and found.end_offset > log_start_offset:
                self._report.clean = False
                self._damage(
                    f"{segment.path(LOG_SUFFIX)}: the file is gone, its seal is there; "
                    f"the records from offset {segment.base_offset} to {found.end_offset - 1} are lost"
                )
                lost_end_offset = max(lost_end_offset, found.end_offset)
        return lost_end_offset

    def _settle_ends(self, log_start_offset: int, lost_end_offset: int) -> int:
        """See to it that there is an active segment and that the log starts inside; returns where.

        No offset is given out again: neither below the log start, nor of records that were lost.
        """
        if self._segments and self._segments[-1].end_offset < log_start_offset:
            # What was deleted was also lost. Its offsets were promised away all the same.
            self._cut_segments(list(self._segments), f"the log starts at offset {log_start_offset}")
            remove_snapshots(self._disk, self._directory, beyond=0)
            self._producers = None
        if not self._segments:
            self._add_active(log_start_offset)
        elif not self._report.clean and (last := self._segments[-1]).seal is not None:
            if last.base_offset == last.end_offset:
                # Empty: a new segment would have the same files.
                last.unseal()
                self._disk.sync_directory(self._directory)
            else:
                self._add_active(last.end_offset)
        if self._segments[-1].end_offset < lost_end_offset:
            self._segments[-1].end_offset = lost_end_offset
            seal_segments(self._disk, self._directory, self._segments[-1:], now_ms=self._now_ms)
            self._add_active(lost_end_offset)
        return max(log_start_offset, self._segments[0].base_offset)

    def _drop_below(self, log_start_offset: int) -> None:
        """A deletion that a crash cut short is finished."""
        while len(self._segments) > 1 and self._segments[1].base_offset <= log_start_offset:
            self._segments.pop(0).remove()

    def _damage(self, sentence: str) -> None:
        self._report.damage.append(sentence)
        _logger.error("%s", sentence)

    # --- seals ---------------------------------------------------------------------------------------

    def _trust_seals(self) -> int:
        """Adopt good seals; returns how many leading segments are not part of the tail to be scanned."""
        dirty = 0
        for at, segment in enumerate(self._segments):
            found = self._read_seal(segment)
            following = self._segments[at + 1].base_offset if at + 1 < len(self._segments) else None
            if found is None or (following is not None and found.end_offset > following):
                continue
            if self._disk.size(segment.path(LOG_SUFFIX)) == found.log_bytes:
                segment.adopt(found)
            else:
                # A seal of the wrong size still shows that a crash does not explain what is missing.
                self._broken[segment.base_offset] = found
            dirty = at + 1
        last = self._segments[-1].seal if self._segments else None
        self._report.clean = last is not None and last.closed and dirty == len(self._segments)
        if not self._segments:
            self._report.clean = self._disk.size(f"{self._directory}/{FORMAT_FILE}") is None
        return dirty

    def _read_seal(self, segment: Segment) -> Seal | None:
        path = segment.path(SEAL_SUFFIX)
        data = read_small(self._disk, path)
        if data is None:
            return None
        try:
            return seal.decode(data)
        except DamagedSeal as error:
            self._damage(f"{path}: {error}; the segment is read whole instead")
            return None

    def _mend_damaged(self, segments: list[Segment]) -> None:
        """Keep what is good of segments that should be sealed and are not as their seal says."""
        for at, segment in enumerate(segments):
            if segment.seal is not None:
                continue
            self._report.clean = False
            indexes = SegmentIndexes(segment.base_offset, interval_bytes=self._config.index_interval_bytes)
            end_offset, position, problem = self._scan(segment, indexes, None, None)
            whole = segment.file.size
            broken = self._broken.get(segment.base_offset)
            if problem is not None or broken is not None:
                reason = problem or (f"its seal says {broken.log_bytes} bytes" if broken else "")
                self._damage(
                    f"{segment.path(LOG_SUFFIX)}: damaged at byte {position} of {whole} ({reason}); "
                    f"the records from offset {end_offset} up to the next segment are lost"
                )
                segment.file.truncate(position)
                self._report.cut_bytes += whole - position
            # The whole range stays this segment's, so that no offset is used again.
            if broken is not None:
                end_offset = max(end_offset, broken.end_offset)
            following = self._segments[at + 1].base_offset if at + 1 < len(self._segments) else end_offset
            segment.adopt_scan(indexes, size=position, end_offset=max(end_offset, following))
            indexes.aborted = self._find_aborted(segment)
            seal_segments(self._disk, self._directory, [segment], now_ms=self._now_ms)

    # --- the tail ------------------------------------------------------------------------------------

    def _scan_tail(self, dirty: int, epochs: LeaderEpochs, *, contiguous: bool) -> None:
        """Read what no seal vouches for, cut what is not right, and make the rest durable."""
        tail = self._segments[dirty:]
        if not tail:
            return
        self._rewrite_after_failed_sync(tail)
        producers = self._producers = self._producers_at(tail[0].base_offset)
        expected = tail[0].base_offset
        snapshots: list[tuple[str, bytes]] = []
        for at, segment in enumerate(tail):
            if segment.base_offset != expected and contiguous:
                self._cut_segments(tail[at:], f"offset {expected} should follow")
                break
            if at:
                snapshots.append((segment.path(SNAPSHOT_SUFFIX), producer_snapshot.encode(producers.entries)))
            indexes = SegmentIndexes(segment.base_offset, interval_bytes=self._config.index_interval_bytes)
            end_offset, position, problem = self._scan(segment, indexes, epochs, producers)
            segment.adopt_scan(indexes, size=position, end_offset=end_offset)
            expected = end_offset
            if problem is not None:
                self._cut_file(segment, position, problem)
            if contiguous and problem is not None:
                self._cut_segments(tail[at + 1 :], f"they follow a cut at offset {end_offset}")
                break
            if not contiguous and at + 1 < len(tail):
                # Another program wrote these. Its compaction may leave gaps between segments, and its
                # crashes are not ours to judge: the range stays the earlier segment's, nothing is removed.
                segment.end_offset = max(end_offset, tail[at + 1].base_offset)
        tail = self._segments[dirty:]
        seal_segments(
            self._disk,
            self._directory,
            tail[:-1],
            now_ms=self._now_ms,
            active=tail[-1].file,
            small_files=[*self._epochs_file(epochs), *snapshots],
        )

    def _scan(
        self,
        segment: Segment,
        indexes: SegmentIndexes,
        epochs: LeaderEpochs | None,
        producers: ProducerStates | None,
    ) -> tuple[int, int, BatchError | None]:
        """Walk a segment; returns the end offset and position of its good part, and what ended it."""
        end_offset, position, said = segment.base_offset, 0, 0
        try:
            for found in batches(segment.file, verify=True):
                header = found.header
                last_offset = header.last_offset
                if header.base_offset < end_offset or last_offset - segment.base_offset > OFFSET_DELTA_MAX:
                    raise InvalidBatch(f"offset {header.base_offset} where {end_offset} or more was due")
                indexes.note(position=position, last_offset=last_offset, max_timestamp_ms=newest_ms(header))
                if epochs is not None:
                    epochs.assign(header.leader_epoch, start_offset=header.base_offset)
                aborted = replay_batch(producers, header, found.data) if producers is not None else None
                if aborted is not None:
                    indexes.aborted.append(aborted)
                end_offset = last_offset + 1
                position += header.size
                if position - said >= PROGRESS_BYTES:
                    said = position
                    _logger.info("reading %s: %d of %d MB", segment.file.path, position >> 20, segment.file.size >> 20)
        except BatchError as error:
            return end_offset, position, error
        finally:
            self._report.scanned_bytes += position
        return end_offset, position, None

    def _cut_file(self, segment: Segment, position: int, problem: BatchError) -> None:
        whole = segment.file.size
        _logger.warning(
            "%s: %d bytes cut at byte %d, what a crash left unfinished: %s",
            segment.path(LOG_SUFFIX),
            whole - position,
            position,
            problem,
        )
        self._report.cut_bytes += whole - position
        segment.file.truncate(position)

    def _cut_segments(self, segments: list[Segment], reason: str) -> None:
        """Remove segments behind the end, the last one first, so that no gap is ever left."""
        for segment in reversed(segments):
            size = self._disk.size(segment.path(LOG_SUFFIX)) or 0
            _logger.warning("%s: removed with %d bytes: %s", segment.path(LOG_SUFFIX), size, reason)
            self._report.cut_bytes += size
            segment.remove()
            self._segments.remove(segment)
        if segments:
            self._disk.sync_directory(self._directory)

    def _add_active(self, base_offset: int) -> None:
        active = self._segment(base_offset)
        active.create()
        self._disk.sync_directory(self._directory)
        self._segments.append(active)

    def _rewrite_after_failed_sync(self, tail: list[Segment]) -> None:
        """The kernel shows bytes that a failed sync never wrote, and calls them clean: write them again."""
        if self._disk.size(f"{self._directory}/{SYNC_FAILED_FILE}") is None:
            return
        for segment in tail:
            source = segment.file
            path = segment.path(LOG_SUFFIX)
            copy = self._disk.open(path + _REWRITE_SUFFIX, create=True)
            try:
                copy.truncate(0)
                for position in range(0, source.size, CHUNK_BYTES):
                    copy.append([source.read(position=position, size=CHUNK_BYTES)])
                copy.sync()
            finally:
                copy.close()
            self._disk.rename(path + _REWRITE_SUFFIX, path)
            segment.reopen()
        self._disk.sync_directory(self._directory)

    # --- what is derived -----------------------------------------------------------------------------

    def _producers_at(self, end_offset: int) -> ProducerStates:
        return producers_at(self._disk, self._directory, self._segments, end_offset)

    def _epochs_file(self, epochs: LeaderEpochs) -> list[tuple[str, bytes]]:
        """The epochs' file, when it does not say what it should."""
        if epochs.entries == self._epochs_saved:
            return []
        self._epochs_saved = epochs.entries
        return [(f"{self._directory}/{EPOCHS_FILE}", encode_epochs(epochs.entries))]

    def _read_epochs(self, dirty: int) -> LeaderEpochs:
        """The epochs of the trusted part."""
        path = f"{self._directory}/{EPOCHS_FILE}"
        data = read_small(self._disk, path)
        trusted = self._segments[:dirty]
        if data is not None:
            try:
                epochs = LeaderEpochs(decode_epochs(data))
                self._epochs_saved = epochs.entries
                self._epoch_newest = epochs.latest
                if dirty < len(self._segments):
                    epochs.truncate_end(self._segments[dirty].base_offset)
                return epochs
            except DamagedCheckpoint as error:
                self._damage(f"{path}: {error}; the leader epochs are read from the log")
        epochs = LeaderEpochs()
        for segment in trusted:
            try:
                for found in batches(segment.file, end=segment.size, verify=False):
                    epochs.assign(found.header.leader_epoch, start_offset=found.header.base_offset)
            except BatchError as error:
                self._damage(
                    f"{segment.path(LOG_SUFFIX)}: damaged inside: {error}; its later leader epochs are not known"
                )
        return epochs

    def _remove_orphans(self, log_end_offset: int) -> None:
        """Files that no segment needs: leftovers of what a crash interrupted."""
        remove_snapshots(self._disk, self._directory, below=self._segments[0].base_offset, beyond=log_end_offset)
        alive = {file_name(segment.base_offset, suffix) for segment in self._segments for suffix in _SUFFIXES}
        for name in self._disk.names(self._directory):
            leftover = name.endswith((".tmp", _REWRITE_SUFFIX)) or (name.endswith(_SUFFIXES) and name not in alive)
            if leftover:
                self._disk.remove(f"{self._directory}/{name}")


_SUFFIXES = (*DATA_SUFFIXES, SEAL_SUFFIX)


def note_failure(disk: Disk, directory: str, error: StorageError) -> None:
    """Leave word for the next opening that the page cache may show what the disk lacks."""
    _logger.error("%s is offline: %s", directory, error)
    try:
        write_atomically(disk, f"{directory}/{SYNC_FAILED_FILE}", f"{error}\n".encode())
    except StorageError as second:
        _logger.error("%s: not even that could be noted: %s", directory, second)
