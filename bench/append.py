"""Appending to a log with the checksum checked, against a bare write of the same bytes.

Neither side syncs: what is compared is the work between a batch in memory and the same batch in the
page cache, on the same file system.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

from bench.building import records
from bench.turns import Comparison, Side
from ottla.clock import SystemClock
from ottla.records.builder import build_batch
from ottla.storage.disk import OsDisk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

BATCH_KB = 64
KB = 1024
SYNC_PROBES = 50


class LogSide:
    """A log that begins empty at each turn."""

    def __init__(self, directory: Path, batch: bytes) -> None:
        self._directory = directory
        self._batch = batch

    def prepare(self) -> None:
        self._log = Log.open(OsDisk(), str(self._directory), config=LogConfig(), clock=SystemClock())

    def work(self) -> None:
        self._log.append(self._batch, leader_epoch=0)

    def finish(self) -> None:
        # Closing syncs, so that no writing in the background runs on into the other side's turn.
        self._log.close()
        shutil.rmtree(self._directory)


class BareSide:
    """A file that begins empty at each turn, and nothing but `os.write`."""

    def __init__(self, path: Path, batch: bytes) -> None:
        self._path = path
        self._batch = batch

    def prepare(self) -> None:
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def work(self) -> None:
        os.write(self._descriptor, self._batch)

    def finish(self) -> None:
        os.fdatasync(self._descriptor)
        os.close(self._descriptor)
        self._path.unlink()


def comparisons(directory: Path) -> list[Comparison]:
    """The same batch again and again, to the same file system."""
    if file_system(directory) == "tmpfs":
        raise SystemExit(f"{directory} lies in memory (tmpfs); name a directory on a real disk with --directory")
    batch = bytes(build_batch(records(count=1, value_size=BATCH_KB * KB - 100)))
    log, bare = LogSide(directory / "log", batch), BareSide(directory / "bare", batch)
    settings = f"batches of {BATCH_KB} KB, checksum checked, no sync"
    ours = Side("ottla", log.work, log.prepare, log.finish)
    peer = Side("os.write", bare.work, bare.prepare, bare.finish)
    return [Comparison("append to a log", settings, ours, ((peer, 0.7),))]


@contextmanager
def workplace(parent: Path) -> Iterator[Path]:
    """An empty directory below `parent`, gone afterwards."""
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def describe_disk(directory: Path) -> str:
    """The file system and what one fdatasync of 4 KB costs on it."""
    taken_ns = []
    descriptor = os.open(directory / "probe", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(SYNC_PROBES):
            os.write(descriptor, bytes(4096))
            start = perf_counter_ns()
            os.fdatasync(descriptor)
            taken_ns.append(perf_counter_ns() - start)
    finally:
        os.close(descriptor)
    return (
        f"disk: {file_system(directory)}, fdatasync of 4 KB {statistics.median(taken_ns) / 1_000_000:.2f} ms (median)"
    )


def file_system(directory: Path) -> str:
    """The type of the file system that `directory` lies on."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, mount_point, kind, *_ = line.split()
        if directory.resolve().is_relative_to(mount_point) and len(mount_point) > len(best[0]):
            best = (mount_point, kind)
    return best[1]
