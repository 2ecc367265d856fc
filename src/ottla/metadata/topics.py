"""The rules about topics: which may be created, deleted, made wider. Pure.

Each rule takes the image and what is wanted, and gives the changes that do it or raises the refusal. Ids and
the brokers there are come from the caller; nothing is stored and no directory is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.errors import (
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    TopicExists,
    UnknownTopicId,
)
from ottla.metadata.changes import (
    Change,
    Partition,
    PutTopic,
    PutTopicConfigs,
    PutUnfinished,
    RemoveTopic,
    Topic,
    Unfinished,
    Work,
)
from ottla.metadata.configs import BrokerConfigs, new_topic_configs
from ottla.metadata.image import Image, look_alike
from ottla.storage.layout import TOPIC_NAME_BYTES_MAX, is_topic_name

DEFAULT = -1
"""Where a number of partitions or copies is asked for: the broker's own default."""
PARTITIONS_PER_TOPIC_MAX = 10_000
"""Each partition costs files and memory; whoever asks for more has most likely mistyped."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that somebody wants."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Which brokers hold which partition; empty to leave it to Ottla."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


class Decided(NamedTuple):
    """A topic as it will be, and the changes that make it so."""

    topic: Topic
    changes: list[Change]


def check_name(image: Image, name: str) -> None:
    """Refuse a name that no topic may have, that is taken, or that looks like another's."""
    if not is_topic_name(name):
        raise InvalidTopicName(
            f"{name[: TOPIC_NAME_BYTES_MAX + 1]!r} is no name for a topic; "
            f"use 1 to {TOPIC_NAME_BYTES_MAX} letters, digits, dots, underscores and dashes, and not '.' or '..'"
        )
    if name in image.topics:
        raise TopicExists(f"topic {name!r} is there already; use it, or choose another name")
    alike = image.look_alikes.get(look_alike(name))
    if alike:
        raise InvalidTopicName(
            f"{name!r} differs from topic {alike[0]!r} only in dots and underscores; choose another name"
        )


def create(
    image: Image, wanted: NewTopic, *, topic_id: UUID, brokers: Sequence[int], defaults: BrokerConfigs
) -> Decided:
    """A new topic on these brokers."""
    check_name(image, wanted.name)
    if wanted.assignments:
        replicas = _manual(wanted, brokers)
    else:
        count = _partition_count(wanted, defaults)
        factor = _replication_factor(wanted, defaults, brokers)
        replicas = _spread(range(count), factor=factor, brokers=brokers, topic_id=topic_id)
    configs = new_topic_configs(wanted.configs)
    topic = Topic(wanted.name, topic_id, _partitions(replicas))
    changes: list[Change] = [PutTopic(topic), *_to_place(image, topic, start=0)]
    if configs:
        changes.append(PutTopicConfigs(topic.name, configs))
    return Decided(topic, changes)


def delete(image: Image, name: str, *, topic_id: UUID | None = None) -> Decided:
    """The end of a topic; `topic_id` makes sure that it is not a later one of the same name."""
    topic = image.topic(name)
    if topic_id is not None and topic.topic_id != topic_id:
        raise UnknownTopicId(topic_id)
    work = [
        PutUnfinished(Unfinished(node_id, name, topic.topic_id, Work.REMOVE, 0, len(topic.partitions)))
        for node_id in sorted({node_id for partition in topic.partitions for node_id in partition.replicas})
    ]
    return Decided(topic, [RemoveTopic(name), PutTopicConfigs(name, {}), *work])


def add_partitions(
    image: Image,
    name: str,
    *,
    total: int,
    brokers: Sequence[int],
    assignments: Sequence[Sequence[int]] | None = None,
) -> Decided:
    """A topic with more partitions; the ones it has stay as they are."""
    topic = image.topic(name)
    have = len(topic.partitions)
    if total <= have:
        raise InvalidPartitionCount(f"topic {name!r} has {have} partitions; it can only grow, so ask for {have + 1} up")
    _check_partition_max(name, total)
    factor = topic.replication_factor
    if assignments is None:
        if factor > len(brokers):
            raise InvalidReplicationFactor(_too_many_copies(name, factor, brokers))
        replicas = _spread(range(have, total), factor=factor, brokers=brokers, topic_id=topic.topic_id)
    else:
        if len(assignments) != total - have:
            raise InvalidReplicaAssignment(
                f"topic {name!r} grows by {total - have} partitions, but {len(assignments)} are assigned to brokers"
            )
        replicas = [_checked(name, have + n, nodes, brokers, factor) for n, nodes in enumerate(assignments)]
    grown = Topic(name, topic.topic_id, topic.partitions + _partitions(replicas))
    return Decided(grown, [PutTopic(grown), *_to_place(image, grown, start=have)])


