"""Where things stand in a data directory, and the refusal of one that is not ours.

```
<data directory>/
  ottla.format                   which format the directory is in; Kafka has no file of this name
  ottla.lock                     held while a process has the directory open
  ottla.clean                    there after a clean stop, until the next start
  <topic>-<partition>/           one log, with Kafka's `partition.metadata`
  <topic>-<partition>.<32 hex>-delete/   a deleted log whose files are still to go
  .new+<32 hex>-<partition>/     a log whose creation was cut short; `+` is in no topic's name
```

`lost+found` and names that begin with a dot or end in `-delete` are nobody's business. A legal topic name
may begin with a dot, though: such a directory counts when it holds a `partition.metadata`. Everything else
that is not a partition is refused with its path; nothing is guessed and nothing is migrated. Which topics
should be here is not known to this module, nor what is in a log.
"""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from fastcrc.crc32 import iscsi as crc32c

from ottla.errors import InvalidTopicLayout
from ottla.storage.checkpoint import TEMPORARY_SUFFIX, make_durable_directory, read_small, write_atomically
from ottla.storage.disk import Disk, Lock

FORMAT_VERSION = 1
FORMAT_FILE = "ottla.format"
LOCK_FILE = "ottla.lock"
CLEAN_FILE = "ottla.clean"
"""Stands in the data directory after a clean stop, until the next start."""
METADATA_FILE = "partition.metadata"
METADATA_VERSION = 0
TOPIC_NAME_BYTES_MAX = 249
PARTITION_MAX = 2**31 - 1
NAME_BYTES_MAX = 255
"""The longest file name that the usual file systems take."""

_OURS = frozenset({FORMAT_FILE, FORMAT_FILE + TEMPORARY_SUFFIX, LOCK_FILE, CLEAN_FILE})
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_BYTES_MAX}}}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_DELETED = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-delete")
_UNFINISHED = re.compile(r"\.new\+[0-9a-f]{32}-[0-9]+")
_SEGMENT_FILE = re.compile(r"[0-9]{20}\.")
_FORMAT_LINE = re.compile(rb"ottla-data-directory ([0-9]{1,9})\n")
_METADATA = re.compile(rb"version: ([0-9]{1,9})\ntopic_id: ([A-Za-z0-9_-]{22})\n?")


class UnsupportedFormat(InvalidTopicLayout):
    """A data directory that another version of Ottla wrote."""


@dataclass(frozen=True, slots=True, order=True)
class PartitionDirectory:
    """One partition's directory, by its name alone."""

    topic: str
    partition: int
    path: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What stands in a data directory: the partitions, and whatever has no business there."""

    partitions: tuple[PartitionDirectory, ...]
    problems: tuple[InvalidTopicLayout, ...]


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """What a partition's directory says about itself: which topic of this name it belongs to."""

    topic_id: UUID


def is_topic_name(name: str) -> bool:
    """Whether Kafka allows a topic of this name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def partition_name(topic: str, partition: int) -> str:
    """The name of a partition's directory."""
    if not is_topic_name(topic) or not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"no directory can be named for topic {topic!r}, partition {partition}")
    return f"{topic}-{partition}"


def parse_partition_name(name: str) -> tuple[str, int] | None:
    """Topic and partition of a directory's name; None when it is not one that `partition_name` gives."""
    topic, _, partition = name.rpartition("-")
    if not is_topic_name(topic) or _PARTITION.fullmatch(partition) is None or int(partition) > PARTITION_MAX:
        return None
    return topic, int(partition)


def encode_metadata(metadata: PartitionMetadata) -> bytes:
    """Kafka's `partition.metadata`."""
    topic_id = urlsafe_b64encode(metadata.topic_id.bytes).rstrip(b"=")
    return b"version: %d\ntopic_id: %b\n" % (METADATA_VERSION, topic_id)


