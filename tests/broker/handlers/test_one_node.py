"""The APIs whose answers are simple with one broker: cluster, quorum, elections, moves, disks, producers."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from ottla.broker.deadlines import BUCKET_MS, TIMEOUT_MS_DEFAULT
from ottla.error_codes import ErrorCode
from ottla.protocol.messages import alter_partition_reassignments as moves
from ottla.protocol.messages import describe_log_dirs as log_dirs
from ottla.protocol.messages import describe_producers as producers
from ottla.protocol.messages import describe_quorum as quorum
from ottla.protocol.messages import elect_leaders as elections
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.stage import DATA, Stage
from tests.storage.workbench import batch, sequenced


def break_disk(stage: Stage, topic: str) -> None:
    """Take the topic's first partition offline."""
    stage.disk.fail_next("sync", ".log", errno.EIO)
    assert stage.produce(topic).error_code == ErrorCode.KAFKA_STORAGE_ERROR


# --- DescribeCluster -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_only_brokers_can_be_asked_for_here(stage: Stage, endpoint: int, code: ErrorCode) -> None:
    response = stage.call(DescribeClusterRequest(endpoint_type=endpoint))
    assert (response.error_code, response.endpoint_type, response.brokers) == (code, endpoint, ())


def test_the_clusters_id_stays_over_a_restart(stage: Stage) -> None:
    first = stage.call(DescribeClusterRequest()).cluster_id
    stage.restart()
    assert first
    assert stage.call(DescribeClusterRequest()).cluster_id == first


# --- DescribeQuorum --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "index"), [("other", 0), ("__cluster_metadata", 1)])
def test_only_the_metadata_has_a_quorum(stage: Stage, topic: str, index: int) -> None:
    asked = quorum.RequestTopicData(topic_name=topic, partitions=[quorum.RequestPartitionData(partition_index=index)])
    response = stage.call(quorum.DescribeQuorumRequest(topics=[asked]))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_quorums_end_moves_with_the_metadata(stage: Stage) -> None:
    asked = quorum.RequestTopicData(topic_name="__cluster_metadata", partitions=[quorum.RequestPartitionData()])
    request = quorum.DescribeQuorumRequest(topics=[asked])
    before = stage.call(request).topics[0].partitions[0].high_watermark
    stage.create("a")
    assert stage.call(request).topics[0].partitions[0].high_watermark > before


# --- ElectLeaders ----------------------------------------------------------------------------------------


def elect(stage: Stage, kind: int, asked: dict[str, Sequence[int]] | None) -> dict[tuple[str, int], ErrorCode]:
    topics = None
    if asked is not None:
        topics = [elections.TopicPartitions(topic=name, partitions=each) for name, each in asked.items()]
    response = stage.call(elections.ElectLeadersRequest(election_type=kind, topic_partitions=topics))
    return {
        (result.topic, each.partition_id): ErrorCode(each.error_code)
        for result in response.replica_election_results
        for each in result.partition_result
    }


