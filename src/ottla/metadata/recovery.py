"""The metadata of a broker at its start: from the store, or from the partitions' own directories.

A store that is lost or damaged is not the end of the topics. Each partition's directory says which topic it
belongs to, so names, ids and numbers of partitions come back; what else can still be read of the damaged
store, which is set aside and never deleted, is used too. Topics whose directories contradict each other stay
offline, with the reason, and all others are served.
"""

from __future__ import annotations

import logging
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ottla.errors import DamagedStore, InvalidConfig, InvalidTopicLayout, StorageError, UnsupportedStore
from ottla.metadata.changes import (
    Change,
    Partition,
    PutBrokerConfigs,
    PutCluster,
    PutProducerIds,
    PutTopic,
    PutTopicConfigs,
    PutUnfinished,
    Topic,
    Work,
    decode,
    decode_all,
    encode,
)
from ottla.metadata.image import NO_CLUSTER, Image
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.metadata.judgement import STORE_FILE, Judgement, Scan, judge, scan
from ottla.metadata.local_store import FILE_SUFFIXES, MAIN, LocalStore
from ottla.metadata.store import ABSENT, Commit, MetadataStore
from ottla.storage.checkpoint import DamagedCheckpoint, decode_epochs, read_small
from ottla.storage.disk import Disk
from ottla.storage.layout import DataDirectory, PartitionDirectory, check_contiguous
from ottla.storage.recovery import EPOCHS_FILE

KEEP_EVERYTHING: Mapping[str, str] = {"retention.bytes": "-1", "retention.ms": "-1"}
"""The settings of a topic whose own are lost: the default retention could delete what was meant to stay."""
PRODUCER_IDS_PER_MS = 1024
"""After a loss producer ids go on at the time of day times this, beyond any that can have been given out."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """The broker that opens the store."""

    node_id: int
    cluster_id: str = NO_CLUSTER
    """Empty to take the one that is there, or a new one."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A store and what it holds, held against the directories."""

    store: MetadataStore
    image: Image
    judgement: Judgement
    warnings: tuple[str, ...]
    """What an operator should know; already logged."""


@dataclass(frozen=True, slots=True)
class _Leftovers:
    """What of a lost store is still known."""

    cluster_id: str = NO_CLUSTER
    next_producer_id: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    removals: tuple[PutUnfinished, ...] = ()


