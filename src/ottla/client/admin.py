"""The admin: topics, configs, offsets and the cluster itself; `group_admin` and `transaction_admin` have the rest.

Coroutines that await the transport alone, so the same code serves both faces; see `transport`. What may
pass (another controller, a broker that is away) is tried again for one request's time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.errors import TopicNotFound
from ottla.client.errors_by_code import ERRORS, error_for
from ottla.client.group_admin import AsyncGroupAdmin
from ottla.client.offsets import OffsetFound, list_offsets, topic_with
from ottla.client.settings import Address, Isolation, check_isolation
from ottla.client.topology import TopicView
from ottla.client.transaction_admin import AsyncTransactionAdmin
from ottla.client.values import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, OttlaError, TopicExists
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.schema import Message

R = TypeVar("R", bound=Message)

USE_DEFAULT = -1
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
SET_CONFIG = 0
DELETE_CONFIG = 1
NAMES_BY_STATE_SINCE = 6
"""From this version on DeleteTopics has its names in another field."""
DEFAULT_SOURCE = 5


class PartitionDescription(NamedTuple):
    """Who holds one partition."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


class ConfigEntry(NamedTuple):
    """One config and where its value comes from."""

    name: str
    value: str | None
    is_default: bool
    read_only: bool
    sensitive: bool
    documentation: str | None


