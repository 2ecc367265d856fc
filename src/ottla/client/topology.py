"""What the client knows of the cluster: who leads which partition, and where each broker is.

Pure: metadata responses in, views out. Asks nobody; `cluster` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.errors_by_code import code_of
from ottla.client.settings import Address
from ottla.client.values import NO_EPOCH, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.schema import NO_UUID

NO_LEADER = -1
EPOCHS_TRUSTED_SINCE = 9
"""Before this version of Metadata a broker may tell leader epochs that it made up on the way."""
TOPICS_MAX = 10_000
"""Topics remembered; beyond that the one that was learned of first is forgotten and asked for again when needed."""


class PartitionView(NamedTuple):
    """Who leads one partition."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as it was told last."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionView, ...]
    """By number."""
    keys: tuple[TopicPartition, ...]
    """The same partitions as names, made once."""
    available: tuple[int, ...]
    """The numbers of those that have a leader."""
    learned_ms: int

    @property
    def has_id(self) -> bool:
        return self.topic_id != NO_UUID


class Topology:
    """The cluster as it was told last."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller: int = NO_LEADER
        self.nodes: dict[int, Address] = {}
        self.topics: dict[str, TopicView] = {}

    def absorb(self, response: MetadataResponse, *, version: int, now_ms: int) -> dict[str, ErrorCode]:
        """Learn from a response; returns the topics about which it says that something is wrong."""
        if response.brokers:
            self.nodes = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self.cluster_id = response.cluster_id
        self.controller = response.controller_id
        wrong: dict[str, ErrorCode] = {}
        for topic in response.topics:
            name = topic.name or ""
            code = code_of(topic.error_code)
            if code is not ErrorCode.NONE:
                wrong[name] = code
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.topics.pop(name, None)
            if topic.partitions:
                self._learn(name, topic, trusted=version >= EPOCHS_TRUSTED_SINCE, now_ms=now_ms)
        return wrong

    def _learn(self, name: str, topic: MetadataResponseTopic, *, trusted: bool, now_ms: int) -> None:
        known = self.topics.pop(name, None)
        if known is not None and known.topic_id != topic.topic_id:
            known = None
        found = sorted(topic.partitions, key=lambda each: each.partition_index)
        views = tuple(self._view(each, known, trusted) for each in found)
        self.topics[name] = TopicView(
            name=name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=views,
            keys=tuple(TopicPartition(name, view.partition) for view in views),
            available=tuple(view.partition for view in views if view.leader != NO_LEADER),
            learned_ms=now_ms,
        )
        while len(self.topics) > TOPICS_MAX:
            del self.topics[next(iter(self.topics))]

    @staticmethod
    def _view(told: MetadataResponsePartition, known: TopicView | None, trusted: bool) -> PartitionView:
        epoch = told.leader_epoch if trusted else NO_EPOCH
        if known is not None and told.partition_index < len(known.partitions):
            before = known.partitions[told.partition_index]
            # A broker that is behind tells of a leader that we know to have been replaced.
            if epoch != NO_EPOCH and before.leader_epoch > epoch:
                return before
        return PartitionView(
            told.partition_index, told.leader_id, epoch, tuple(told.replica_nodes), tuple(told.isr_nodes)
        )

    def leader_address(self, view: TopicView, partition: int) -> Address | None:
        """Where the leader is; None while there is none that we can reach."""
        return self.nodes.get(view.partitions[partition].leader)

    def forget(self, topic: str) -> None:
        """What was known of a topic turned out to be wrong."""
        self.topics.pop(topic, None)
