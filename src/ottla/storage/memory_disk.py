"""A disk in memory that can lose its power, fill up and fail, the same way each time for the same seed.

It keeps two pictures of every file and directory (`memory_nodes`): what a reader sees now, and what has
been synced. `crash` throws the first away and works out, by chance, what of the rest had reached the disk:

- Each unsynced write is lost, kept, torn at any byte, or its bytes are zeros (all, or up to or from some
  byte), independently of the writes before it; a hole left by a lost write reads as zeros.
- An unsynced truncate has happened or not. File systems journal it, so nothing written to the file after
  a truncate that did not happen is there either.
- Of the unsynced creations, renames and removals of one directory, the first few have happened, in order,
  each wholly or not at all. Two directories do not wait for each other. A file whose creation was not
  synced may be gone although its bytes were.

The disk knows nothing of what the bytes mean. It is for tests, ours and those of whoever builds on us.
"""

from __future__ import annotations

import io
import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from errno import EEXIST, EISDIR, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY
from typing import Literal, NoReturn

from ottla.errors import StorageFault
from ottla.records.batch import Buffer
from ottla.storage.disk import locked_error, require_same_directory, storage_error
from ottla.storage.memory_nodes import Chance, DirectoryNode, FileNode, Link, Node, Rename, Unlink, walk

Moment = Literal["before", "torn", "after"]
"""When the hook is called: around every change, and once in the middle of an append."""

# Of these a lack of space is a fault like any other: what they were to keep had been accepted before.
_NEVER_FULL = frozenset({"read", "sync", "sync-directory", "truncate"})


class Crash(BaseException):
    """For a hook to raise: the power goes off here. Not an Exception, so that nobody catches it by accident."""


@dataclass(slots=True)
class _Fault:
    operation: str
    path_suffix: str
    error: int
    times: int


class MemoryFile:
    """An open file of a `MemoryDisk`; of no use once that has crashed."""

    __slots__ = ("_closed", "_disk", "_life", "_node", "path")

    def __init__(self, disk: MemoryDisk, path: str, node: FileNode, *, life: int) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._life = life
        self._closed = False

    @property
    def size(self) -> int:
        return len(self._node.content)

    def append(self, parts: Sequence[Buffer]) -> None:
        self._require_open("append")
        self._disk._append(self.path, self._node, b"".join(parts))

    def read(self, *, position: int, size: int) -> bytes:
        self._require_open("read")
        self._disk._meet_fault("read", self.path)
        if position < 0 or size < 0:
            raise StorageFault(self.path, f"read of {size} bytes at {position}")
        return bytes(self._node.content[position : position + size])

    def sync(self) -> None:
        self._require_open("sync")
        self._disk._sync(self.path, self._node)

    def truncate(self, size: int) -> None:
        if not 0 <= size <= self.size:
            raise ValueError(f"{self.path}: cannot cut {self.size} bytes to {size}")
        self._require_open("truncate")
        self._disk._truncate(self.path, self._node, size)

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def close(self) -> None:
        self._closed = True

    def _require_open(self, doing: str) -> None:
        self._disk._require_power(self.path, self._life)
        if self._closed:
            raise StorageFault(self.path, f"{doing} on a closed file")


