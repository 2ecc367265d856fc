"""Finding brokers, agreeing on versions, keeping metadata fresh."""

from __future__ import annotations

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import NoBrokerReachable, TopicNotFound, UnsupportedVersion
from ottla.client.settings import Address, ClientSettings
from ottla.client.topology import TOPICS_MAX, Topology
from ottla.client.transport import run_now
from ottla.client.values import NO_EPOCH
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.client.scripted_broker import ScriptedCluster, lose_request


def _cluster(model: ScriptedCluster, *bootstrap: Address) -> Cluster:
    return Cluster(model.transport(), bootstrap or [model.nodes[1]], settings=ClientSettings(), ticks=model.clock)


def _told(topic: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(topics=[topic])


def _topic(*, epoch: int, leader: int, topic_id: bytes = bytes(16)) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])


def test_the_highest_version_that_both_know_is_used(cluster: ScriptedCluster) -> None:
    cluster.versions[ApiKey.FETCH] = (4, 99)
    cluster.versions[ApiKey.PRODUCE] = (0, 7)
    ours = _cluster(cluster)
    run_now(ours.meet(cluster.nodes[1]))

    assert ours.version(cluster.nodes[1], ApiKey.FETCH) == 18
    assert ours.version(cluster.nodes[1], ApiKey.PRODUCE) == 7
    assert ours.version(cluster.nodes[1], ApiKey.PRODUCE, version_max=5) == 5


@pytest.mark.parametrize("theirs", [(19, 25), (0, 3)])
def test_no_version_in_common_is_said(cluster: ScriptedCluster, theirs: tuple[int, int]) -> None:
    cluster.versions[ApiKey.FETCH] = theirs
    ours = _cluster(cluster)
    run_now(ours.meet(cluster.nodes[1]))

    with pytest.raises(UnsupportedVersion, match="FETCH"):
        ours.version(cluster.nodes[1], ApiKey.FETCH)


def test_an_api_that_the_broker_lacks_is_said(cluster: ScriptedCluster) -> None:
    del cluster.versions[ApiKey.DELETE_RECORDS]
    ours = _cluster(cluster)
    run_now(ours.meet(cluster.nodes[1]))

    with pytest.raises(UnsupportedVersion, match="does not serve DELETE_RECORDS"):
        ours.version(cluster.nodes[1], ApiKey.DELETE_RECORDS)


@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_an_older_broker_is_asked_again_in_a_version_that_it_has(cluster: ScriptedCluster, last: int) -> None:
    cluster.versions[ApiKey.API_VERSIONS] = (0, last)
    ours = _cluster(cluster)

    run_now(ours.meet(cluster.nodes[1]))

    assert [call.version for call in cluster.calls] == [4, last]


def test_versions_are_asked_for_again_after_the_connection_broke(cluster: ScriptedCluster) -> None:
    ours = _cluster(cluster)
    run_now(ours.refresh(()))
    cluster.fault(ApiKey.METADATA, lose_request)

    with pytest.raises(NoBrokerReachable):
        run_now(ours.refresh(()))
    run_now(ours.refresh(()))

    assert cluster.count(ApiKey.API_VERSIONS) == 2


def test_any_bootstrap_address_that_answers_is_enough(cluster: ScriptedCluster) -> None:
    ours = _cluster(cluster, Address("nowhere", 1), cluster.nodes[1])
    cluster.create("t")

    assert run_now(ours.topic("t")).name == "t"


def test_when_no_address_answers_each_is_named(cluster: ScriptedCluster) -> None:
    ours = _cluster(cluster, Address("nowhere", 1), Address("nobody", 2))

    with pytest.raises(NoBrokerReachable, match=r"nowhere:1.*nobody:2"):
        run_now(ours.refresh(()))


def test_the_bootstrap_address_is_tried_again_when_all_known_brokers_are_gone() -> None:
    model = ScriptedCluster(nodes=2)
    ours = _cluster(model)
    run_now(ours.refresh(()))
    model.nodes = {1: model.nodes[1], 3: Address("broker-3", 9092)}
    ours.topology.nodes = {2: Address("broker-2", 9092)}

    run_now(ours.refresh(()))

    assert set(ours.topology.nodes) == {1, 3}


def test_metadata_is_remembered_until_it_is_old(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    ours = _cluster(cluster)
    for _ in range(3):
        run_now(ours.topic("t"))
    assert cluster.count(ApiKey.METADATA) == 1

    cluster.pass_time(300_001)
    run_now(ours.topic("t"))

    assert cluster.count(ApiKey.METADATA) == 2


def test_a_topic_that_is_being_created_is_waited_for(cluster: ScriptedCluster) -> None:
    cluster.at(500, lambda: cluster.create("t"))

    assert run_now(_cluster(cluster).topic("t", wait_ms=1_000)).name == "t"


def test_a_topic_that_is_not_there_is_not_waited_for_unless_asked(cluster: ScriptedCluster) -> None:
    with pytest.raises(TopicNotFound):
        run_now(_cluster(cluster).topic("t"))

    assert cluster.sleeps_ms == []


def test_a_code_that_nobody_knows_yet_does_not_break_the_metadata() -> None:
    wrong = Topology().absorb(_told(MetadataResponseTopic(name="t", error_code=9_999)), version=12, now_ms=0)

    assert wrong == {"t": ErrorCode.UNKNOWN_SERVER_ERROR}


def test_an_older_leader_epoch_does_not_replace_a_newer_one() -> None:
    topology = Topology()
    topology.absorb(_told(_topic(epoch=5, leader=2)), version=12, now_ms=0)

    topology.absorb(_told(_topic(epoch=4, leader=1)), version=12, now_ms=1)

    assert topology.topics["t"].partitions[0].leader == 2


def test_a_topic_created_anew_begins_with_its_own_epochs() -> None:
    topology = Topology()
    topology.absorb(_told(_topic(epoch=5, leader=2, topic_id=b"1" * 16)), version=12, now_ms=0)

    topology.absorb(_told(_topic(epoch=0, leader=1, topic_id=b"2" * 16)), version=12, now_ms=1)

    assert topology.topics["t"].partitions[0].leader == 1


def test_epochs_of_old_metadata_versions_are_not_trusted() -> None:
    topology = Topology()

    topology.absorb(_told(_topic(epoch=5, leader=2)), version=8, now_ms=0)

    assert topology.topics["t"].partitions[0].leader_epoch == NO_EPOCH


def test_no_more_topics_than_the_limit_are_remembered() -> None:
    topology = Topology()
    partition = MetadataResponsePartition(partition_index=0, leader_id=1)
    topics = [MetadataResponseTopic(name=f"t{n}", partitions=[partition]) for n in range(TOPICS_MAX + 5)]

    topology.absorb(MetadataResponse(topics=topics), version=12, now_ms=0)

    assert len(topology.topics) == TOPICS_MAX
    assert "t0" not in topology.topics