def raise_epochs(image: Image, name: str, epochs: Mapping[int, int]) -> Decided:
    """A topic whose partitions have these leader epochs or later ones; an epoch never falls."""
    topic = image.topic(name)
    partitions = list(topic.partitions)
    for number, epoch in epochs.items():
        have = image.partition(name, number)
        if epoch > have.leader_epoch:
            partitions[number] = Partition(have.leader, epoch, have.replicas, have.isr)
    raised = Topic(name, topic.topic_id, tuple(partitions))
    return Decided(raised, [] if raised == topic else [PutTopic(raised)])


def _partition_count(wanted: NewTopic, defaults: BrokerConfigs) -> int:
    count = wanted.partition_count
    if count == DEFAULT:
        count = defaults.integer("num.partitions")
    if count < 1:
        raise InvalidPartitionCount(
            f"topic {wanted.name!r} cannot have {count} partitions; ask for at least 1, or {DEFAULT} for the default"
        )
    _check_partition_max(wanted.name, count)
    return count


def _check_partition_max(name: str, count: int) -> None:
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise InvalidPartitionCount(
            f"topic {name!r} cannot have {count} partitions; ask for at most {PARTITIONS_PER_TOPIC_MAX}"
        )


def _replication_factor(wanted: NewTopic, defaults: BrokerConfigs, brokers: Sequence[int]) -> int:
    factor = wanted.replication_factor
    if factor == DEFAULT:
        factor = defaults.integer("default.replication.factor")
    if factor < 1:
        raise InvalidReplicationFactor(
            f"topic {wanted.name!r} cannot have {factor} copies; ask for at least 1, or {DEFAULT} for the default"
        )
    if factor > len(brokers):
        raise InvalidReplicationFactor(_too_many_copies(wanted.name, factor, brokers))
    return factor


def _too_many_copies(name: str, factor: int, brokers: Sequence[int]) -> str:
    return (
        f"topic {name!r} cannot have {factor} copies with {len(brokers)} broker(s); "
        f"ask for at most {len(brokers)}, or start more brokers"
    )


def _spread(partitions: Iterable[int], *, factor: int, brokers: Sequence[int], topic_id: UUID) -> list[tuple[int, ...]]:
    """Replicas in turn over the brokers. Where the turn begins depends on the topic, so that not all begin alike."""
    first = topic_id.int % len(brokers)
    return [tuple(brokers[(first + n + copy) % len(brokers)] for copy in range(factor)) for n in partitions]


def _manual(wanted: NewTopic, brokers: Sequence[int]) -> list[tuple[int, ...]]:
    if wanted.partition_count != DEFAULT or wanted.replication_factor != DEFAULT:
        raise InvalidRequest(
            f"topic {wanted.name!r} has both assignments and numbers; with assignments, leave both numbers at {DEFAULT}"
        )
    count = len(wanted.assignments)
    if set(wanted.assignments) != set(range(count)):
        raise InvalidReplicaAssignment(f"the partitions of topic {wanted.name!r} must be numbered 0 to {count - 1}")
    _check_partition_max(wanted.name, count)
    factor = len(wanted.assignments[0])
    return [_checked(wanted.name, n, wanted.assignments[n], brokers, factor) for n in range(count)]


def _checked(name: str, partition: int, nodes: Sequence[int], brokers: Sequence[int], factor: int) -> tuple[int, ...]:
    where = f"partition {partition} of topic {name!r}"
    if not nodes:
        raise InvalidReplicaAssignment(f"{where} is assigned to no broker; name at least one")
    if len(set(nodes)) < len(nodes):
        raise InvalidReplicaAssignment(f"{where} is assigned to the same broker twice; name each once")
    unknown = sorted(set(nodes) - set(brokers))
    if unknown:
        raise InvalidReplicaAssignment(f"{where} is assigned to broker {unknown[0]}, which is not there")
    if len(nodes) != factor:
        raise InvalidReplicaAssignment(f"{where} has {len(nodes)} copies, the others have {factor}; use one number")
    return tuple(nodes)


def _partitions(replicas: Iterable[tuple[int, ...]]) -> tuple[Partition, ...]:
    # Most partitions of a topic are alike: one object for all that are spares memory for large topics.
    made: dict[tuple[int, ...], Partition] = {}
    return tuple(made.setdefault(nodes, Partition(nodes[0], 0, nodes, nodes)) for nodes in replicas)


def _to_place(image: Image, topic: Topic, *, start: int) -> list[Change]:
    """The directories that each broker has now to make, with those that it had to make already."""
    end = len(topic.partitions)
    nodes = sorted({node_id for partition in topic.partitions[start:] for node_id in partition.replicas})
    changes: list[Change] = []
    for node_id in nodes:
        earlier = image.unfinished.get((node_id, topic.topic_id))
        first = start if earlier is None else min(start, earlier.start)
        changes.append(PutUnfinished(Unfinished(node_id, topic.name, topic.topic_id, Work.PLACE, first, end)))
    return changes