class MemoryLock:
    """A lock of a `MemoryDisk`; a crash releases it."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self.path = path
        self._disk: MemoryDisk | None = disk

    def release(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            disk._unlock(self)


class MemoryDisk:
    """A whole disk. Paths are absolute, or taken from the root.

    `on_operation` is called with the name of each change, such as "append .log", and its moment; when it
    raises, the power is off: every later call fails until `crash` or `kill` has been called. The name's
    second word is the kind of the file: everything from the first dot of its name on, or the whole name.
    """

    def __init__(self, seed: int = 0) -> None:
        self.on_operation: Callable[[str, Moment], None] | None = None
        self.capacity_bytes: int | None = None
        """A full disk: an append that would bring all files together above this keeps nothing."""
        self._chance = Chance(seed)
        self._root = DirectoryNode()
        self._faults: list[_Fault] = []
        self._locks: dict[str, MemoryLock] = {}
        self._life = 0
        self._has_power = True

    # What only a disk in memory can do

    def crash(self) -> None:
        """Lose the power and get it back: keep what was synced and, by chance, some of what was not."""
        self._crash_directory(self._root)
        self.kill()

    def kill(self) -> None:
        """The process ends without warning, the machine goes on: all bytes stay, no handle and no lock does."""
        self._life += 1
        self._locks.clear()
        self._has_power = True

    def fail_next(self, operation: str, path_suffix: str, error: int, *, times: int = 1) -> None:
        """Let the next operations on a path that ends so fail with an error number such as `errno.EIO`.

        `operation` is the first word of the hook's names, or "read". A failed append for lack of space
        keeps nothing, any other keeps some of its bytes. After a failed sync the bytes can still be read,
        but no later sync makes them durable.
        """
        self._faults.append(_Fault(operation, path_suffix, error, times))

    def heal(self) -> None:
        """Forget the failures that have not struck yet, and the limit of space."""
        self._faults.clear()
        self.capacity_bytes = None

    def files(self) -> dict[str, bytes]:
        """Every file's path and bytes, as a reader sees them now."""
        return {path: bytes(node.content) for path, node in walk(self._root, "/")}

    def used_bytes(self) -> int:
        """The sizes of all files together."""
        return sum(len(node.content) for _, node in walk(self._root, "/"))

    # The contract of Disk

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self._meet_fault("open", path)
        node = self._find(path)
        if node is None and create:
            directory, name = self._parent(path, "open")
            operation = f"create {_kind(path)}"
            self._begin(operation, path)
            node = FileNode()
            directory.change(Link(name, node))
            self._notify(operation, "after")
        if node is None:
            _fail(path, "open", ENOENT)
        if isinstance(node, DirectoryNode):
            _fail(path, "open", EISDIR)
        return MemoryFile(self, path, node, life=self._life)

    def names(self, directory: str) -> list[str]:
        self._meet_fault("names", directory)
        return sorted(self._directory(directory, "list").entries)

    def size(self, path: str) -> int | None:
        self._meet_fault("size", path)
        node = self._find(path)
        return len(node.content) if isinstance(node, FileNode) else None

    def is_directory(self, path: str) -> bool:
        self._meet_fault("is-directory", path)
        return isinstance(self._find(path), DirectoryNode)

    def make_directory(self, path: str) -> None:
        self._begin("make-directory", path)
        node: Node = self._root
        for name in _names(path):
            if not isinstance(node, DirectoryNode):
                _fail(path, "make directory", ENOTDIR)
            if name not in node.entries:
                node.change(Link(name, DirectoryNode()))
            node = node.entries[name]
        if not isinstance(node, DirectoryNode):
            _fail(path, "make directory", EEXIST)
        self._notify("make-directory", "after")

    def rename(self, source: str, target: str) -> None:
        require_same_directory(source, target)
        directory, source_name = self._parent(source, "rename")
        target_name = _names(target)[-1]
        moved, replaced = directory.entries.get(source_name), directory.entries.get(target_name)
        if moved is None:
            _fail(source, "rename", ENOENT)
        if isinstance(moved, DirectoryNode):
            operation = "rename-directory"
            if isinstance(replaced, FileNode):
                _fail(source, "rename", ENOTDIR)
            if replaced is not None and replaced.entries:
                _fail(source, "rename", ENOTEMPTY)
        else:
            operation = f"rename {_kind(source)} to {_kind(target)}"
            if isinstance(replaced, DirectoryNode):
                _fail(source, "rename", EISDIR)
        self._begin(operation, source)
        if source_name != target_name:
            directory.change(Rename(source_name, target_name))
        self._notify(operation, "after")

    def remove(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            _fail(path, "remove", EISDIR)
        operation = f"remove {_kind(path)}"
        self._begin(operation, path)
        if node is not None:
            directory, name = self._parent(path, "remove")
            directory.change(Unlink(name))
        self._notify(operation, "after")

    def remove_directory(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, FileNode):
            _fail(path, "remove directory", ENOTDIR)
        self._begin("remove-directory", path)
        if node is not None:
            for name in sorted(node.entries):
                below = posixpath.join(path, name)
                (self.remove_directory if isinstance(node.entries[name], DirectoryNode) else self.remove)(below)
            directory, name = self._parent(path, "remove directory")
            directory.change(Unlink(name))
        self._notify("remove-directory", "after")

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path, "sync directory")
        self._begin("sync-directory", path)
        directory.sync(len(directory.pending))
        self._notify("sync-directory", "after")

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise locked_error(path, f"process {os.getpid()}")
        file = self.open(path, create=True)
        file.truncate(0)
        file.append([b"%d\n" % os.getpid()])
        file.close()
        lock = self._locks[path] = MemoryLock(self, path)
        return lock

    # What its files and locks call

    def _append(self, path: str, node: FileNode, data: bytes) -> None:
        operation = f"append {_kind(path)}"
        try:
            self._begin(operation, path)
            if self.capacity_bytes is not None and self.used_bytes() + len(data) > self.capacity_bytes:
                _fail(path, "append", ENOSPC)
        except StorageFault as fault:
            if type(fault) is StorageFault:
                node.write(data[: self._chance.below(len(data) + 1)])
            raise
        if self.on_operation is not None:
            cut = self._chance.below(len(data) + 1)
            node.write(data[:cut])
            self._notify(operation, "torn")
            # Nothing happened: the two halves are one write again.
            node.pending.pop()
            del node.content[len(node.content) - cut :]
        node.write(data)
        self._notify(operation, "after")

    def _sync(self, path: str, node: FileNode) -> None:
        operation = f"sync {_kind(path)}"
        try:
            self._begin(operation, path)
        except StorageFault:
            node.forget_pending(self._chance)
            raise
        node.sync()
        self._notify(operation, "after")

    def _truncate(self, path: str, node: FileNode, size: int) -> None:
        operation = f"truncate {_kind(path)}"
        self._begin(operation, path)
        node.truncate(size)
        self._notify(operation, "after")

    def _unlock(self, lock: MemoryLock) -> None:
        if self._locks.get(lock.path) is lock:
            del self._locks[lock.path]

    def _require_power(self, path: str, life: int) -> None:
        if life != self._life or not self._has_power:
            raise StorageFault(path, "the disk crashed under this file")

    # Inside

    def _begin(self, operation: str, path: str) -> None:
        self._meet_fault(operation.partition(" ")[0], path)
        self._notify(operation, "before")

    def _notify(self, operation: str, moment: Moment) -> None:
        if self.on_operation is None:
            return
        try:
            self.on_operation(operation, moment)
        except BaseException:
            self._has_power = False
            raise

    def _meet_fault(self, operation: str, path: str) -> None:
        self._require_power(path, self._life)
        for fault in self._faults:
            if fault.operation == operation and path.endswith(fault.path_suffix):
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                _fail(path, operation, fault.error)

    def _crash_directory(self, directory: DirectoryNode) -> None:
        directory.sync(self._chance.below(len(directory.pending) + 1))
        directory.pending.clear()
        directory.entries = dict(directory.durable)
        for _, node in sorted(directory.entries.items()):
            if isinstance(node, DirectoryNode):
                self._crash_directory(node)
            else:
                node.forget_pending(self._chance)
                node.content = bytearray(node.durable)

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in _names(path):
            node = node.entries.get(name) if isinstance(node, DirectoryNode) else None
        return node

    def _directory(self, path: str, doing: str) -> DirectoryNode:
        node = self._find(path)
        if not isinstance(node, DirectoryNode):
            _fail(path, doing, ENOENT if node is None else ENOTDIR)
        return node

    def _parent(self, path: str, doing: str) -> tuple[DirectoryNode, str]:
        above, name = posixpath.split(path.rstrip("/"))
        return self._directory(above, doing), name


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _kind(path: str) -> str:
    name = posixpath.basename(path.rstrip("/"))
    dot = name.find(".")
    return name if dot < 0 else name[dot:]


def _fail(path: str, doing: str, error: int) -> NoReturn:
    cause = OSError(error, os.strerror(error))
    if doing in _NEVER_FULL:
        raise StorageFault(path, doing, cause) from cause
    raise storage_error(path, doing, cause) from cause