def decode_metadata(data: bytes, path: str) -> PartitionMetadata:
    """Read a `partition.metadata`, or raise InvalidTopicLayout with its path."""
    found = _METADATA.fullmatch(data)
    if found is None:
        raise InvalidTopicLayout(path, "is damaged: a version and a topic id are expected")
    if int(found[1]) != METADATA_VERSION:
        raise InvalidTopicLayout(path, f"has version {int(found[1])}; only version {METADATA_VERSION} is known")
    topic_id = UUID(bytes=urlsafe_b64decode(found[2] + b"=="))
    if not topic_id.int or encode_metadata(PartitionMetadata(topic_id)).rstrip() != data.rstrip():
        raise InvalidTopicLayout(path, "is damaged: the topic id is not one")
    return PartitionMetadata(topic_id)


def encode_format(version: int = FORMAT_VERSION) -> bytes:
    """The `ottla.format` file. Its first line stays as it is in every version, so that each can refuse the others."""
    body = b"ottla-data-directory %d\n" % version
    return body + b"crc %d\n" % crc32c(body)


def check_format(data: bytes, path: str) -> None:
    """Refuse a format other than ours, with what to do about it."""
    found = _FORMAT_LINE.match(data)
    if found is None:
        raise InvalidTopicLayout(path, "is damaged: it does not say which format the data directory is in")
    version = int(found[1])
    if version > FORMAT_VERSION:
        raise UnsupportedFormat(
            path,
            f"the data is in format {version}, this Ottla reads format {FORMAT_VERSION}: "
            "run a version of Ottla at least as new as the one that wrote it",
        )
    if version < FORMAT_VERSION:
        raise UnsupportedFormat(
            path,
            f"the data is in format {version}, this Ottla reads format {FORMAT_VERSION} and converts nothing: "
            "run the version of Ottla that wrote it and copy the topics into a new data directory",
        )
    if data != encode_format(version):
        raise InvalidTopicLayout(path, "is damaged: its checksum is wrong")


def check_contiguous(partitions: Iterable[PartitionDirectory]) -> None:
    """Refuse a topic with a gap in its partitions; for when nothing else tells how many there should be."""
    by_topic: dict[str, dict[int, str]] = {}
    for found in partitions:
        by_topic.setdefault(found.topic, {})[found.partition] = found.path
    for topic, paths in sorted(by_topic.items()):
        last = max(paths)
        if len(paths) <= last:
            missing = next(partition for partition in range(last) if partition not in paths)
            gap = os.path.join(os.path.dirname(paths[last]), partition_name(topic, missing))
            raise InvalidTopicLayout(gap, f"is missing, although {os.path.basename(paths[last])} is there")


