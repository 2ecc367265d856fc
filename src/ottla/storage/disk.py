"""The file operations that storage stands on, and the operating system's own version of them.

A `Disk` opens, lists, renames and removes; a `File` appends, reads, syncs and truncates. Nothing else
in storage touches a file, so that a `MemoryDisk` can stand in and lose its power at any moment. This
module knows bytes and paths only: no segments, no indexes, no partitions. It never maps a file into
memory: a mapped page of a truncated file is a signal that kills the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Sequence
from typing import NoReturn, Protocol

from ottla.errors import DataDirectoryLocked, DiskFull, StorageFault
from ottla.records.batch import Buffer
from ottla.storage.ends import FileEnd

FREED_BYTES = 1 << 20
"""How much of a removed file's space is given back at once."""
PARTS_MAX = min(1024, os.sysconf("SC_IOV_MAX"))
"""How many buffers one gathered write may hold; more are written in several goes."""

# A limit on file sizes (ulimit -f) is a full disk as far as the caller can tell.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_MODE = 0o666
_CLOSED = -1
# Only data and size must reach the disk; the times of the inode need not.
_sync_data = getattr(os, "fdatasync", os.fsync)


class File(Protocol):
    """One open file. At most one handle writes to a file at a time."""

    path: str

    @property
    def size(self) -> int:
        """Bytes in the file: read at the opening, then counted, so that asking costs nothing."""
        ...

    def append(self, parts: Sequence[Buffer]) -> None:
        """Write all parts at the end, as one run of bytes.

        DiskFull means that nothing of them was kept. After a StorageFault some of them may stand in
        the file, and `size` no longer tells: close the file and recover.
        """
        ...

    def read(self, *, position: int, size: int) -> bytes:
        """The bytes at `position`; fewer than `size` only where the file ends."""
        ...

    def sync(self) -> None:
        """Make the file's bytes and its size survive a power loss. Its name: see `sync_directory`.

        After a StorageFault here nothing since the last good sync is safe, and calling again does not
        help: the system has forgotten which bytes it failed to write.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to its first `size` bytes; it never grows."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sending ranges of the file without reading them."""
        ...

    def close(self) -> None:
        """Give up the handle, without a sync; a second call does nothing.

        A handle that nobody holds any more closes itself, so readers may share one without counting.
        """
        ...


class Lock(Protocol):
    """A lock that is held until it is released or the process ends, however it ends."""

    path: str

    def release(self) -> None:
        """Let others in; a second call does nothing."""
        ...


class Disk(Protocol):
    """The files of one machine. Every method raises StorageFault, with the path, when the disk fails."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; `create` makes a missing file and keeps one that is there."""
        ...

    def names(self, directory: str) -> list[str]:
        """What stands in a directory, sorted."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a file; None where there is no file."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; fine when it is there."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name in the same directory, in one step.

        A file takes the place of the file called `target`; a directory only that of an empty one.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; fine when it is missing."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory with everything in it; fine when it is missing."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the creations, renames and removals in this directory survive a power loss."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the lock file at `path` for this process alone; DataDirectoryLocked names the holder."""
        ...


def storage_error(path: str, doing: str, cause: OSError) -> StorageFault:
    """Our error for the system's: DiskFull when there is no room, StorageFault for all else."""
    kind = DiskFull if cause.errno in _FULL else StorageFault
    return kind(path, doing, cause)


def locked_error(path: str, holder: str) -> DataDirectoryLocked:
    """The refusal that says who holds a lock and what to do about it."""
    return DataDirectoryLocked(f"{path}: {holder} has this data directory open; stop it or use another data directory")


def require_same_directory(source: str, target: str) -> None:
    """A rename between directories is not one step after a power loss, so there is none."""
    if os.path.dirname(source) != os.path.dirname(target):
        raise ValueError(f"a rename stays in its directory: {source} -> {target}")


