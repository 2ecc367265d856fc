"""The changes that metadata consists of, and how each one stands in a store.

A change is an entry: a key, and a value or nothing. So the entries of a store are the changes that make the
image, and an entry that somebody else wrote is a change to apply. What a change does to the image is in
`image.py`; whether it is allowed, in `topics.py` and `configs.py`. The bytes are described in `FORMAT.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from uuid import UUID

import msgspec

from ottla.errors import DamagedStore, UnsupportedStore

CLUSTER_KEY = "cluster"
PRODUCER_IDS_KEY = "producer-ids"
TOPIC_PREFIX = "topic/"
TOPIC_CONFIGS_PREFIX = "topic-configs/"
BROKER_CONFIGS_PREFIX = "broker-configs/"
UNFINISHED_PREFIX = "unfinished/"
EVERY_BROKER = ""
"""Stands for all brokers where a broker's number is expected."""


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """Who holds a partition, and who leads it since when."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Topic(msgspec.Struct, frozen=True):
    """A topic; a partition's number is its place."""

    name: str
    topic_id: UUID
    partitions: tuple[Partition, ...]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


class Work(StrEnum):
    """What a broker has still to do to its directories."""

    PLACE = "place"
    REMOVE = "remove"


class Unfinished(msgspec.Struct, frozen=True):
    """A broker's directories that do not yet fit the metadata: partitions `start` to `end` are to be made or removed.

    Stands in the store from the moment the change is durable until the directories follow, so that a crash
    between the two is not taken for a lost or a foreign directory.
    """

    node_id: int
    topic: str
    topic_id: UUID
    work: Work
    start: int
    end: int


class PutCluster(msgspec.Struct, frozen=True):
    """The cluster has this id; written once."""

    cluster_id: str


class PutTopic(msgspec.Struct, frozen=True):
    """The topic is so now."""

    topic: Topic


class RemoveTopic(msgspec.Struct, frozen=True):
    """The topic is gone."""

    name: str


class PutTopicConfigs(msgspec.Struct, frozen=True):
    """The topic's own settings are these; none at all is not stored."""

    name: str
    configs: dict[str, str]


class PutBrokerConfigs(msgspec.Struct, frozen=True):
    """The settings of a broker, or of every one, that were set at run time."""

    node: str
    configs: dict[str, str]


class PutProducerIds(msgspec.Struct, frozen=True):
    """Every producer id below this one has been given out."""

    next_producer_id: int


class PutUnfinished(msgspec.Struct, frozen=True):
    """A broker has work to do."""

    unfinished: Unfinished


class RemoveUnfinished(msgspec.Struct, frozen=True):
    """A broker has done the work."""

    node_id: int
    topic_id: UUID


Change = (
    PutCluster
    | PutTopic
    | RemoveTopic
    | PutTopicConfigs
    | PutBrokerConfigs
    | PutProducerIds
    | PutUnfinished
    | RemoveUnfinished
)


class _Cluster(msgspec.Struct):
    id: str


class _Topic(msgspec.Struct):
    id: UUID
    partitions: tuple[Partition, ...]


class _ProducerIds(msgspec.Struct):
    next: int


class _Unfinished(msgspec.Struct):
    topic: str
    work: Work
    start: int
    end: int


_encode = msgspec.json.encode


def encode(change: Change) -> tuple[str, bytes | None]:
    """The entry that a change is: its key, and the value or None where the entry goes away."""
    match change:
        case PutCluster(cluster_id=cluster_id):
            return CLUSTER_KEY, _encode(_Cluster(cluster_id))
        case PutTopic(topic=topic):
            return TOPIC_PREFIX + topic.name, _encode(_Topic(topic.topic_id, topic.partitions))
        case RemoveTopic(name=name):
            return TOPIC_PREFIX + name, None
        case PutTopicConfigs(name=name, configs=configs):
            return TOPIC_CONFIGS_PREFIX + name, _encode(configs, order="sorted") if configs else None
        case PutBrokerConfigs(node=node, configs=configs):
            return BROKER_CONFIGS_PREFIX + node, _encode(configs, order="sorted") if configs else None
        case PutProducerIds(next_producer_id=next_producer_id):
            return PRODUCER_IDS_KEY, _encode(_ProducerIds(next_producer_id))
        case PutUnfinished(unfinished=work):
            key = _unfinished_key(work.node_id, work.topic_id)
            return key, _encode(_Unfinished(work.topic, work.work, work.start, work.end))
        case RemoveUnfinished(node_id=node_id, topic_id=topic_id):
            return _unfinished_key(node_id, topic_id), None


def decode(key: str, value: bytes | None, *, path: str = "the metadata store") -> Change:
    """The change that an entry is.

    Raises DamagedStore for bytes that are no value of that key, and UnsupportedStore for a key that is not
    known: a newer Ottla put it there, and to ignore it could mean to ignore a rule about who may do what.
    """
    try:
        return _decode(key, value)
    except (msgspec.DecodeError, ValueError) as error:
        raise DamagedStore(path, f"the entry {key!r} cannot be read: {error}") from error
    except KeyError as error:
        raise UnsupportedStore(
            path, f"holds the entry {key!r}, which this Ottla does not know: run the version that wrote it"
        ) from error


def decode_all(entries: Iterable[tuple[str, bytes | None]], *, path: str = "the metadata store") -> list[Change]:
    """The changes that entries are."""
    return [decode(key, value, path=path) for key, value in entries]


def _decode(key: str, value: bytes | None) -> Change:
    prefix, slash, name = key.partition("/")
    match prefix + slash:
        case "cluster":
            return PutCluster(msgspec.json.decode(value or b"", type=_Cluster).id)
        case "producer-ids":
            return PutProducerIds(msgspec.json.decode(value or b"", type=_ProducerIds).next)
        case "topic/":
            if value is None:
                return RemoveTopic(name)
            topic = msgspec.json.decode(value, type=_Topic)
            if not topic.partitions:
                raise ValueError("a topic has at least one partition")
            return PutTopic(Topic(name, topic.id, topic.partitions))
        case "topic-configs/":
            return PutTopicConfigs(name, msgspec.json.decode(value or b"{}", type=dict[str, str]))
        case "broker-configs/":
            return PutBrokerConfigs(name, msgspec.json.decode(value or b"{}", type=dict[str, str]))
        case "unfinished/":
            node, _, topic_id = name.partition("/")
            if value is None:
                return RemoveUnfinished(int(node), UUID(topic_id))
            work = msgspec.json.decode(value, type=_Unfinished)
            return PutUnfinished(Unfinished(int(node), work.topic, UUID(topic_id), work.work, work.start, work.end))
        case _:
            raise KeyError(key)


def _unfinished_key(node_id: int, topic_id: UUID) -> str:
    return f"{UNFINISHED_PREFIX}{node_id}/{topic_id}"
