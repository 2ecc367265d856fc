"""One sync of a log: what has to reach the disk, in the order that makes it true after a crash.

The loop prepares a job, any thread may `run` it (it only writes and syncs files, which releases the
interpreter), and the loop completes it. A job holds everything it needs: it never looks at the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.storage import seal
from ottla.storage.checkpoint import write_atomically, write_fresh
from ottla.storage.disk import Disk, File
from ottla.storage.seal import Seal
from ottla.storage.segment import SEAL_SUFFIX, SNAPSHOT_SUFFIX, Segment


class SealWork(NamedTuple):
    """A segment that is finished and gets its seal."""

    segment: Segment
    file: File
    index_files: list[tuple[str, bytes]]
    seal: Seal

    @classmethod
    def of(cls, segment: Segment, *, now_ms: int, closed: bool = False) -> SealWork:
        segment.finish()
        files = segment.index_files()
        return cls(segment, segment.file, files, segment.make_seal(files, now_ms=now_ms, closed=closed))


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Everything up to `end_offset` is durable once `run` has returned."""

    disk: Disk
    directory: str
    end_offset: int
    active: File | None
    """The active segment's file, when it has bytes that are not synced."""
    sealing: Sequence[SealWork]
    small_files: Sequence[tuple[str, bytes]]
    """Checkpoints and snapshots that must be there before the seals."""
    names_changed: bool

    def run(self) -> None:
        """Write and sync; raises StorageFault, after which the log must be reopened."""
        for work in self.sealing:
            for path, data in work.index_files:
                write_fresh(self.disk, path, data)
            work.file.sync()
        for path, data in self.small_files:
            write_atomically(self.disk, path, data)
        if self.active is not None:
            self.active.sync()
        if self.names_changed or self.sealing:
            self.disk.sync_directory(self.directory)
        for work in self.sealing:
            write_atomically(self.disk, work.segment.path(SEAL_SUFFIX), seal.encode(work.seal))


def seal_segments(
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    *,
    now_ms: int,
    active: File | None = None,
    small_files: Sequence[tuple[str, bytes]] = (),
    closed: bool = False,
) -> None:
    """Seal finished segments here and now, with whatever must be durable before."""
    job = SyncJob(
        disk=disk,
        directory=directory,
        end_offset=-1,
        active=active,
        sealing=[SealWork.of(segment, now_ms=now_ms, closed=closed) for segment in segments],
        small_files=small_files,
        names_changed=True,
    )
    job.run()
    for work in job.sealing:
        work.segment.seal = work.seal


class PendingSync:
    """What the next sync of a log has to take along beside the bytes of its active segment."""

    __slots__ = ("_rolled", "_snapshots", "epochs_changed", "job", "names_changed")

    def __init__(self) -> None:
        self._rolled: list[Segment] = []
        self._snapshots: list[tuple[str, bytes]] = []
        self.epochs_changed = False
        self.names_changed = False
        self.job: SyncJob | None = None
        """The sync that is under way."""

    def note_rolled(self, segment: Segment, *, snapshot: tuple[str, bytes]) -> None:
        """A segment is finished; `snapshot` belongs to the one that follows."""
        self._rolled.append(segment)
        self._snapshots.append(snapshot)
        self.names_changed = True

    def forget_from(self, offset: int) -> None:
        """The log was truncated at `offset`: what lies beyond is not to be synced or sealed."""
        assert self.job is None, "a log is not truncated while it is synced"
        self._rolled = [segment for segment in self._rolled if segment.end_offset <= offset]
        self._snapshots = [file for file in self._snapshots if int(os.path.basename(file[0])[:20]) <= offset]

    def prepare(
        self,
        disk: Disk,
        directory: str,
        *,
        end_offset: int,
        active: File | None,
        epochs: Callable[[], tuple[str, bytes]],
        now_ms: int,
    ) -> SyncJob | None:
        """A job that takes all of it along, or None when there is nothing to do."""
        assert self.job is None, "a sync is under way"
        if not (active or self._rolled or self.epochs_changed or self.names_changed):
            return None
        small_files = [*self._snapshots, epochs()] if self.epochs_changed else self._snapshots
        self.job = SyncJob(
            disk=disk,
            directory=directory,
            end_offset=end_offset,
            active=active,
            sealing=[SealWork.of(segment, now_ms=now_ms) for segment in self._rolled],
            small_files=small_files,
            names_changed=self.names_changed,
        )
        self._rolled, self._snapshots = [], []
        self.epochs_changed = self.names_changed = False
        return self.job

    def complete(self, job: SyncJob) -> None:
        """The job has run."""
        assert job is self.job, "this sync was not the last one prepared"
        self.job = None
        for work in job.sealing:
            work.segment.seal = work.seal
            work.segment.release()

    def put_back(self, job: SyncJob) -> None:
        """The job could not run for lack of space: the next one has to do its work."""
        assert job is self.job, "this sync was not the last one prepared"
        self.job = None
        self._rolled[:0] = [work.segment for work in job.sealing]
        self._snapshots[:0] = [file for file in job.small_files if file[0].endswith(SNAPSHOT_SUFFIX)]
        self.epochs_changed = self.names_changed = True