class OsFile(FileEnd):
    """A file of the operating system."""

    __slots__ = ("path",)

    def __init__(self, path: str, *, descriptor: int, size: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    def append(self, parts: Sequence[Buffer]) -> None:
        try:
            if len(parts) == 1:
                total = len(parts[0])
                written = os.write(self._descriptor, parts[0])
            else:
                # Two are the usual number, and adding them up is cheaper than to call for it.
                total = len(parts[0]) + len(parts[1]) if len(parts) == 2 else sum(map(len, parts))
                written = os.writev(self._descriptor, parts if len(parts) <= PARTS_MAX else parts[:PARTS_MAX])
        except OSError as cause:
            self._refuse_append(cause)
        if written == total:
            self._size += total
        else:
            self.append_rest(parts, written=written)

    def append_rest(self, parts: Sequence[Buffer], *, written: int) -> None:
        """Go on where the system stopped: at a signal, at its limit of 2 GB, or before a full disk."""
        total = sum(map(len, parts))
        try:
            for part in parts:
                if written >= len(part):
                    written -= len(part)
                    continue
                with memoryview(part) as whole, whole[written:] as rest:
                    done = 0
                    while done < len(rest):
                        done += os.write(self._descriptor, rest[done:])
                written = 0
        except OSError as cause:
            self._refuse_append(cause)
        self._size += total

    def _refuse_append(self, cause: OSError) -> NoReturn:
        if cause.errno in _FULL:
            try:
                os.ftruncate(self._descriptor, self._size)
            except OSError as second:
                # Half a batch may stand at the end now; only recovery may go on from here.
                raise StorageFault(self.path, "cutting off a write that found no space", second) from cause
        raise storage_error(self.path, "append", cause) from cause

    def read(self, *, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size:
                return data
            # The system may stop early; only an empty answer means the end of the file.
            pieces = [data]
            while pieces[-1] and (missing := size - sum(map(len, pieces))):
                pieces.append(os.pread(self._descriptor, missing, position + size - missing))
        except OSError as cause:
            raise StorageFault(self.path, "read", cause) from cause
        return b"".join(pieces)

    def sync(self) -> None:
        if self._descriptor == _CLOSED:
            raise StorageFault(self.path, "sync of a closed file")
        try:
            _sync_data(self._descriptor)
        except OSError as cause:
            # Never DiskFull, even for lack of space: bytes that were accepted are lost.
            raise StorageFault(self.path, "sync", cause) from cause

    def truncate(self, size: int) -> None:
        if not 0 <= size <= self._size:
            raise ValueError(f"{self.path}: cannot cut {self._size} bytes to {size}")
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as cause:
            raise StorageFault(self.path, "truncate", cause) from cause
        self._size = size

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            # What an error here would tell, a sync has told before; the descriptor is gone either way.
            with contextlib.suppress(OSError):
                if self._size > FREED_BYTES:
                    _free_in_pieces(descriptor, self._size)
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def _free_in_pieces(descriptor: int, size: int) -> None:
    """Give the space of a file back that has no name any more, piece by piece.

    All at once it is one long change for the file system, and every sync of any file waits for its end.
    """
    if os.fstat(descriptor).st_nlink == 0:
        for left in range(size - FREED_BYTES, 0, -FREED_BYTES):
            os.ftruncate(descriptor, left)


class OsLock:
    """A lock file of the operating system; the system lets go of it when the process ends."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, *, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        # The file stays: removing it would let two processes lock two files of the same name.
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class OsDisk:
    """The files of the operating system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        try:
            descriptor = os.open(path, _OPEN_FLAGS | os.O_CREAT if create else _OPEN_FLAGS, _MODE)
            try:
                size = os.fstat(descriptor).st_size
            except OSError:
                os.close(descriptor)
                raise
        except OSError as cause:
            raise storage_error(path, "open", cause) from cause
        return OsFile(path, descriptor=descriptor, size=size)

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError as cause:
            raise storage_error(directory, "list", cause) from cause

    def size(self, path: str) -> int | None:
        found = self._status(path)
        return None if found is None or stat.S_ISDIR(found.st_mode) else found.st_size

    def is_directory(self, path: str) -> bool:
        found = self._status(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def _status(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as cause:
            raise storage_error(path, "look up", cause) from cause

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as cause:
            raise storage_error(path, "make directory", cause) from cause

    def rename(self, source: str, target: str) -> None:
        require_same_directory(source, target)
        try:
            os.replace(source, target)
        except OSError as cause:
            raise storage_error(source, f"rename to {os.path.basename(target)}", cause) from cause

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as cause:
            raise storage_error(path, "remove", cause) from cause

    def remove_directory(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as cause:
            raise storage_error(path, "remove directory", cause) from cause

    def sync_directory(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as cause:
            raise StorageFault(path, "sync directory", cause) from cause

    def lock(self, path: str) -> OsLock:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError as cause:
            raise storage_error(path, "open lock file", cause) from cause
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The number is for people only; the lock itself is the system's, so a stale one does no harm.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except BlockingIOError as cause:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise locked_error(path, f"process {holder}" if holder else "another process") from cause
        except OSError as cause:
            os.close(descriptor)
            raise storage_error(path, "lock", cause) from cause
        return OsLock(path, descriptor=descriptor)
