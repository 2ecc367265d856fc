"""Small files that are replaced as a whole: old or new after a crash, never something between.

Also the text of two of them: Kafka's `leader-epoch-checkpoint`, and our own checkpoint of one number,
which holds the log start offset. Both are meant to be read by people too. What the numbers are good for
is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise

from fastcrc.crc32 import iscsi as crc32c

from ottla.errors import InvalidTopicLayout, StorageFault
from ottla.storage.disk import Disk
from ottla.storage.epochs import EpochStart

TEMPORARY_SUFFIX = ".tmp"
SMALL_BYTES_MAX = 1 << 30
"""A file above this is no checkpoint, whatever its name says."""
DIGITS_MAX = 19
"""As many as an offset can have."""
EPOCHS_VERSION = 0
NUMBER_VERSION = 1


class DamagedCheckpoint(ValueError):
    """The bytes are not a whole checkpoint of the expected kind and version."""


def write_atomically(disk: Disk, path: str, data: bytes) -> None:
    """Replace a file's content durably; whoever reads after a crash finds the old bytes or the new ones."""
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    try:
        # A crash may have left an unfinished one behind.
        file.truncate(0)
        file.append([data])
        # The name must not point to the new bytes before they are there.
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path) or ".")


def write_fresh(disk: Disk, path: str, data: bytes) -> None:
    """Write and sync a file that nobody trusts before something else says so, such as a seal."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append([data])
        file.sync()
    finally:
        file.close()


def read_small(disk: Disk, path: str, *, bytes_max: int = SMALL_BYTES_MAX) -> bytes | None:
    """All bytes of a small file; None when it is missing."""
    size = disk.size(path)
    if size is None:
        return None
    if size > bytes_max:
        raise StorageFault(path, f"{size} bytes are too many for a checkpoint, at most {bytes_max} are read")
    file = disk.open(path)
    try:
        return file.read(position=0, size=file.size)
    finally:
        file.close()


def make_durable_directory(disk: Disk, path: str) -> None:
    """Make a directory so that a power loss right after does not take it back; also one that is there.

    One level after the other: a process that dies on the way leaves at most one name that is not synced,
    and the next one finds it as the deepest that is there.
    """
    missing = []
    above = path
    while not disk.is_directory(above):
        if disk.size(above) is not None:
            raise InvalidTopicLayout(above, "is a file, a directory is expected")
        missing.append(above)
        above = os.path.dirname(above) or "."
    disk.sync_directory(os.path.dirname(above) or ".")
    for level in reversed(missing):
        disk.make_directory(level)
        disk.sync_directory(os.path.dirname(level) or ".")


def encode_epochs(entries: Iterable[EpochStart]) -> bytes:
    """Kafka's `leader-epoch-checkpoint`: version, count, then one epoch and its first offset a line."""
    lines = [f"{entry.epoch} {entry.start_offset}" for entry in entries]
    return "".join(f"{line}\n" for line in [EPOCHS_VERSION, len(lines), *lines]).encode()


def decode_epochs(data: bytes) -> list[EpochStart]:
    """Read a `leader-epoch-checkpoint`, or raise DamagedCheckpoint.

    It carries no checksum, so everything that cannot be right counts as damage: a wrong count, a missing
    last line end, epochs or offsets that do not rise.
    """
    lines = _lines(data)
    if len(lines) < 2 or any(len(line) != 1 for line in lines[:2]):
        raise DamagedCheckpoint("version and count must each stand on a line of their own")
    version, count = lines[0][0], lines[1][0]
    if version != EPOCHS_VERSION:
        raise DamagedCheckpoint(f"version {version} is not {EPOCHS_VERSION}")
    if count != len(lines) - 2 or any(len(line) != 2 for line in lines[2:]):
        raise DamagedCheckpoint(f"{count} lines of two numbers are announced, {len(lines) - 2} lines follow")
    entries = [EpochStart(epoch, start_offset) for epoch, start_offset in lines[2:]]
    for earlier, later in pairwise(entries):
        if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
            raise DamagedCheckpoint(f"{later} does not follow {earlier}")
    return entries


def _lines(data: bytes) -> list[list[int]]:
    """The numbers on each line; nothing but digits, single blanks and line ends may stand there."""
    if not data.endswith(b"\n"):
        raise DamagedCheckpoint("the last line has no end")
    lines = []
    for line in data[:-1].split(b"\n"):
        words = line.split(b" ")
        if not all(word.isdigit() and len(word) <= DIGITS_MAX for word in words):
            raise DamagedCheckpoint(f"not numbers: {line[:80]!r}")
        lines.append([int(word) for word in words])
    return lines


def encode_number(name: str, value: int) -> bytes:
    """Our checkpoint of one number: what it is and its version, the value, and a checksum of both lines."""
    body = f"{name} {NUMBER_VERSION}\nvalue {value}\n".encode()
    return body + b"crc %d\n" % crc32c(body)


def decode_number(name: str, data: bytes) -> int:
    """Read a checkpoint of one number, or raise DamagedCheckpoint."""
    body, found, checksum = data.rpartition(b"crc ")
    if not found or checksum != b"%d\n" % crc32c(body):
        raise DamagedCheckpoint("the checksum is wrong")
    title, _, value = body.decode("ascii", "replace").partition("\nvalue ")
    if title != f"{name} {NUMBER_VERSION}":
        raise DamagedCheckpoint(f"{title!r} is not {name!r} of version {NUMBER_VERSION}")
    try:
        return int(value)
    except ValueError as error:
        raise DamagedCheckpoint(f"not a number: {value[:80]!r}") from error
