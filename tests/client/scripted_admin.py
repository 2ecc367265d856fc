"""The administrative half of the scripted cluster: topics, partitions, configs, record deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.schema import Message

if TYPE_CHECKING:
    from tests.client.scripted_broker import ScriptedCluster

DEFAULTS = {"retention.ms": "604800000", "cleanup.policy": "delete"}
DEFAULT_PARTITIONS = 2


def answer_admin(cluster: ScriptedCluster, node: int, message: Message) -> Message:
    """The response to an administrative request."""
    if isinstance(message, CreateTopicsRequest):
        return _create(cluster, node, message)
    if isinstance(message, DeleteTopicsRequest):
        return _delete(cluster, message)
    if isinstance(message, CreatePartitionsRequest):
        return _grow(cluster, message)
    if isinstance(message, DescribeConfigsRequest):
        return _describe_configs(cluster, message)
    if isinstance(message, IncrementalAlterConfigsRequest):
        return _alter_configs(cluster, message)
    if isinstance(message, DeleteRecordsRequest):
        return _delete_records(cluster, node, message)
    assert isinstance(message, DescribeClusterRequest), f"{type(message).__name__} is not in the script"
    brokers = [
        DescribeClusterBroker(broker_id=each, host=address.host, port=address.port)
        for each, address in cluster.nodes.items()
    ]
    return DescribeClusterResponse(cluster_id="scripted", controller_id=cluster.controller, brokers=brokers)


def _create(cluster: ScriptedCluster, node: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
    results = []
    for topic in request.topics:
        code = ErrorCode.NONE
        if node != cluster.controller:
            code = ErrorCode.NOT_CONTROLLER
        elif topic.name in cluster.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
        elif topic.replication_factor > len(cluster.nodes):
            code = ErrorCode.INVALID_REPLICATION_FACTOR
        else:
            count = DEFAULT_PARTITIONS if topic.num_partitions == -1 else topic.num_partitions
            made = cluster.create(topic.name, count)
            made.configs = {each.name: each.value or "" for each in topic.configs}
        results.append(CreatableTopicResult(name=topic.name, error_code=code, error_message=None))
    return CreateTopicsResponse(topics=results)


def _delete(cluster: ScriptedCluster, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    results = []
    for name in [*request.topic_names, *(topic.name or "" for topic in request.topics)]:
        gone = cluster.topics.pop(name, None)
        code = ErrorCode.NONE if gone is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        results.append(DeletableTopicResult(name=name, error_code=code))
    return DeleteTopicsResponse(responses=results)


def _grow(cluster: ScriptedCluster, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    from tests.client.scripted_broker import Partition

    results = []
    for asked in request.topics:
        topic = cluster.topics.get(asked.name)
        code = ErrorCode.NONE
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif asked.count <= len(topic.partitions):
            code = ErrorCode.INVALID_PARTITIONS
        else:
            topic.partitions += [Partition() for _ in range(asked.count - len(topic.partitions))]
        results.append(CreatePartitionsTopicResult(name=asked.name, error_code=code))
    return CreatePartitionsResponse(results=results)


def _describe_configs(cluster: ScriptedCluster, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        topic = cluster.topics.get(resource.resource_name)
        if resource.resource_type == 2 and topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(DescribeConfigsResult(error_code=code, resource_type=2))
            continue
        own = {"node.id": resource.resource_name} if topic is None else topic.configs
        entries = [
            DescribeConfigsResourceResult(name=name, value=own.get(name, value), config_source=1 if name in own else 5)
            for name, value in {**DEFAULTS, **own}.items()
        ]
        results.append(
            DescribeConfigsResult(
                resource_type=resource.resource_type, resource_name=resource.resource_name, configs=entries
            )
        )
    return DescribeConfigsResponse(results=results)


def _alter_configs(
    cluster: ScriptedCluster, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    results = []
    for resource in request.resources:
        topic = cluster.topics.get(resource.resource_name)
        code = ErrorCode.NONE
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif any(change.name not in DEFAULTS for change in resource.configs):
            code = ErrorCode.INVALID_CONFIG
        elif not request.validate_only:
            for change in resource.configs:
                if change.config_operation == 1:
                    topic.configs.pop(change.name, None)
                else:
                    topic.configs[change.name] = change.value or ""
        results.append(AlterConfigsResourceResponse(error_code=code, resource_name=resource.resource_name))
    return IncrementalAlterConfigsResponse(responses=results)


def _delete_records(cluster: ScriptedCluster, node: int, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            partition, code = cluster.find(node, topic.name, b"", asked.partition_index)
            if partition is not None and asked.offset > partition.end:
                partition, code = None, ErrorCode.OFFSET_OUT_OF_RANGE
            if partition is not None:
                partition.log_start = max(partition.log_start, partition.end if asked.offset == -1 else asked.offset)
            low = -1 if partition is None else partition.log_start
            results.append(
                DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low, error_code=code)
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(topics=topics)