@pytest.mark.parametrize("kind", [0, 1])
def test_a_partition_that_is_served_needs_no_election(stage: Stage, kind: int) -> None:
    stage.create("a")
    assert elect(stage, kind, {"a": [0, 1], "missing": [0]}) == {
        ("a", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("a", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize(
    ("kind", "code"), [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]
)
def test_asked_for_all_only_partitions_without_a_leader_are_told(stage: Stage, kind: int, code: ErrorCode) -> None:
    stage.create("a")
    stage.create("b")
    assert elect(stage, kind, None) == {}
    break_disk(stage, "b")
    assert elect(stage, kind, None) == {("b", 0): code}


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_kind_of_election_is_refused(stage: Stage, version: int) -> None:
    response = stage.call(elections.ElectLeadersRequest(election_type=5, topic_partitions=None), version)
    assert (response.error_code, response.replica_election_results) == (ErrorCode.INVALID_REQUEST, ())


# --- moving partitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([1], ErrorCode.NONE),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_partition_can_only_stay_where_it_is(stage: Stage, replicas: Sequence[int] | None, code: ErrorCode) -> None:
    stage.create("a")
    wanted = moves.ReassignableTopic(name="a", partitions=[moves.ReassignablePartition(replicas=replicas)])
    response = stage.call(moves.AlterPartitionReassignmentsRequest(topics=[wanted]))
    assert response.error_code == ErrorCode.NONE
    assert response.responses[0].partitions[0].error_code == code


def test_the_number_of_copies_does_not_change_where_it_must_not(stage: Stage) -> None:
    stage.create("a")
    wanted = moves.ReassignableTopic(name="a", partitions=[moves.ReassignablePartition(replicas=[1, 2])])
    request = moves.AlterPartitionReassignmentsRequest(topics=[wanted], allow_replication_factor_change=False)
    response = stage.call(request, 1)
    assert not response.allow_replication_factor_change
    assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_partition_that_is_missing_cannot_be_moved(stage: Stage) -> None:
    wanted = moves.ReassignableTopic(name="a", partitions=[moves.ReassignablePartition(replicas=[1])])
    response = stage.call(moves.AlterPartitionReassignmentsRequest(topics=[wanted]))
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_no_moves_are_listed_whoever_is_asked_about(stage: Stage) -> None:
    stage.create("a")
    asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in ("a", "missing")]
    response = stage.call(ListPartitionReassignmentsRequest(topics=asked))
    assert (response.error_code, response.topics) == (ErrorCode.NONE, ())


# --- DescribeLogDirs ---------------------------------------------------------------------------------------


def sizes(stage: Stage, asked: dict[str, Sequence[int]] | None) -> dict[tuple[str, int], int]:
    topics = None
    if asked is not None:
        topics = [log_dirs.DescribableLogDirTopic(topic=name, partitions=each) for name, each in asked.items()]
    response = stage.call(log_dirs.DescribeLogDirsRequest(topics=topics))
    assert [(result.log_dir, result.error_code) for result in response.results] == [(DATA, ErrorCode.NONE)]
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in response.results[0].topics
        for each in topic.partitions
    }


def test_sizes_are_told_of_open_and_of_closed_partitions(stage: Stage) -> None:
    stage.create("a", 2, segment_bytes="60")
    stage.produce("a", 1, batch(b"1"), batch(b"2"))
    expected = {("a", 0): 0, ("a", 1): len(batch(b"1")) * 2}
    assert sizes(stage, None) == expected
    stage.restart()
    assert not list(stage.broker.services.partitions)
    assert sizes(stage, None) == expected
    assert not list(stage.broker.services.partitions)


def test_partitions_that_are_missing_are_left_out(stage: Stage) -> None:
    stage.create("a", 2)
    assert sizes(stage, {"a": [1, 2, -1], "missing": [0]}) == {("a", 1): 0}


def test_a_directory_that_cannot_be_measured_is_an_error(stage: Stage) -> None:
    stage.create("a")
    stage.restart()
    stage.disk.fail_next("names", "a-0", errno.EIO)
    result = stage.call(log_dirs.DescribeLogDirsRequest(topics=None)).results[0]
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())


def test_the_room_on_the_disk_is_told_as_unknown(stage: Stage) -> None:
    result = stage.call(log_dirs.DescribeLogDirsRequest(topics=None)).results[0]
    assert (result.total_bytes, result.usable_bytes, result.is_cordoned) == (-1, -1, False)


def test_a_disk_that_hangs_does_not_keep_the_answer_for_ever() -> None:
    stage = Stage(held=True)
    sent = stage.send(log_dirs.DescribeLogDirsRequest(topics=None))
    stage.scheduler.advance(TIMEOUT_MS_DEFAULT - 1)
    assert not sent.is_answered
    stage.scheduler.advance(1 + 2 * BUCKET_MS)
    assert [result.error_code for result in sent.response.results] == [ErrorCode.REQUEST_TIMED_OUT]


# --- DescribeProducers -------------------------------------------------------------------------------------


def test_a_partition_tells_the_producers_that_it_remembers(stage: Stage) -> None:
    stage.create("a", 2)
    stage.produce("a", 0, sequenced(7, 0, count=3), sequenced(8, 0, epoch=2))
    asked = producers.TopicRequest(name="a", partition_indexes=[0, 1, 2])
    partitions = stage.call(producers.DescribeProducersRequest(topics=[asked])).topics[0].partitions
    told = [(each.producer_id, each.producer_epoch, each.last_sequence) for each in partitions[0].active_producers]
    assert told == [(7, 0, 2), (8, 2, 0)]
    assert {each.current_txn_start_offset for each in partitions[0].active_producers} == {-1}
    assert partitions[1].active_producers == ()
    assert partitions[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partitions[2].error_message


def test_producers_of_a_partition_that_is_offline_cannot_be_told(stage: Stage) -> None:
    stage.create("a")
    break_disk(stage, "a")
    asked = producers.TopicRequest(name="a", partition_indexes=[0])
    response = stage.call(producers.DescribeProducersRequest(topics=[asked]))
    assert response.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