class BrokerDescription(NamedTuple):
    """A broker of the cluster."""

    node_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as it is now."""

    cluster_id: str
    controller: int
    brokers: tuple[BrokerDescription, ...]


class AsyncAdmin(AsyncGroupAdmin, AsyncTransactionAdmin):
    """Changes and describes what a cluster holds. Any number of tasks may share one."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._closed = False

    # --- topics --------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Create a topic and wait until it can be used; None means the broker's default."""
        if partitions is not None and partitions < 1:
            # On the wire -1 means the default, so a wrong number could come out as something else.
            raise ERRORS[ErrorCode.INVALID_PARTITIONS](f"topic {name!r}: {partitions} partitions; one is the least")
        if replication_factor is not None and replication_factor < 1:
            raise ERRORS[ErrorCode.INVALID_REPLICATION_FACTOR](f"topic {name!r}: {replication_factor} copies")
        topic = CreatableTopic(
            name=name,
            num_partitions=USE_DEFAULT if partitions is None else partitions,
            replication_factor=USE_DEFAULT if replication_factor is None else replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms)

        async def attempt() -> None:
            response = await self._cluster.ask_controller(
                ApiKey.CREATE_TOPICS, request, CreateTopicsResponse, timeout_ms=self._timeout_ms
            )
            for result in response.topics:
                _raise_for(result.error_code, f"topic {name!r}", result.error_message)

        await self._insist(attempt)
        return await self._usable(name)

    async def get_or_create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """The topic as it is, or a new one as described."""
        found = await self.describe_topic(name)
        if found is not None:
            return found
        try:
            return await self.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        except TopicExists:
            # Somebody else was faster.
            return await self._usable(name)

    async def _usable(self, name: str) -> TopicDescription:
        """A topic that has just been created, once every partition has a leader."""
        deadline_ms = self._deadline_ms()
        for attempt in itertools.count(1):
            self._cluster.mark_stale(name)
            view = await self._cluster.topic(name, wait_ms=self._timeout_ms, deadline_ms=deadline_ms)
            delay_ms = self._cluster.settings.backoff_ms(attempt)
            if len(view.available) == len(view.partitions) or self._cluster.ticks.now_ms() + delay_ms >= deadline_ms:
                return _description(view)
            await self._cluster.transport.sleep(delay_ms)
        raise AssertionError("unreachable")

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        by_state = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=self._timeout_ms)
        by_name = DeleteTopicsRequest(topic_names=[name], timeout_ms=self._timeout_ms)

        async def attempt() -> None:
            await self._cluster.refresh(())
            address = self._cluster.topology.nodes.get(self._cluster.topology.controller)
            address = address or self._cluster.addresses()[0]
            await self._cluster.meet(address)
            is_new = self._cluster.version(address, ApiKey.DELETE_TOPICS) >= NAMES_BY_STATE_SINCE
            response = await self._cluster.ask(
                address, ApiKey.DELETE_TOPICS, by_state if is_new else by_name, DeleteTopicsResponse
            )
            for result in response.responses:
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise TopicNotFound(name)
                _raise_for(result.error_code, f"topic {name!r}", result.error_message)

        await self._insist(attempt)
        self._cluster.topology.forget(name)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics."""
        self._cluster.topology.topics.clear()
        await self._insist(lambda: self._cluster.refresh(None))
        return sorted(view.name for view in self._cluster.topology.topics.values() if internal or not view.is_internal)

    async def describe_topic(self, name: str) -> TopicDescription | None:
        """A topic's partitions and who holds them; None when there is no such topic."""
        self._cluster.mark_stale(name)
        try:
            return _description(await self._cluster.topic(name))
        except TopicNotFound:
            return None

    async def partition_count(self, name: str) -> int | None:
        """How many partitions a topic has; None when there is no such topic."""
        found = await self.describe_topic(name)
        return None if found is None else found.partition_count

    async def add_partitions(self, name: str, *, new_total: int) -> None:
        """Bring a topic to this many partitions, which must be more than it has."""
        topic = CreatePartitionsTopic(name=name, count=new_total, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms)

        async def attempt() -> None:
            response = await self._cluster.ask_controller(
                ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, timeout_ms=self._timeout_ms
            )
            for result in response.results:
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise TopicNotFound(name)
                _raise_for(result.error_code, f"topic {name!r}", result.error_message)

        await self._insist(attempt)
        deadline_ms = self._deadline_ms()
        for tries in itertools.count(1):
            # The broker that we ask next may hear of it later than the one that did it.
            if (await self._usable(name)).partition_count >= new_total:
                return
            delay_ms = self._cluster.settings.backoff_ms(tries)
            if self._cluster.ticks.now_ms() + delay_ms >= deadline_ms:
                return
            await self._cluster.transport.sleep(delay_ms)

    # --- configs -------------------------------------------------------------------------------------

    async def describe_configs(self, *, topic: str | None = None, broker: int | None = None) -> dict[str, ConfigEntry]:
        """Every config of a topic or a broker."""
        kind, name = _resource(topic, broker)
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource])
        found: dict[str, ConfigEntry] = {}

        async def attempt() -> None:
            response = await self._ask_holder(broker, ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
            for result in response.results:
                _raise_for_resource(result.error_code, topic, f"{_KINDS[kind]} {name!r}", result.error_message)
                found.update({each.name: _entry(each) for each in result.configs})

        await self._insist(attempt)
        return found

    async def alter_configs(
        self,
        *,
        topic: str | None = None,
        broker: int | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the word for it
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some configs of a topic or a broker and bring others back to their defaults; the rest stays."""
        kind, name = _resource(topic, broker)
        changes = [
            AlterableConfig(name=key, config_operation=SET_CONFIG, value=value) for key, value in (set or {}).items()
        ]
        changes += [AlterableConfig(name=key, config_operation=DELETE_CONFIG, value=None) for key in delete]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)

        async def attempt() -> None:
            response = await self._ask_holder(
                broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse
            )
            for result in response.responses:
                _raise_for_resource(result.error_code, topic, f"{_KINDS[kind]} {name!r}", result.error_message)

        await self._insist(attempt)

    async def _ask_holder(
        self,
        broker: int | None,
        api_key: ApiKey,
        request: DescribeConfigsRequest | IncrementalAlterConfigsRequest,
        expected: type[R],
    ) -> R:
        """A broker answers for its own configs; for topics any does."""
        if broker is None:
            return await self._cluster.ask_any(api_key, request, expected)
        if broker not in self._cluster.topology.nodes:
            await self._cluster.refresh(())
        address = self._cluster.topology.nodes.get(broker)
        if address is None:
            raise InvalidRequest(f"there is no broker {broker}; there are {sorted(self._cluster.topology.nodes)}")
        return await self._cluster.ask(address, api_key, request, expected)

    # --- offsets -------------------------------------------------------------------------------------

    async def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Forget what is older than these offsets (-1: all there is); returns where each partition starts now."""
        started: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            by_leader: dict[Address, dict[str, list[DeleteRecordsPartition]]] = {}
            for (topic, partition), offset in before.items():
                key = TopicPartition(topic, partition)
                if key in started:
                    continue
                view = await topic_with(self._cluster, key, self._deadline_ms())
                address = self._cluster.topology.leader_address(view, partition)
                if address is None:
                    self._cluster.mark_stale(topic)
                    raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, about=f"{topic}-{partition}")
                asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
                by_leader.setdefault(address, {}).setdefault(topic, []).append(asked)
            for address, topics in by_leader.items():
                await self._delete_on(address, topics, started)

        await self._insist(attempt)
        return started

    async def _delete_on(
        self,
        address: Address,
        topics: Mapping[str, Sequence[DeleteRecordsPartition]],
        started: dict[TopicPartition, int],
    ) -> None:
        asked = [DeleteRecordsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
        request = DeleteRecordsRequest(topics=asked, timeout_ms=self._timeout_ms)
        response = await self._cluster.ask(address, ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse)
        problem: OttlaError | None = None
        for topic in response.topics:
            for result in topic.partitions:
                key = TopicPartition(topic.name, result.partition_index)
                if result.error_code == ErrorCode.NONE:
                    started[key] = result.low_watermark
                    continue
                self._cluster.mark_stale(topic.name)
                problem = error_for(result.error_code, about=f"{key.topic}-{key.partition}")
        if problem is not None:
            raise problem

    async def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetFound | None]:
        """Offsets by time in ms or by `OffsetSpec`; None where no record is that young."""
        return await list_offsets(
            self._cluster,
            {TopicPartition(topic, partition): int(spec) for (topic, partition), spec in wanted.items()},
            isolation=check_isolation(isolation),
            deadline_ms=self._deadline_ms(),
        )

    # --- the cluster ---------------------------------------------------------------------------------

    async def cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        found: list[DescribeClusterResponse] = []

        async def attempt() -> None:
            response = await self._cluster.ask_any(
                ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), DescribeClusterResponse
            )
            _raise_for(response.error_code, "the cluster", response.error_message)
            found.append(response)

        await self._insist(attempt)
        response = found[-1]
        brokers = [
            BrokerDescription(each.broker_id, Address(each.host, each.port), each.rack) for each in response.brokers
        ]
        return ClusterDescription(response.cluster_id, response.controller_id, tuple(brokers))

    # --- the end -------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """Let go of the connections."""
        self._closed = True
        await self._cluster.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


_KINDS = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker"}


def _resource(topic: str | None, broker: int | None) -> tuple[int, str]:
    if (topic is None) == (broker is None):
        raise InvalidRequest("name either a topic or a broker")
    return (TOPIC_RESOURCE, topic) if topic is not None else (BROKER_RESOURCE, str(broker))


def _raise_for(code: int, about: str, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise error_for(code, about=about, message=message)


def _raise_for_resource(code: int, topic: str | None, about: str, message: str | None) -> None:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is not None:
        raise TopicNotFound(topic)
    _raise_for(code, about, message)


def _entry(told: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        told.name,
        told.value,
        told.config_source == DEFAULT_SOURCE,
        told.read_only,
        told.is_sensitive,
        told.documentation,
    )


def _description(view: TopicView) -> TopicDescription:
    partitions = [
        PartitionDescription(each.partition, each.leader if each.leader >= 0 else None, each.replicas, each.in_sync)
        for each in view.partitions
    ]
    return TopicDescription(view.name, view.topic_id, view.is_internal, tuple(partitions))
