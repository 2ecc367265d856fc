"""Offsets by time, or by name: asks the leaders, and asks again when leaders have changed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.cluster import UNANSWERED, Cluster
from ottla.client.errors import PartitionNotFound, UnsupportedVersion
from ottla.client.errors_by_code import error_for, is_retriable
from ottla.client.settings import Address
from ottla.client.topology import TopicView
from ottla.client.values import OffsetSpec, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

MAX_TIMESTAMP_SINCE = 7
CONSUMER_REPLICA = -1


class OffsetFound(NamedTuple):
    """Where the wanted record is."""

    offset: int
    timestamp_ms: int
    """The record's timestamp, or -1 where none was asked about."""
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation: int, deadline_ms: int
) -> dict[TopicPartition, OffsetFound | None]:
    """The offset for each partition's timestamp or `OffsetSpec`; None where no record is that young.

    Raises TopicNotFound or PartitionNotFound, the broker's refusal, or the last failure at the deadline.
    """
    found: dict[TopicPartition, OffsetFound | None] = {}
    for attempt in itertools.count(1):
        left = {key: timestamp for key, timestamp in wanted.items() if key not in found}
        problem = await ask_once(cluster, left, found, isolation=isolation, deadline_ms=deadline_ms)
        if problem is None:
            return found
        delay_ms = cluster.settings.backoff_ms(attempt)
        if cluster.ticks.now_ms() + delay_ms >= deadline_ms:
            raise problem
        await cluster.transport.sleep(delay_ms)
    raise AssertionError("unreachable")


async def ask_once(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, OffsetFound | None],
    *,
    isolation: int,
    deadline_ms: int,
) -> OttlaError | None:
    """One attempt for all, adding to `found`; returns what stood in the way of some, raises what will not pass."""
    problem: OttlaError | None = None
    by_leader: dict[Address, dict[str, list[ListOffsetsPartition]]] = {}
    for key, timestamp in wanted.items():
        view = await topic_with(cluster, key, deadline_ms)
        address = cluster.topology.leader_address(view, key.partition)
        if address is None:
            problem = error_for(ErrorCode.LEADER_NOT_AVAILABLE, about=f"{key.topic}-{key.partition}")
            cluster.mark_stale(key.topic)
            continue
        asked = ListOffsetsPartition(
            partition_index=key.partition,
            current_leader_epoch=view.partitions[key.partition].leader_epoch,
            timestamp=timestamp,
        )
        by_leader.setdefault(address, {}).setdefault(key.topic, []).append(asked)
    for address, topics in by_leader.items():
        try:
            trouble = await _ask_leader(cluster, address, topics, found, isolation)
        except UNANSWERED as e:
            trouble = e
            for topic in topics:
                cluster.mark_stale(topic)
        problem = trouble or problem
    return problem


async def topic_with(cluster: Cluster, key: TopicPartition, deadline_ms: int) -> TopicView:
    """The topic of a partition that is there; PartitionNotFound when even fresh metadata does not know it."""
    view = await cluster.topic(key.topic, deadline_ms=deadline_ms)
    if not 0 <= key.partition < len(view.partitions):
        cluster.mark_stale(key.topic)
        view = await cluster.topic(key.topic, deadline_ms=deadline_ms)
        if not 0 <= key.partition < len(view.partitions):
            raise PartitionNotFound(key.topic, key.partition)
    return view


async def _ask_leader(
    cluster: Cluster,
    address: Address,
    topics: Mapping[str, list[ListOffsetsPartition]],
    found: dict[TopicPartition, OffsetFound | None],
    isolation: int,
) -> OttlaError | None:
    await cluster.meet(address)
    asks_for_max = any(each.timestamp == OffsetSpec.MAX_TIMESTAMP for asked in topics.values() for each in asked)
    if asks_for_max and cluster.version(address, ApiKey.LIST_OFFSETS) < MAX_TIMESTAMP_SINCE:
        raise UnsupportedVersion(f"{address} is too old to find the record with the highest timestamp")
    request = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    response = await cluster.ask(address, ApiKey.LIST_OFFSETS, request, ListOffsetsResponse)
    problem: OttlaError | None = None
    for topic in response.topics:
        for answer in topic.partitions:
            key = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code == ErrorCode.NONE:
                place = OffsetFound(answer.offset, answer.timestamp, answer.leader_epoch)
                found[key] = place if answer.offset >= 0 else None
                continue
            problem = error_for(answer.error_code, about=f"{key.topic}-{key.partition}")
            if not is_retriable(problem):
                raise problem
            cluster.mark_stale(key.topic)
    asked_for = {TopicPartition(name, each.partition_index) for name, asked in topics.items() for each in asked}
    if problem is None and not asked_for <= found.keys():
        raise ProtocolError(f"{address} did not answer for {sorted(asked_for - found.keys())}")
    return problem
