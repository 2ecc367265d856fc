"""An immutable picture of what exists, cheap to share and cheap to change.

Whoever holds an image may read it for as long as they like: a change makes another one and shares all that
stays the same. The cost of a change is a copy of the maps it touches, one slot a topic, however many
partitions they have. What may change is not decided here, nor is anything stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from ottla.errors import PartitionNotFound, TopicNotFound, UnknownTopicId
from ottla.metadata.changes import (
    EVERY_BROKER,
    Change,
    Partition,
    PutBrokerConfigs,
    PutCluster,
    PutProducerIds,
    PutTopic,
    PutTopicConfigs,
    PutUnfinished,
    RemoveTopic,
    RemoveUnfinished,
    Topic,
    Unfinished,
)

NO_CLUSTER = ""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Image:
    """What exists, as of one revision of the store."""

    revision: int = 0
    cluster_id: str = NO_CLUSTER
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, Topic] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the broker's number, as text; `EVERY_BROKER` for those of the whole cluster."""
    next_producer_id: int = 0
    unfinished: Mapping[tuple[int, UUID], Unfinished] = field(default_factory=dict)
    """What brokers have still to do to their directories, by broker and topic."""
    look_alikes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topic names by what they look like when a dot is an underscore."""

    def topic(self, name: str) -> Topic:
        """The topic of this name, or TopicNotFound."""
        found = self.topics.get(name)
        if found is None:
            raise TopicNotFound(name)
        return found

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """The topic with this id, or UnknownTopicId."""
        found = self.topics_by_id.get(topic_id)
        if found is None:
            raise UnknownTopicId(topic_id)
        return found

    def partition(self, name: str, partition: int) -> Partition:
        """One partition, or TopicNotFound or PartitionNotFound."""
        partitions = self.topic(name).partitions
        if not 0 <= partition < len(partitions):
            raise PartitionNotFound(name, partition)
        return partitions[partition]

    def configs_of_topic(self, name: str) -> Mapping[str, str]:
        """The settings that the topic has of its own."""
        return self.topic_configs.get(name, {})

    def configs_of_broker(self, node_id: int) -> Mapping[str, str]:
        """The settings that were set at run time for one broker."""
        return self.broker_configs.get(str(node_id), {})

    def configs_of_cluster(self) -> Mapping[str, str]:
        """The settings that were set at run time for every broker."""
        return self.broker_configs.get(EVERY_BROKER, {})

    def with_changes(self, changes: Iterable[Change], *, revision: int | None = None) -> Image:
        """The image after these changes, in order; this one stays as it is."""
        draft = Draft(self)
        draft.apply(changes)
        return draft.finish(self.revision if revision is None else revision)


def look_alike(name: str) -> str:
    """What a topic's name looks like where dots are not told from underscores, as in the names of metrics."""
    return name.replace(".", "_")


class Draft:
    """An image on its way to the next one: each map is copied at its first change, then changed in place.

    `image` shows the changes so far. It is for a look in passing: the next change shows in it too.
    """

    def __init__(self, image: Image) -> None:
        self.image = image
        self._copied: set[str] = set()

    def apply(self, changes: Iterable[Change]) -> None:
        """Make these changes, in order."""
        for change in changes:
            self._apply(change)

    def finish(self, revision: int) -> Image:
        """The image that the draft has become; the draft is not to be used any more."""
        return replace(self.image, revision=revision)

    def _apply(self, change: Change) -> None:
        match change:
            case PutTopic(topic=topic):
                self._put_topic(topic)
            case RemoveTopic(name=name):
                self._remove_topic(name)
            case PutTopicConfigs(name=name, configs=configs):
                _put(self._map("topic_configs", self.image.topic_configs), name, configs)
            case PutBrokerConfigs(node=node, configs=configs):
                _put(self._map("broker_configs", self.image.broker_configs), node, configs)
            case PutUnfinished(unfinished=work):
                self._map("unfinished", self.image.unfinished)[work.node_id, work.topic_id] = work
            case RemoveUnfinished(node_id=node_id, topic_id=topic_id):
                self._map("unfinished", self.image.unfinished).pop((node_id, topic_id), None)
            case PutCluster(cluster_id=cluster_id):
                self.image = replace(self.image, cluster_id=cluster_id)
            case PutProducerIds(next_producer_id=next_producer_id):
                self.image = replace(self.image, next_producer_id=next_producer_id)

    def _put_topic(self, topic: Topic) -> None:
        self._remove_topic(topic.name)
        self._map("topics", self.image.topics)[topic.name] = topic
        self._map("topics_by_id", self.image.topics_by_id)[topic.topic_id] = topic
        alike = self._map("look_alikes", self.image.look_alikes)
        alike[look_alike(topic.name)] = (*alike.get(look_alike(topic.name), ()), topic.name)

    def _remove_topic(self, name: str) -> None:
        if name not in self.image.topics:
            return
        gone = self._map("topics", self.image.topics).pop(name)
        by_id = self._map("topics_by_id", self.image.topics_by_id)
        if by_id.get(gone.topic_id) is gone:
            del by_id[gone.topic_id]
        alike = self._map("look_alikes", self.image.look_alikes)
        _put(alike, look_alike(name), tuple(other for other in alike[look_alike(name)] if other != name))

    def _map(self, name: str, current: Mapping[K, V]) -> dict[K, V]:
        if name in self._copied:
            assert isinstance(current, dict)
            return current
        copy = dict(current)
        self._copied.add(name)
        self.image = replace(self.image, **{name: copy})  # type: ignore[arg-type]
        return copy


def _put(entries: dict[K, V], key: K, value: V) -> None:
    """Put an entry, or take it away where nothing is left in it."""
    if value:
        entries[key] = value
    else:
        entries.pop(key, None)
