"""The one way to put a Fetch together. Knows nothing of who reads, nor of what is done with the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.settings import Address
from ottla.client.transport import Call
from ottla.client.values import TopicPartition
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

FETCH_NAMES_LAST = 12
"""The last version of Fetch that names topics; from the next on they go by id."""


class Wanted(NamedTuple):
    """What is asked of one partition, whose topic is known."""

    key: TopicPartition
    offset: int
    bytes_max: int


def fetch_call(
    cluster: Cluster,
    address: Address,
    wanted: Iterable[Wanted],
    *,
    isolation: int,
    wait_ms: int,
    bytes_min: int,
    bytes_max: int,
    timeout_ms: int,
) -> Call:
    """A Fetch to a broker that has been met; by the ids of the topics where all have one."""
    by_topic: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset, partition_bytes_max in wanted:
        asked = FetchPartition(
            partition=partition,
            current_leader_epoch=cluster.topology.topics[topic].partitions[partition].leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=partition_bytes_max,
        )
        by_topic.setdefault(topic, []).append(asked)
    views = [cluster.topology.topics[name] for name in by_topic]
    version_max = None if all(view.has_id for view in views) else FETCH_NAMES_LAST
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        isolation_level=isolation,
        topics=[FetchTopic(topic=view.name, topic_id=view.topic_id, partitions=by_topic[view.name]) for view in views],
    )
    version = cluster.version(address, ApiKey.FETCH, version_max=version_max)
    return Call(address, ApiKey.FETCH, version, request, timeout_ms)