def new_cluster_id(new_id: Callable[[], UUID]) -> str:
    """An id as Kafka writes them; not one with a dash in front, which a command line would take for an option."""
    while True:
        text = urlsafe_b64encode(new_id().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def restore_local(
    disk: Disk, directory: DataDirectory, owner: Owner, *, now_ms: int, new_id: Callable[[], UUID]
) -> Restored:
    """Open the SQLite store of a data directory; set it aside and go by the directories where it is damaged.

    Raises UnsupportedStore for a store of another version and InvalidConfig when
    the data directory is another broker's or cluster's.
    """
    path = os.path.join(directory.path, STORE_FILE)
    leftovers = _Leftovers()
    warnings: list[str] = []
    if disk.size(path) is None:
        # A log without its database is of no use to SQLite, which would delete it.
        set_store_aside(disk, path)
    try:
        store = LocalStore.open(path)
        try:
            _load(store, path)
        except BaseException:
            store.close()
            raise
    except DamagedStore as damage:
        # Imported here because an ordinary start does not need it.
        from ottla.metadata.salvage import salvage

        aside = set_store_aside(disk, path)
        warnings.append(f"{damage}; it was set aside as {aside}")
        leftovers = _leftovers(salvage(aside))
        store = LocalStore.open(path)
    try:
        disk.sync_directory(directory.path)
        return _restore(store, disk, directory, owner, leftovers, warnings, now_ms, new_id)
    except BaseException:
        store.close()
        raise


def restore(
    store: MetadataStore,
    disk: Disk,
    directory: DataDirectory,
    owner: Owner,
    *,
    now_ms: int,
    new_id: Callable[[], UUID],
) -> Restored:
    """The same for a store that is open already; an empty one is filled from the directories."""
    return _restore(store, disk, directory, owner, _Leftovers(), [], now_ms, new_id)


def set_store_aside(disk: Disk, path: str) -> str:
    """Give a store's files other names that nothing else has, and return the main one's."""
    number = 1
    while any(disk.size(f"{path}.damaged.{number}{suffix}") is not None for suffix in FILE_SUFFIXES):
        number += 1
    aside = f"{path}.damaged.{number}"
    moved = False
    # The main file goes first: without it nobody can take what is left for a whole store.
    for suffix in FILE_SUFFIXES:
        if disk.size(path + suffix) is not None:
            disk.rename(path + suffix, aside + suffix)
            moved = True
    if moved:
        disk.sync_directory(os.path.dirname(path) or ".")
    return aside + MAIN


def _restore(
    store: MetadataStore,
    disk: Disk,
    directory: DataDirectory,
    owner: Owner,
    leftovers: _Leftovers,
    warnings: list[str],
    now_ms: int,
    new_id: Callable[[], UUID],
) -> Restored:
    image = _load(store, STORE_FILE)
    found = scan(directory)
    offline: dict[str, InvalidTopicLayout] = {}
    if image.cluster_id == NO_CLUSTER:
        known = owner.cluster_id or leftovers.cluster_id or new_cluster_id(new_id)
        topics, offline = _agreeing(disk, found, leftovers, node_id=owner.node_id)
        changes = _rebuilt(topics, leftovers, now_ms=now_ms, used=bool(found.ids or found.unreadable))
        image = _commit(store, image, [PutCluster(known), *changes])
        if topics or offline:
            warnings.append(
                f"{directory.path}: the metadata store was lost; {len(topics)} topic(s) came back from their "
                "directories. Settings that could not be read are at their defaults, with unlimited retention: "
                "set them again"
            )
    _check_owner(image, directory, owner)
    judged = judge(image, found, directory, node_id=owner.node_id)
    # The reason from the rebuilding says more than that the topic is now unknown.
    judgement = Judgement({**judged.offline, **offline}, judged.to_place, judged.to_remove, judged.finished)
    warnings += [f"{stranger}" for stranger in found.strangers]
    warnings += [f"topic {name!r} is offline: {reason}" for name, reason in sorted(judgement.offline.items())]
    for warning in warnings:
        _logger.warning("%s", warning)
    return Restored(store, image, judgement, tuple(warnings))


def _load(store: MetadataStore, path: str) -> Image:
    snapshot = store.load()
    entries = ((key, entry.value) for key, entry in snapshot.entries.items())
    return Image().with_changes(decode_all(entries, path=path), revision=snapshot.revision)


def _commit(store: MetadataStore, image: Image, changes: list[Change]) -> Image:
    entries = dict(encode(change) for change in changes)
    puts = {key: value for key, value in entries.items() if value is not None}
    # Somebody else who found the same empty store may have been faster.
    revision = store.commit(Commit(puts=puts, expected=dict.fromkeys(puts, ABSENT)))
    return image.with_changes(changes, revision=revision)


def _check_owner(image: Image, directory: DataDirectory, owner: Owner) -> None:
    node_id, cluster_id = owner.node_id, owner.cluster_id
    if cluster_id and cluster_id != image.cluster_id:
        raise InvalidConfig(
            f"{directory.path} belongs to the cluster {image.cluster_id}, not to ottla.cluster.id={cluster_id}; "
            "leave the setting out, or use another data directory"
        )
    nodes = {node for topic in image.topics.values() for partition in topic.partitions for node in partition.replicas}
    if nodes and node_id not in nodes:
        raise InvalidConfig(
            f"{directory.path} holds topics of broker {', '.join(map(str, sorted(nodes)))}, none of node.id={node_id}; "
            "start with the number it had, or use another data directory"
        )


def _leftovers(entries: Mapping[str, bytes]) -> _Leftovers:
    changes = []
    for key, value in entries.items():
        try:
            changes.append(decode(key, value))
        except (DamagedStore, UnsupportedStore) as error:
            _logger.info("not used: %s", error)
    image = Image().with_changes(changes)
    removals = tuple(PutUnfinished(work) for work in image.unfinished.values() if work.work is Work.REMOVE)
    return _Leftovers(
        image.cluster_id, image.next_producer_id, image.topics, image.topic_configs, image.broker_configs, removals
    )


def _agreeing(
    disk: Disk, found: Scan, leftovers: _Leftovers, *, node_id: int
) -> tuple[list[Topic], dict[str, InvalidTopicLayout]]:
    """The topics whose directories make sense together, and for all others the reason why not."""
    deleted = {removal.unfinished.topic_id for removal in leftovers.removals}
    offline: dict[str, InvalidTopicLayout] = {}
    for unreadable, error in found.unreadable.items():
        offline.setdefault(unreadable.topic, error)
    by_topic: dict[str, dict[PartitionDirectory, UUID]] = {}
    for place, topic_id in found.ids.items():
        if topic_id not in deleted:
            by_topic.setdefault(place.topic, {})[place] = topic_id
    names: dict[UUID, set[str]] = {}
    for place, topic_id in found.ids.items():
        names.setdefault(topic_id, set()).add(place.topic)
    topics = []
    for name, places in sorted(by_topic.items()):
        if name in offline:
            continue
        try:
            topic_id = _one_id(places)
            check_contiguous(places)
            others = names[topic_id] - {name}
            if others:
                # Nobody can tell which of them is the copy.
                raise _shared_id(min(places), min(others), topic_id)
        except InvalidTopicLayout as contradiction:
            offline[name] = contradiction
        else:
            topics.append(Topic(name, topic_id, tuple(_partition(disk, place, node_id) for place in sorted(places))))
    return topics, offline


def _one_id(places: Mapping[PartitionDirectory, UUID]) -> UUID:
    first = min(places)
    for place, topic_id in places.items():
        if topic_id != places[first]:
            raise InvalidTopicLayout(
                place.path,
                f"has the topic id {topic_id}, but {os.path.basename(first.path)} has {places[first]}: "
                "move those out that do not belong to the topic",
            )
    return places[first]


def _shared_id(place: PartitionDirectory, other: str, topic_id: UUID) -> InvalidTopicLayout:
    return InvalidTopicLayout(
        place.path, f"has the topic id {topic_id}, as topic {other!r} has: one is a copy of the other, move it out"
    )


def _partition(disk: Disk, place: PartitionDirectory, node_id: int) -> Partition:
    """A partition on this broker alone; its leader epoch goes on where its log has been."""
    try:
        data = read_small(disk, os.path.join(place.path, EPOCHS_FILE))
        epochs = decode_epochs(data) if data is not None else []
    except (StorageError, DamagedCheckpoint) as error:
        # The log has the epochs in its batches too, and raises ours when it is opened.
        _logger.warning("%s: the leader epochs cannot be read: %s", place.path, error)
        epochs = []
    return Partition(node_id, epochs[-1].epoch if epochs else 0, (node_id,), (node_id,))


def _rebuilt(topics: list[Topic], leftovers: _Leftovers, *, now_ms: int, used: bool) -> list[Change]:
    changes: list[Change] = [*leftovers.removals]
    for topic in topics:
        changes.append(PutTopic(topic))
        configs = INTERNAL_TOPICS.get(topic.name, KEEP_EVERYTHING)
        before = leftovers.topics.get(topic.name)
        if topic.name in leftovers.topic_configs and (before is None or before.topic_id == topic.topic_id):
            configs = leftovers.topic_configs[topic.name]
        changes.append(PutTopicConfigs(topic.name, dict(configs)))
    changes += [PutBrokerConfigs(node, dict(configs)) for node, configs in leftovers.broker_configs.items()]
    next_producer_id = max(leftovers.next_producer_id, now_ms * PRODUCER_IDS_PER_MS if used else 0)
    if next_producer_id:
        changes.append(PutProducerIds(next_producer_id))
    return changes
