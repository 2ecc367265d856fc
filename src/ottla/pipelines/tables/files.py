"""The file operations that a table stands on, and those of the local file system.

Every path is relative to the table's directory and has `/` between its parts. Nothing else in tables touches a file
(Spark reads and writes Parquet beside it), so that a test can let the power fail between any two operations. Knows
nothing of commits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ottla.errors import StorageError
from ottla.pipelines.tables.errors import TableFault, TableRefused
from ottla.storage.disk import OsDisk

ATTEMPTS_MAX = 5
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK})


@dataclass(frozen=True, slots=True)
class Found:
    """A file as a listing shows it."""

    path: str
    bytes: int
    modified_ms: int


class TableFiles(Protocol):
    """The files of one table. Every method raises TableFault when the file system fails."""

    @property
    def root(self) -> str:
        """The table's directory, as Spark takes it."""
        ...

    def read(self, path: str) -> bytes | None:
        """All bytes of a file; None where there is none."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Make a file that was not there, whole, in one step and to stay; False if there is one already."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Make a file, whole and in one step, or put it in the place of the one that is there."""
        ...

    def names(self, directory: str) -> list[str]:
        """What stands in a directory, sorted; nothing where there is none."""
        ...

    def found(self, directory: str) -> list[Found]:
        """Every file in a directory and below it, sorted by path."""
        ...

    def move(self, source: str, target: str) -> None:
        """Give a file another name, in another directory too, which is made if need be."""
        ...

    def sync(self, paths: Iterable[str]) -> None:
        """Make files, and that they are where they are, survive a power loss."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; fine when it has it."""
        ...

    def remove(self, path: str) -> None:
        """Take a name from a file, and the directories above that become empty; fine when it is missing."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Remove a directory with everything in it; fine when it is missing."""
        ...


class LocalFiles:
    """A directory of this machine, or one that is mounted and has hard links."""

    def __init__(self, directory: Path, *, unique: Callable[[], str]) -> None:
        self._directory = directory.absolute()
        self._unique = unique
        self._disk = OsDisk()

    @property
    def root(self) -> str:
        return self._directory.as_posix()

    def _at(self, path: str) -> Path:
        return self._directory / path

    def _fault(self, path: str, doing: str, cause: Exception) -> TableFault:
        return TableFault(str(self._at(path)), f"{doing} failed: {cause}")

    def read(self, path: str) -> bytes | None:
        try:
            return self._at(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as cause:
            raise self._fault(path, "reading", cause) from cause

    def _written(self, path: str, data: bytes) -> Path:
        """A new file beside `path`, with the bytes in it and on the disk."""
        beside = self._at(path).parent / f".{self._unique()}.tmp"
        self._make_directory(beside.parent)
        handle = self._disk.open(str(beside), create=True)
        try:
            handle.append([data])
            handle.sync()
        finally:
            handle.close()
        return beside

    def create(self, path: str, data: bytes) -> bool:
        try:
            beside = self._written(path, data)
            try:
                # Unlike a rename, a link never takes the place of what is there.
                os.link(beside, self._at(path))
            except FileExistsError:
                # Over NFS an answer may be lost, and what is then asked for again is there: our own.
                if not beside.samefile(self._at(path)):
                    return False
            finally:
                beside.unlink()
            self._disk.sync_directory(str(beside.parent))
        except (OSError, StorageError) as cause:
            self._refuse_without_links(cause)
            raise self._fault(path, "creating", cause) from cause
        return True

    def replace(self, path: str, data: bytes) -> None:
        try:
            beside = self._written(path, data)
            beside.replace(self._at(path))
            self._disk.sync_directory(str(beside.parent))
        except (OSError, StorageError) as cause:
            raise self._fault(path, "writing", cause) from cause

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._at(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as cause:
            raise self._fault(directory, "listing", cause) from cause

    def found(self, directory: str) -> list[Found]:
        files: list[Found] = []
        for above, _, names in os.walk(self._at(directory)):
            for name in names:
                whole = Path(above, name)
                # What others remove while we look is not there.
                with contextlib.suppress(FileNotFoundError):
                    status = whole.stat()
                    relative = whole.relative_to(self._directory).as_posix()
                    files.append(Found(relative, status.st_size, status.st_mtime_ns // 1_000_000))
        return sorted(files, key=lambda one: one.path)

    def move(self, source: str, target: str) -> None:
        try:
            self._into_directory(target, lambda: self._at(source).rename(self._at(target)))
        except (OSError, StorageError) as cause:
            raise self._fault(source, f"moving it to {target}", cause) from cause

    def sync(self, paths: Iterable[str]) -> None:
        directories: set[str] = set()
        for path in paths:
            try:
                handle = self._disk.open(str(self._at(path)))
                try:
                    handle.sync()
                finally:
                    handle.close()
            except StorageError as cause:
                raise self._fault(path, "syncing", cause) from cause
            above = path
            while above:
                above = above.rpartition("/")[0]
                directories.add(above)
        for directory in sorted(directories):
            self._disk.sync_directory(str(self._at(directory)))

    def link(self, source: str, target: str) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                self._into_directory(target, lambda: os.link(self._at(source), self._at(target)))
        except (OSError, StorageError) as cause:
            self._refuse_without_links(cause)
            raise self._fault(source, f"linking it as {target}", cause) from cause

    def remove(self, path: str) -> None:
        try:
            self._at(path).unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as cause:
            raise self._fault(path, "removing", cause) from cause
        above = path.rpartition("/")[0]
        # Stops at the first that still holds something.
        with contextlib.suppress(OSError):
            while "=" in above:
                self._at(above).rmdir()
                above = above.rpartition("/")[0]

    def remove_tree(self, directory: str) -> None:
        try:
            shutil.rmtree(self._at(directory))
        except FileNotFoundError:
            return
        except OSError as cause:
            raise self._fault(directory, "removing", cause) from cause

    def _into_directory(self, target: str, put: Callable[[], object]) -> None:
        """Do what puts a file into a directory that another writer may remove, because it is empty, at any moment."""
        for _ in range(ATTEMPTS_MAX - 1):
            self._make_directory(self._at(target).parent)
            with contextlib.suppress(FileNotFoundError):
                put()
                return
        self._make_directory(self._at(target).parent)
        put()

    def _make_directory(self, directory: Path) -> None:
        """Make directories so that they stay: a file in one that a power loss takes is lost with it."""
        if directory.is_dir():
            return
        missing = [directory, *(above for above in directory.parents if not above.is_dir())]
        self._disk.make_directory(str(directory))
        for one in missing:
            self._disk.sync_directory(str(one.parent))

    def _refuse_without_links(self, cause: Exception) -> None:
        if isinstance(cause, OSError) and cause.errno in _NO_LINKS:
            raise TableRefused(
                self.root, f"this file system has no hard links ({cause}); choose a directory on one that has them"
            ) from cause