class DataDirectory:
    """A data directory that this process holds the lock of. Made by `open`."""

    def __init__(self, disk: Disk, path: str, lock: Lock) -> None:
        self.path = path
        self._disk = disk
        self._lock = lock

    @classmethod
    def open(cls, disk: Disk, path: str) -> DataDirectory:
        """Lock a data directory of ours, or make one where there is nothing.

        Raises InvalidTopicLayout for a directory that is not ours or not in our format, and
        DataDirectoryLocked while another process has it open.
        """
        if disk.size(os.path.join(path, FORMAT_FILE)) is None:
            make_durable_directory(disk, path)
        # Looked at before the lock too, so that a directory of somebody else's does not get our lock file.
        _require_ours(disk, path)
        lock = disk.lock(os.path.join(path, LOCK_FILE))
        try:
            if not _require_ours(disk, path):
                write_atomically(disk, os.path.join(path, FORMAT_FILE), encode_format())
            # A process may have died between a rename in here and its sync: what is seen must be what stays.
            disk.sync_directory(path)
            directory = cls(disk, path, lock)
            directory._remove_leftovers()
        except BaseException:
            lock.release()
            raise
        return directory

    def close(self) -> None:
        """Let others open the directory; a second call does nothing."""
        self._lock.release()

    def partition_path(self, topic: str, partition: int) -> str:
        return os.path.join(self.path, partition_name(topic, partition))

    def listing(self) -> Listing:
        """Every partition by its name, and every entry that is none; no partition is looked into."""
        return _listing(self._disk, self.path)

    def partitions(self) -> dict[PartitionDirectory, PartitionMetadata]:
        """Every partition with what it says about itself; InvalidTopicLayout for the first thing amiss."""
        listing = self.listing()
        if listing.problems:
            raise listing.problems[0]
        return {found: self.read_metadata(found.topic, found.partition) for found in listing.partitions}

    def read_metadata(self, topic: str, partition: int) -> PartitionMetadata:
        """What a partition's directory says about itself; InvalidTopicLayout when it does not."""
        path = os.path.join(self.partition_path(topic, partition), METADATA_FILE)
        data = read_small(self._disk, path)
        if data is None:
            raise InvalidTopicLayout(path, "is missing, so the directory cannot be told to be a partition of Ottla's")
        return decode_metadata(data, path)

    def create_partition(self, topic: str, partition: int, metadata: PartitionMetadata) -> str:
        """Make a partition's directory with its metadata and return its path; after a crash all or nothing is there."""
        path = self.partition_path(topic, partition)
        if self._disk.is_directory(path):
            raise InvalidTopicLayout(path, "is there already")
        unfinished = os.path.join(self.path, f".new+{metadata.topic_id.hex}-{partition}")
        self._disk.remove_directory(unfinished)
        self._disk.make_directory(unfinished)
        write_atomically(self._disk, os.path.join(unfinished, METADATA_FILE), encode_metadata(metadata))
        self._disk.rename(unfinished, path)
        self._disk.sync_directory(self.path)
        return path

    def set_aside(self, topic: str, partition: int, *, deletion_id: UUID) -> str:
        """Take a partition away durably, under a name of its own, and return where its files are still to go.

        Removing them is slow and may be done later, or is done at the next opening. The id keeps two
        deletions of the same partition apart.
        """
        suffix = f"-{partition}.{deletion_id.hex}-delete"
        # A long topic name is cut, as Kafka does: the whole must still be a file name.
        aside = os.path.join(self.path, topic[: NAME_BYTES_MAX - len(suffix)] + suffix)
        self._disk.rename(self.partition_path(topic, partition), aside)
        self._disk.sync_directory(self.path)
        return aside

    def delete_partition(self, topic: str, partition: int, *, deletion_id: UUID) -> None:
        """Delete a partition with everything in it; a crash leaves it whole or gone."""
        self._disk.remove_directory(self.set_aside(topic, partition, deletion_id=deletion_id))

    def _remove_leftovers(self) -> None:
        for name in self._disk.names(self.path):
            path = os.path.join(self.path, name)
            is_leftover = _DELETED.fullmatch(name) or _UNFINISHED.fullmatch(name)
            if is_leftover and self._disk.is_directory(path):
                self._disk.remove_directory(path)


def _require_ours(disk: Disk, path: str) -> bool:
    """Whether a data directory of our format is here; False where nothing is, InvalidTopicLayout for all else."""
    format_path = os.path.join(path, FORMAT_FILE)
    data = read_small(disk, format_path)
    if data is not None:
        check_format(data, format_path)
        return True
    listing = _listing(disk, path)
    if listing.problems:
        raise listing.problems[0]
    if listing.partitions:
        path = listing.partitions[0].path
        raise InvalidTopicLayout(path, f"stands in a directory without {FORMAT_FILE}, so Ottla did not write it")
    return False


def _listing(disk: Disk, path: str) -> Listing:
    partitions, problems = [], []
    for name in disk.names(path):
        below = os.path.join(path, name)
        found = parse_partition_name(name)
        if found is not None and (
            not name.startswith(".") or disk.size(os.path.join(below, METADATA_FILE)) is not None
        ):
            if disk.is_directory(below):
                partitions.append(PartitionDirectory(*found, below))
            else:
                problems.append(InvalidTopicLayout(below, "is a file, the directory of a partition is expected"))
        elif not (name in _OURS or name == "lost+found" or name.startswith(".") or name.endswith("-delete")):
            problems.append(_foreign(below, name))
    return Listing(tuple(sorted(partitions)), tuple(problems))


def _foreign(path: str, name: str) -> InvalidTopicLayout:
    if name == "meta.properties":
        return InvalidTopicLayout(
            path, "marks a data directory of Apache Kafka: give Ottla a directory of its own and mirror the topics"
        )
    if _SEGMENT_FILE.match(name):
        return InvalidTopicLayout(
            path, "is a segment outside of any partition; `<topic>-<partition>/` is expected above it"
        )
    return InvalidTopicLayout(path, "does not belong in a data directory of Ottla: move it elsewhere")
