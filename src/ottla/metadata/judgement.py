"""The directories of a broker, held against what the metadata says should be there. Pure but for reading names and ids.

A directory that is missing, or that the metadata does not know, takes its own topic offline and no other. What
a crash left half done is told apart by the unfinished work that stands in the metadata: it is to be finished.
Nothing is guessed, moved or removed here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ottla.errors import InvalidTopicLayout, StorageError
from ottla.metadata.changes import Unfinished, Work
from ottla.metadata.image import Image
from ottla.storage.layout import DataDirectory, PartitionDirectory

STORE_FILE = "ottla.metadata.db"
"""The metadata store's file in the data directory; the names of its companions begin alike."""


class HeldPartition(NamedTuple):
    """A partition of a topic that is meant by id, not only by name."""

    topic: str
    partition: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class Scan:
    """Every partition's directory with the topic id in it, or with the reason why that cannot be read."""

    ids: Mapping[PartitionDirectory, UUID]
    unreadable: Mapping[PartitionDirectory, InvalidTopicLayout]
    strangers: tuple[InvalidTopicLayout, ...]
    """What has no business in a data directory."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What of the metadata can be served from these directories."""

    offline: Mapping[str, InvalidTopicLayout]
    """Topics that cannot be served, with the first reason."""
    to_place: tuple[HeldPartition, ...]
    """Directories that a crash kept from being made."""
    to_remove: tuple[HeldPartition, ...]
    """Directories of deleted topics that a crash kept from being removed; first these, then the others."""
    finished: tuple[Unfinished, ...]
    """Work that turns out to be done already."""


def scan(directory: DataDirectory) -> Scan:
    """Read the topic id of every partition here; one that cannot be read keeps nobody else from being read."""
    listing = directory.listing()
    ids: dict[PartitionDirectory, UUID] = {}
    unreadable: dict[PartitionDirectory, InvalidTopicLayout] = {}
    for found in listing.partitions:
        try:
            ids[found] = directory.read_metadata(found.topic, found.partition).topic_id
        except InvalidTopicLayout as error:
            unreadable[found] = error
        except StorageError as error:
            unreadable[found] = InvalidTopicLayout(found.path, f"cannot be read: {error}")
    ours = os.path.join(directory.path, STORE_FILE)
    strangers = tuple(problem for problem in listing.problems if not problem.path.startswith(ours))
    return Scan(ids, unreadable, strangers)


def judge(image: Image, found: Scan, directory: DataDirectory, *, node_id: int) -> Judgement:
    """What can be served, what cannot, and what is still to be done, on this broker."""
    offline: dict[str, InvalidTopicLayout] = {}
    to_remove: list[HeldPartition] = []
    present: set[tuple[str, int]] = set()
    for place, unreadable in found.unreadable.items():
        present.add((place.topic, place.partition))
        offline.setdefault(place.topic, unreadable)
    for place, topic_id in found.ids.items():
        topic = image.topics.get(place.topic)
        work = image.unfinished.get((node_id, topic_id))
        if topic is not None and topic.topic_id == topic_id and _is_held(image, place, node_id=node_id):
            present.add((place.topic, place.partition))
        elif work is not None and work.work is Work.REMOVE:
            to_remove.append(HeldPartition(place.topic, place.partition, topic_id))
        else:
            offline.setdefault(place.topic, _unknown(image, place, topic_id, node_id=node_id))
    to_place: list[HeldPartition] = []
    for name, topic in image.topics.items():
        work = image.unfinished.get((node_id, topic.topic_id))
        for number, partition in enumerate(topic.partitions):
            if node_id not in partition.replicas or (name, number) in present:
                continue
            if work is not None and work.work is Work.PLACE and work.start <= number < work.end:
                to_place.append(HeldPartition(name, number, topic.topic_id))
            elif name not in offline:
                path = directory.partition_path(name, number)
                offline[name] = InvalidTopicLayout(
                    path, "is missing, although the metadata says that it is here: bring it back, or delete the topic"
                )
    pending = {partition.topic_id for partition in (*to_place, *to_remove)}
    finished = tuple(
        work for (node, topic_id), work in image.unfinished.items() if node == node_id and topic_id not in pending
    )
    return Judgement(offline, tuple(to_place), tuple(to_remove), finished)


def _is_held(image: Image, place: PartitionDirectory, *, node_id: int) -> bool:
    partitions = image.topics[place.topic].partitions
    return place.partition < len(partitions) and node_id in partitions[place.partition].replicas


def _unknown(image: Image, place: PartitionDirectory, topic_id: UUID, *, node_id: int) -> InvalidTopicLayout:
    topic = image.topics.get(place.topic)
    if topic is None:
        reason = "the metadata knows no topic of this name"
    elif topic.topic_id != topic_id:
        reason = f"it belongs to another topic of this name: its id is {topic_id}, not {topic.topic_id}"
    elif place.partition >= len(topic.partitions):
        reason = f"the topic has {len(topic.partitions)} partitions"
    else:
        reason = f"the partition is not on broker {node_id}"
    return InvalidTopicLayout(place.path, f"{reason}; move the directory out of the data directory")
