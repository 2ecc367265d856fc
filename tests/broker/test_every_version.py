"""A probe of everything that is announced: each version of each API gets a request that must succeed.

Requests and responses go through their bytes, and the content of each answer is checked.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import APIS, PRIVATE_APIS_TAG, ApiKey, is_private
from ottla.protocol.headers import RequestHeader, UnsupportedRequest, read_request_header, request_header
from ottla.protocol.messages import alter_configs as alter
from ottla.protocol.messages import alter_partition_reassignments as reassign
from ottla.protocol.messages import create_partitions as grow
from ottla.protocol.messages import delete_records as deletion
from ottla.protocol.messages import describe_configs as configs
from ottla.protocol.messages import describe_log_dirs as log_dirs
from ottla.protocol.messages import describe_producers as producers
from ottla.protocol.messages import describe_quorum as quorum
from ottla.protocol.messages import describe_topic_partitions as pages
from ottla.protocol.messages import elect_leaders as elections
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages import list_offsets as offsets
from ottla.protocol.messages import offset_for_leader_epoch as epochs
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import NO_UUID
from ottla.records.reader import read_batch
from tests.broker.group_probes import GROUP_PROBES
from tests.broker.probing import NODE, PARTITIONS, PRODUCER, TOPIC, Probe, Scene, scene
from tests.broker.stage import CALLER, DATA, Stage, fetch_topic, produce_request
from tests.broker.transaction_probes import TRANSACTION_PROBES
from tests.storage.workbench import NOW_MS, batch, sequenced


def check_produced(found: Scene, response: Any) -> None:
    answer = response.responses[0].partition_responses[0]
    assert (answer.index, answer.error_code, answer.base_offset) == (0, ErrorCode.NONE, 3)
    assert found.stage.values(TOPIC) == [b"77/0", b"77/1", b"77/2", b"new"]


def check_fetched(found: Scene, response: Any) -> None:
    topic = response.responses[0]
    data = topic.partitions[0]
    assert (topic.topic or topic.topic_id) == (TOPIC if found.version < 13 else found.topic_id.bytes)
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (ErrorCode.NONE, 3, 3)
    assert [record.value for record in read_batch(bytes(data.records))] == [b"77/0", b"77/1", b"77/2"]
    assert (response.session_id > 0) == (found.version >= 7)


def check_offsets(found: Scene, response: Any) -> None:
    latest, earliest, timed = (topic.partitions[0] for topic in response.topics)
    assert (latest.error_code, latest.offset) == (ErrorCode.NONE, 3)
    assert (earliest.error_code, earliest.offset) == (ErrorCode.NONE, 0)
    assert (timed.error_code, timed.offset, timed.timestamp) == (ErrorCode.NONE, 0, NOW_MS)
    assert timed.leader_epoch == (0 if found.version >= 4 else -1)


def check_metadata(found: Scene, response: Any) -> None:
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [
        (NODE, "broker.example", 9092)
    ]
    topic = response.topics[0]
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, TOPIC)
    assert [partition.partition_index for partition in topic.partitions] == list(range(PARTITIONS))
    assert {partition.leader_id for partition in topic.partitions} == {NODE}
    assert topic.topic_id == (found.topic_id.bytes if found.version >= 10 else NO_UUID)
    assert response.controller_id == (NODE if found.version >= 1 else -1)
    assert (response.cluster_id is not None) == (found.version >= 2)


def check_announced(found: Scene, response: Any) -> None:
    told = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    public = [key for key in HANDLERS if not is_private(key)]
    assert told == {key: (APIS[key].first_announced, APIS[key].versions.last) for key in public}
    assert response.finalized_features_epoch == (0 if found.version >= 3 else -1)
    finalized = [(each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features]
    assert finalized == ([("transaction.version", 2, 2)] if found.version >= 3 else [])
    supported = [(each.name, each.min_version, each.max_version) for each in response.supported_features]
    assert supported == ([("transaction.version", 0, 2)] if found.version >= 4 else [])


def check_created(found: Scene, response: Any) -> None:
    result = response.topics[0]
    assert (result.name, result.error_code) == ("new", ErrorCode.NONE)
    image = found.stage.broker.services.catalog.image
    assert len(image.topic("new").partitions) == 4
    assert image.configs_of_topic("new") == {"cleanup.policy": "compact"}
    if found.version >= 5:
        assert (result.num_partitions, result.replication_factor) == (4, 1)
        told = {config.name: config.value for config in result.configs}
        assert (told["cleanup.policy"], told["retention.ms"]) == ("compact", "604800000")
    if found.version >= 7:
        assert result.topic_id == image.topic("new").topic_id.bytes


def delete_request(found: Scene) -> DeleteTopicsRequest:
    if found.version >= 6:
        return DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=found.topic_id.bytes)], timeout_ms=1_000)
    return DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1_000)


def check_deleted(found: Scene, response: Any) -> None:
    assert [(result.name, result.error_code) for result in response.responses] == [(TOPIC, ErrorCode.NONE)]
    assert TOPIC not in found.stage.broker.services.catalog.image.topics
    assert not [path for path in found.stage.disk.files() if path.startswith(f"{DATA}/{TOPIC}-")]


def check_records_deleted(found: Scene, response: Any) -> None:
    result = response.topics[0].partitions[0]
    assert (response.topics[0].name, result.error_code, result.low_watermark) == (TOPIC, ErrorCode.NONE, 2)
    assert found.stage.values(TOPIC, offset=2) == [b"77/2"]


def check_producer_id(found: Scene, response: Any) -> None:
    assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
    assert 0 <= response.producer_id < found.stage.broker.services.catalog.image.next_producer_id


def check_epoch_end(found: Scene, response: Any) -> None:
    result = response.topics[0].partitions[0]
    assert (response.topics[0].topic, result.error_code) == (TOPIC, ErrorCode.NONE)
    assert (result.leader_epoch, result.end_offset) == (0, 3)


def check_configs(found: Scene, response: Any) -> None:
    result = response.results[0]
    assert (result.error_code, result.resource_name) == (ErrorCode.NONE, TOPIC)
    config = {config.name: config for config in result.configs}["retention.ms"]
    assert (config.value, config.config_source, config.read_only) == ("86400000", 1, False)
    assert [(each.name, each.source) for each in config.synonyms] == [("retention.ms", 1), ("log.retention.ms", 5)]
    assert config.config_type == (5 if found.version >= 3 else 0)
    if found.version >= 3:
        assert config.documentation


def check_altered(found: Scene, response: Any) -> None:
    result = response.responses[0]
    assert (result.error_code, result.resource_type, result.resource_name) == (ErrorCode.NONE, 2, TOPIC)
    configs = found.stage.broker.services.catalog.image.configs_of_topic(TOPIC)
    assert configs["max.message.bytes"] == "5000"


def check_log_dirs(found: Scene, response: Any) -> None:
    result = response.results[0]
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, DATA)
    sizes = {partition.partition_index: partition.partition_size for partition in result.topics[0].partitions}
    assert sizes == {0: len(sequenced(PRODUCER, 0, count=3)), 1: 0}


def check_grown(found: Scene, response: Any) -> None:
    assert [(result.name, result.error_code) for result in response.results] == [(TOPIC, ErrorCode.NONE)]
    assert found.stage.produce(TOPIC, 4).base_offset == 0


def check_elected(found: Scene, response: Any) -> None:
    result = response.replica_election_results[0]
    assert (result.topic, response.error_code) == (TOPIC, ErrorCode.NONE)
    told = [(each.partition_id, each.error_code) for each in result.partition_result]
    assert told == [(0, ErrorCode.ELECTION_NOT_NEEDED), (1, ErrorCode.ELECTION_NOT_NEEDED)]


def check_reassigned(found: Scene, response: Any) -> None:
    assert response.error_code == ErrorCode.NONE
    told = [(each.partition_index, each.error_code) for each in response.responses[0].partitions]
    assert told == [(0, ErrorCode.NONE)]


def check_no_moves(found: Scene, response: Any) -> None:
    assert (response.error_code, response.topics) == (ErrorCode.NONE, ())


def check_quorum(found: Scene, response: Any) -> None:
    assert response.error_code == ErrorCode.NONE
    data = response.topics[0].partitions[0]
    assert (data.error_code, data.leader_id) == (ErrorCode.NONE, NODE)
    assert [voter.replica_id for voter in data.current_voters] == [NODE]
    assert data.current_voters[0].log_end_offset == data.high_watermark > 0
    assert [node.node_id for node in response.nodes] == ([NODE] if found.version >= 2 else [])


def check_cluster(found: Scene, response: Any) -> None:
    assert (response.error_code, response.controller_id) == (ErrorCode.NONE, NODE)
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [(NODE, "broker.example", 9092)]
    assert response.cluster_id == found.stage.broker.services.catalog.image.cluster_id


def check_producers(found: Scene, response: Any) -> None:
    partition = response.topics[0].partitions[0]
    assert (response.topics[0].name, partition.error_code) == (TOPIC, ErrorCode.NONE)
    told = [(each.producer_id, each.producer_epoch, each.last_sequence) for each in partition.active_producers]
    assert told == [(PRODUCER, 0, 2)]


def check_pages(found: Scene, response: Any) -> None:
    topic = response.topics[0]
    assert (topic.name, topic.error_code, topic.topic_id) == (TOPIC, ErrorCode.NONE, found.topic_id.bytes)
    assert [(each.partition_index, each.leader_id) for each in topic.partitions] == [(0, NODE), (1, NODE)]


def offsets_topic(timestamp: int) -> offsets.ListOffsetsTopic:
    return offsets.ListOffsetsTopic(name=TOPIC, partitions=[offsets.ListOffsetsPartition(timestamp=timestamp)])


PROBES: dict[ApiKey, Probe] = {
    ApiKey.PRODUCE: Probe(
        lambda found: produce_request(TOPIC, 0, batch(b"new"), topic_id=found.named(since=13)["topic_id"]),
        check_produced,
    ),
    ApiKey.FETCH: Probe(
        lambda found: FetchRequest(
            session_epoch=0 if found.version >= 7 else -1,
            topics=[fetch_topic(TOPIC, 0, topic_id=found.named(since=13)["topic_id"])],
        ),
        check_fetched,
    ),
    ApiKey.LIST_OFFSETS: Probe(
        lambda found: offsets.ListOffsetsRequest(
            replica_id=-1, topics=[offsets_topic(-1), offsets_topic(-2), offsets_topic(NOW_MS)]
        ),
        check_offsets,
    ),
    ApiKey.METADATA: Probe(lambda found: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), check_metadata),
    ApiKey.API_VERSIONS: Probe(
        lambda found: ApiVersionsRequest(client_software_name="probe", client_software_version="1"), check_announced
    ),
    ApiKey.CREATE_TOPICS: Probe(
        lambda found: CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="new",
                    num_partitions=4,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
                )
            ]
        ),
        check_created,
    ),
    ApiKey.DELETE_TOPICS: Probe(delete_request, check_deleted),
    ApiKey.DELETE_RECORDS: Probe(
        lambda found: deletion.DeleteRecordsRequest(
            topics=[deletion.DeleteRecordsTopic(name=TOPIC, partitions=[deletion.DeleteRecordsPartition(offset=2)])],
            timeout_ms=1_000,
        ),
        check_records_deleted,
    ),
    ApiKey.INIT_PRODUCER_ID: Probe(lambda found: InitProducerIdRequest(transactional_id=None), check_producer_id),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Probe(
        lambda found: epochs.OffsetForLeaderEpochRequest(
            topics=[epochs.OffsetForLeaderTopic(topic=TOPIC, partitions=[epochs.OffsetForLeaderPartition()])]
        ),
        check_epoch_end,
    ),
    ApiKey.DESCRIBE_CONFIGS: Probe(
        lambda found: configs.DescribeConfigsRequest(
            resources=[configs.DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)],
            include_synonyms=True,
            include_documentation=found.version >= 3,
        ),
        check_configs,
    ),
    ApiKey.ALTER_CONFIGS: Probe(
        lambda found: alter.AlterConfigsRequest(
            resources=[
                alter.AlterConfigsResource(
                    resource_type=2,
                    resource_name=TOPIC,
                    configs=[alter.AlterableConfig(name="max.message.bytes", value="5000")],
                )
            ]
        ),
        check_altered,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Probe(
        lambda found: incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(
                    resource_type=2,
                    resource_name=TOPIC,
                    configs=[incremental.AlterableConfig(name="max.message.bytes", value="5000")],
                )
            ]
        ),
        check_altered,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Probe(lambda found: log_dirs.DescribeLogDirsRequest(topics=None), check_log_dirs),
    ApiKey.CREATE_PARTITIONS: Probe(
        lambda found: grow.CreatePartitionsRequest(
            topics=[grow.CreatePartitionsTopic(name=TOPIC, count=5, assignments=None)], timeout_ms=1_000
        ),
        check_grown,
    ),
    ApiKey.ELECT_LEADERS: Probe(
        lambda found: elections.ElectLeadersRequest(
            topic_partitions=[elections.TopicPartitions(topic=TOPIC, partitions=[0, 1])]
        ),
        check_elected,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Probe(
        lambda found: reassign.AlterPartitionReassignmentsRequest(
            topics=[
                reassign.ReassignableTopic(name=TOPIC, partitions=[reassign.ReassignablePartition(replicas=[NODE])])
            ]
        ),
        check_reassigned,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Probe(lambda found: ListPartitionReassignmentsRequest(), check_no_moves),
    ApiKey.DESCRIBE_QUORUM: Probe(
        lambda found: quorum.DescribeQuorumRequest(
            topics=[
                quorum.RequestTopicData(topic_name="__cluster_metadata", partitions=[quorum.RequestPartitionData()])
            ]
        ),
        check_quorum,
    ),
    ApiKey.DESCRIBE_CLUSTER: Probe(lambda found: DescribeClusterRequest(), check_cluster),
    ApiKey.DESCRIBE_PRODUCERS: Probe(
        lambda found: producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name=TOPIC, partition_indexes=[0])]
        ),
        check_producers,
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Probe(
        lambda found: pages.DescribeTopicPartitionsRequest(topics=[pages.TopicRequest(name=TOPIC)]), check_pages
    ),
    **GROUP_PROBES,
    **TRANSACTION_PROBES,
}

EVERY_VERSION = [(key, version) for key in sorted(HANDLERS) for version in APIS[key].versions]


def test_every_api_of_the_table_is_probed() -> None:
    assert PROBES.keys() == HANDLERS.keys()


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION, ids=lambda value: getattr(value, "name", f"v{value}"))
def test_every_announced_version_is_served(key: ApiKey, version: int) -> None:
    found = scene(version)
    probe = PROBES[key]
    probe.check(found, found.stage.call(probe.request(found), version))


@pytest.mark.parametrize("version", [3, 4])
def test_apis_of_our_own_are_announced_to_whoever_asks_for_them(version: int) -> None:
    request = ApiVersionsRequest(unknown_tags=((PRIVATE_APIS_TAG, b""),))
    told = {row.api_key for row in Stage().call(request, version).api_keys}
    assert told == {int(key) for key in HANDLERS}


def test_another_tag_does_not_ask_for_them() -> None:
    request = ApiVersionsRequest(unknown_tags=((PRIVATE_APIS_TAG + 1, b""), (0, b"x")))
    told = {row.api_key for row in Stage().call(request, 4).api_keys}
    assert told == {int(key) for key in HANDLERS if not is_private(key)}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_versions_of_produce_that_are_announced_for_old_clients_are_refused(version: int) -> None:
    frame = request_header(RequestHeader(ApiKey.PRODUCE, version, 1, None))
    with pytest.raises(UnsupportedRequest):
        read_request_header(frame)


@pytest.mark.parametrize("key", sorted(set(APIS) - set(HANDLERS)), ids=lambda key: key.name)
def test_an_api_that_is_not_announced_is_refused_and_nothing_else_happens(key: ApiKey) -> None:
    stage = Stage()
    with pytest.raises(UnsupportedRequest):
        stage.broker.submit(RequestHeader(key, APIS[key].versions.first, 1, None), ApiVersionsRequest(), CALLER)
