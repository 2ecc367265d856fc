"""What a `MemoryDisk` remembers of one file and one directory, and how chance decides what a crash leaves.

Nodes have no names and no paths; a directory's entries give them some, as on a real disk.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field


class Chance:
    """A small generator of its own (splitmix64), so that a seed means the same on every Python."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & 0xFFFFFFFFFFFFFFFF

    def below(self, limit: int) -> int:
        """A number from 0 up to, not including, `limit`."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (mixed ^ (mixed >> 31)) % limit


@dataclass(slots=True)
class Write:
    position: int
    data: bytes


@dataclass(slots=True)
class Truncate:
    size: int


@dataclass(slots=True, eq=False)
class FileNode:
    """One file, whatever it is called: what is read now, what is durable, and the steps between them."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Truncate] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        self.pending.append(Write(len(self.content), data))
        self.content += data

    def truncate(self, size: int) -> None:
        del self.content[size:]
        self.pending.append(Truncate(size))

    def sync(self) -> None:
        for change in self.pending:
            if isinstance(change, Truncate):
                del self.durable[change.size :]
            else:
                _put(self.durable, change.position, change.data)
        self.pending.clear()

    def forget_pending(self, chance: Chance) -> None:
        """Some of the unsynced changes reach the disk, the rest never will; readers still see them all."""
        for change in self.pending:
            if isinstance(change, Truncate):
                if chance.below(2):
                    break
                del self.durable[change.size :]
            else:
                _put(self.durable, change.position, _surviving(change.data, chance))
        self.pending.clear()


def _put(content: bytearray, position: int, data: bytes) -> None:
    if not data:
        return
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _surviving(data: bytes, chance: Chance) -> bytes:
    """What of one unsynced write is on the disk after the power came back."""
    cut = chance.below(len(data) + 1)
    match chance.below(6):
        case 0:
            return b""
        case 1:
            return data
        case 2:
            return data[:cut]
        case 3:
            return bytes(len(data))
        case 4:
            return data[:cut] + bytes(len(data) - cut)
        case _:
            return bytes(cut) + data[cut:]


@dataclass(slots=True)
class Link:
    name: str
    node: Node


@dataclass(slots=True)
class Unlink:
    name: str


@dataclass(slots=True)
class Rename:
    source: str
    target: str


@dataclass(slots=True, eq=False)
class DirectoryNode:
    """One directory: its entries as seen now, as durable, and the steps between them."""

    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[Link | Unlink | Rename] = field(default_factory=list)

    def change(self, change: Link | Unlink | Rename) -> None:
        _apply(self.entries, change)
        self.pending.append(change)

    def sync(self, count: int) -> None:
        """Make the first `count` pending changes durable."""
        for change in self.pending[:count]:
            _apply(self.durable, change)
        del self.pending[:count]


Node = FileNode | DirectoryNode


def _apply(entries: dict[str, Node], change: Link | Unlink | Rename) -> None:
    match change:
        case Link(name, node):
            entries[name] = node
        case Unlink(name):
            del entries[name]
        case Rename(source, target):
            entries[target] = entries.pop(source)


def walk(directory: DirectoryNode, path: str) -> Iterator[tuple[str, FileNode]]:
    for name, node in sorted(directory.entries.items()):
        below = posixpath.join(path, name)
        if isinstance(node, DirectoryNode):
            yield from walk(node, below)
        else:
            yield below, node
