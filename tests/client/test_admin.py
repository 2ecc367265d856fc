"""The admin as a program uses it: topics, configs, offsets, the cluster; and answers that are refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.client.admin import TopicDescription
from ottla.client.blocking.admin import Admin
from ottla.client.blocking.client import Client
from ottla.client.errors import NetworkException
from ottla.client.settings import Address
from ottla.client.values import OffsetSpec, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import (
    InvalidConfig,
    InvalidPartitionCount,
    InvalidReplicationFactor,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicExists,
    TopicNotFound,
)
from ottla.protocol.api_keys import ApiKey
from tests.client.conftest import client_of
from tests.client.scripted_broker import ScriptedCluster, lose_answer


@pytest.fixture
def admin(client: Client) -> Admin:
    return client.admin()


def test_a_new_topic_can_be_used_when_the_call_returns(cluster: ScriptedCluster, admin: Admin) -> None:
    made = admin.create_topic("t", partitions=3, configs={"retention.ms": "1000"})

    assert (made.name, made.partition_count) == ("t", 3)
    assert [each.leader for each in made.partitions] == [1, 1, 1]
    assert cluster.topics["t"].configs == {"retention.ms": "1000"}


def test_without_a_count_the_brokers_default_is_used(admin: Admin) -> None:
    assert admin.create_topic("t").partition_count == 2


@pytest.mark.parametrize("count", [0, -1])
def test_less_than_one_partition_is_refused_and_nothing_created(
    cluster: ScriptedCluster, admin: Admin, count: int
) -> None:
    with pytest.raises(InvalidPartitionCount):
        admin.create_topic("t", partitions=count)

    assert cluster.topics == {}


def test_more_copies_than_brokers_are_refused(admin: Admin) -> None:
    with pytest.raises(InvalidReplicationFactor):
        admin.create_topic("t", replication_factor=2)


def test_a_topic_cannot_be_created_twice(admin: Admin) -> None:
    admin.create_topic("t")

    with pytest.raises(TopicExists):
        admin.create_topic("t")


def test_get_or_create_gives_what_is_there(admin: Admin) -> None:
    first = admin.get_or_create_topic("t", partitions=3)

    assert admin.get_or_create_topic("t", partitions=5) == first


def test_racing_creations_give_one_topic(cluster: ScriptedCluster, client: Client) -> None:
    def work(_: int) -> TopicDescription:
        return client.admin().get_or_create_topic("t", partitions=3)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(50)))

    assert {each.topic_id for each in found} == {cluster.topics["t"].topic_id}


def test_creation_goes_to_the_controller_and_finds_a_new_one() -> None:
    cluster = ScriptedCluster(nodes=3)
    admin = client_of(cluster).admin()
    admin.create_topic("a")
    cluster.controller = 3

    admin.create_topic("b")

    assert sorted(cluster.topics) == ["a", "b"]
    assert [call.address for call in cluster.calls if call.api_key is ApiKey.CREATE_TOPICS][-1] == cluster.nodes[3]


def test_a_creation_whose_answer_was_lost_is_not_repeated(cluster: ScriptedCluster, admin: Admin) -> None:
    """It may have worked; a repeat would say that the topic exists."""
    cluster.fault(ApiKey.CREATE_TOPICS, lose_answer)

    with pytest.raises(NetworkException):
        admin.create_topic("t")

    assert cluster.count(ApiKey.CREATE_TOPICS) == 1


def test_topics_are_listed_without_the_internal_ones(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("b")
    cluster.create("a")
    cluster.create("__offsets").is_internal = True

    assert admin.list_topics() == ["a", "b"]
    assert admin.list_topics(internal=True) == ["__offsets", "a", "b"]


def test_a_topic_is_described_and_an_unknown_one_is_none(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t", 4)

    found = admin.describe_topic("t")

    assert found is not None
    assert [each.partition for each in found.partitions] == [0, 1, 2, 3]
    assert admin.partition_count("t") == 4
    assert admin.describe_topic("nowhere") is None
    assert admin.partition_count("nowhere") is None


def test_a_partition_without_a_leader_is_described_as_such(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t", 1).partitions[0].leader = -1

    found = admin.describe_topic("t")

    assert found is not None
    assert found.partitions[0].leader is None


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_in_every_version(cluster: ScriptedCluster, admin: Admin, version: int) -> None:
    cluster.versions[ApiKey.DELETE_TOPICS] = (1, version)
    cluster.create("t")

    admin.delete_topic("t")

    assert cluster.topics == {}
    with pytest.raises(TopicNotFound):
        admin.delete_topic("t")


def test_partitions_are_added(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t", 3)

    admin.add_partitions("t", new_total=6)

    assert admin.partition_count("t") == 6


@pytest.mark.parametrize("new_total", [6, 2])
def test_a_topic_only_ever_grows(cluster: ScriptedCluster, admin: Admin, new_total: int) -> None:
    cluster.create("t", 6)

    with pytest.raises(InvalidPartitionCount):
        admin.add_partitions("t", new_total=new_total)


def test_an_unknown_topic_gets_no_partitions(admin: Admin) -> None:
    with pytest.raises(TopicNotFound):
        admin.add_partitions("nowhere", new_total=2)


def test_a_config_is_set_described_and_taken_back(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t")

    admin.alter_configs(topic="t", set={"retention.ms": "5"})
    changed = admin.describe_configs(topic="t")["retention.ms"]
    admin.alter_configs(topic="t", delete=["retention.ms"])
    again = admin.describe_configs(topic="t")["retention.ms"]

    assert (changed.value, changed.is_default) == ("5", False)
    assert (again.value, again.is_default) == ("604800000", True)


def test_a_config_that_does_not_exist_is_refused(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t")

    with pytest.raises(InvalidConfig):
        admin.alter_configs(topic="t", set={"retention": "5"})


def test_a_change_can_be_tried_without_making_it(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t")

    admin.alter_configs(topic="t", set={"retention.ms": "5"}, validate_only=True)

    assert cluster.topics["t"].configs == {}


def test_the_configs_of_an_unknown_topic_are_refused(admin: Admin) -> None:
    with pytest.raises(TopicNotFound):
        admin.describe_configs(topic="nowhere")


def test_a_broker_is_asked_for_its_own_configs() -> None:
    cluster = ScriptedCluster(nodes=2)
    admin = client_of(cluster).admin()

    assert admin.describe_configs(broker=2)["node.id"].value == "2"
    assert cluster.calls[-1].address == cluster.nodes[2]
    with pytest.raises(InvalidRequest, match="no broker 7"):
        admin.describe_configs(broker=7)


def test_configs_are_those_of_one_thing(admin: Admin) -> None:
    with pytest.raises(InvalidRequest):
        admin.describe_configs(topic="t", broker=1)


def test_records_are_deleted_and_the_new_start_is_told(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t", 2)
    for partition in range(2):
        cluster.write("t", partition, b"0", b"1", b"2")

    started = admin.delete_records({("t", 0): 2, ("t", 1): -1})

    assert started == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 3}


def test_records_that_are_still_to_come_cannot_be_deleted(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t")

    with pytest.raises(OffsetOutOfRange):
        admin.delete_records({("t", 0): 5})


def test_offsets_are_found_by_name_and_by_time(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t", 4)
    cluster.write("t", 0, b"a", b"b", timestamp_ms=1_000)
    cluster.partition("t", 0).log_start = 1
    cluster.write("t", 1, b"c", timestamp_ms=9_000)
    cluster.write("t", 1, b"d", timestamp_ms=5_000)

    first = admin.list_offsets({("t", 0): OffsetSpec.EARLIEST, ("t", 1): OffsetSpec.MAX_TIMESTAMP, ("t", 2): 77})
    second = admin.list_offsets({("t", 0): OffsetSpec.LATEST, ("t", 1): 9_000})

    assert {key.partition: place and place.offset for key, place in first.items()} == {0: 1, 1: 0, 2: None}
    assert {key.partition: place and place.offset for key, place in second.items()} == {0: 2, 1: 0}


def test_offsets_of_a_partition_that_is_not_there_are_refused(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t")

    with pytest.raises(PartitionNotFound):
        admin.list_offsets({("t", 1): OffsetSpec.LATEST})


def test_offsets_are_asked_of_the_leader_that_took_over() -> None:
    cluster = ScriptedCluster(nodes=2)
    admin = client_of(cluster).admin()
    partition = cluster.create("t").partitions[0]
    cluster.write("t", 0, b"x")
    admin.list_offsets({("t", 0): OffsetSpec.LATEST})
    partition.leader, partition.leader_epoch = 2, 1

    found = admin.list_offsets({("t", 0): OffsetSpec.LATEST})[TopicPartition("t", 0)]

    assert found is not None
    assert found.offset == 1


def test_the_cluster_is_described() -> None:
    cluster = ScriptedCluster(nodes=2)

    found = client_of(cluster).admin().cluster()

    assert (found.cluster_id, found.controller) == ("scripted", 1)
    assert [(each.node_id, each.address) for each in found.brokers] == [
        (1, Address("broker-1", 9092)),
        (2, Address("broker-2", 9092)),
    ]


def test_a_partition_without_a_leader_ends_in_an_error_after_a_while(cluster: ScriptedCluster, admin: Admin) -> None:
    cluster.create("t").partitions[0].leader = -1
    started_ms = cluster.clock.now_ms()

    with pytest.raises(Exception, match="LEADER_NOT_AVAILABLE") as caught:
        admin.list_offsets({("t", 0): OffsetSpec.LATEST})

    assert getattr(caught.value, "code", None) is ErrorCode.LEADER_NOT_AVAILABLE
    assert 20_000 < cluster.clock.now_ms() - started_ms <= 30_000
