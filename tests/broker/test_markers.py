"""The markers that end a transaction: each reaches its partition, whatever happens between decision and disk."""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOSPC

import pytest

from ottla.broker.markers import MARKERS_PER_PASS, RETRY_MS_MAX, RETRY_MS_MIN
from ottla.coordinators.runtime import shard_index
from ottla.error_codes import ErrorCode
from ottla.errors import StorageFault
from ottla.metadata.changes import RemoveTopic, encode
from ottla.metadata.store import Commit
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.records.batch import peek
from ottla.records.control import MarkerType, parse_marker
from tests.broker.handlers.group_requests import fetched
from tests.broker.stage import Stage, creation
from tests.broker.transactional_producer import (
    TransactionalProducer,
    committed_values,
    end_offset,
    held_producer,
    markers,
    settle,
)
from tests.storage.workbench import marker

STATE = "__transaction_state"
OFFSETS = "__consumer_offsets"
WHILE_OFFLINE_MS = 5_000
"""Long for a writer of markers, and not long enough for the broker to look whether the disk is back."""
MANY_PARTITIONS = 2 * MARKERS_PER_PASS + 50


def shard_of(name: str) -> int:
    return shard_index(name, 50)


def open_transaction(*partitions: int, topics: tuple[str, ...] = ("t",)) -> TransactionalProducer:
    """A producer that has written to some partitions."""
    stage = Stage()
    for topic in topics:
        stage.create(topic, 3)
    producer = TransactionalProducer(stage).init()
    for topic in topics:
        for partition in partitions:
            assert producer.produce(b"a", topic=topic, partition=partition) == ErrorCode.NONE
    return producer


def take_offline(stage: Stage, topic: str, partition: int = 0) -> None:
    stage.partition(topic, partition).fail(StorageFault(f"/data/{topic}-{partition}", "test"))


def bring_back(stage: Stage) -> None:
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(RETRY_MS_MAX)


def delete(stage: Stage, topic: str) -> None:
    response = stage.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1_000))
    assert response.responses[0].error_code == ErrorCode.NONE


# --- partitions that are not there -------------------------------------------------------------------------


def test_a_commit_is_answered_and_waits_for_a_partition_that_is_offline() -> None:
    producer = open_transaction(0, 1)
    stage = producer.stage
    take_offline(stage, "t", 1)
    assert producer.end() == ErrorCode.NONE
    stage.scheduler.advance(WHILE_OFFLINE_MS)
    assert producer.state().transaction_state == "PrepareCommit"
    assert markers(stage, "t", 0) == [(producer.producer_id, 1, "COMMIT")]
    bring_back(stage)
    assert producer.state().transaction_state == "CompleteCommit"
    assert markers(stage, "t", 1) == [(producer.producer_id, 1, "COMMIT")]
    assert committed_values(stage, "t", 1) == [b"a"]


def test_what_is_written_already_is_not_written_again_while_another_partition_is_waited_for() -> None:
    producer = open_transaction(0, 1)
    take_offline(producer.stage, "t", 1)
    producer.end()
    producer.stage.scheduler.advance(WHILE_OFFLINE_MS)
    bring_back(producer.stage)
    assert len(markers(producer.stage, "t", 0)) == 1


def test_a_partition_that_is_soon_back_is_not_waited_for_long() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    take_offline(stage, "t")
    producer.end()
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(RETRY_MS_MIN - 1)
    assert producer.state().transaction_state == "PrepareCommit"
    stage.scheduler.advance(1)
    assert producer.state().transaction_state == "CompleteCommit"


def test_a_topic_that_is_deleted_is_not_waited_for() -> None:
    producer = open_transaction(0, 1, topics=("t", "u"))
    stage = producer.stage
    delete(stage, "t")
    assert producer.end() == ErrorCode.NONE
    assert producer.state().transaction_state == "CompleteCommit"
    assert committed_values(stage, "u") == [b"a"]


def test_a_topic_that_is_deleted_while_it_is_waited_for_is_given_up() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    take_offline(stage, "t")
    producer.end()
    delete(stage, "t")
    stage.scheduler.advance(RETRY_MS_MAX)
    assert producer.state().transaction_state == "CompleteCommit"


def test_a_partition_beyond_those_of_a_topic_made_anew_is_deleted_too() -> None:
    producer = open_transaction(2)
    stage = producer.stage
    delete(stage, "t")
    stage.create("t", 1)
    producer.end()
    assert producer.state().transaction_state == "CompleteCommit"


def test_a_partition_that_is_being_made_is_not_deleted() -> None:
    producer = held_producer()
    stage = producer.stage
    producer.send(b"a")
    settle(stage)
    stage.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000))
    settle(stage)
    # Made anew, but its directory is not there yet.
    stage.send(creation("t"))
    stage.scheduler.run()
    (making,) = stage.jobs.waiting
    stage.jobs.waiting.clear()
    stage.send(producer.end_request())
    settle(stage)
    stage.scheduler.advance(10 * RETRY_MS_MAX)
    settle(stage)
    assert describe(producer) == "PrepareCommit"
    stage.jobs.waiting.append(making)
    settle(stage)
    stage.scheduler.advance(RETRY_MS_MAX)
    settle(stage)
    assert describe(producer) == "CompleteCommit"
    assert markers(stage) == [(producer.producer_id, 1, "COMMIT")]


# --- groups ------------------------------------------------------------------------------------------------


def test_the_end_of_a_transaction_reaches_the_offsets_of_its_groups() -> None:
    producer = open_transaction(0)
    assert producer.commit_offset(7) == ErrorCode.NONE
    assert fetched(producer.stage, [("t", 0)], group="g")["t", 0] == -1
    producer.end()
    assert fetched(producer.stage, [("t", 0)], group="g")["t", 0] == 7
    assert producer.state().transaction_state == "CompleteCommit"


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    producer = open_transaction(0)
    producer.commit_offset(7)
    producer.end(committed=False)
    assert fetched(producer.stage, [("t", 0)], group="g")["t", 0] == -1
    assert producer.state().transaction_state == "CompleteAbort"


def test_a_group_whose_partition_is_offline_is_waited_for() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    producer.commit_offset(7)
    take_offline(stage, OFFSETS, shard_of("g"))
    assert producer.end() == ErrorCode.NONE
    stage.scheduler.advance(WHILE_OFFLINE_MS)
    assert producer.state().transaction_state == "PrepareCommit"
    stage.scheduler.advance(60_000)
    assert producer.state().transaction_state == "CompleteCommit"
    assert fetched(stage, [("t", 0)], group="g")["t", 0] == 7


def test_groups_that_are_deleted_with_all_their_offsets_are_not_waited_for() -> None:
    producer = open_transaction(0)
    producer.commit_offset(7)
    delete(producer.stage, OFFSETS)
    producer.end()
    assert producer.state().transaction_state == "CompleteCommit"


# --- crashes -----------------------------------------------------------------------------------------------


def describe(producer: TransactionalProducer) -> str:
    """What the coordinator tells of the id, on a disk that is held; what the disk has to do is done."""
    sent = producer.stage.send(DescribeTransactionsRequest(transactional_ids=[producer.transactional_id]))
    settle(producer.stage)
    return str(sent.response.transaction_states[0].transaction_state)


def crash(stage: Stage, before_start: Callable[[Stage], object] = lambda stage: None) -> None:
    """Lose the power, do something to the disk, and begin anew."""
    stage.disk.crash()
    stage.store = stage.store.crash()
    before_start(stage)
    stage.start()


def decided(*, jobs_after: int = 0, committed: bool = True, second: bool = True) -> TransactionalProducer:
    """A transaction in two partitions and a group; its end is acknowledged, and so many jobs of the disk follow."""
    producer = held_producer(second=second)
    stage = producer.stage
    for partition in (0, 1):
        stage.send(producer.add_request(("t", partition)), 3)
        settle(stage)
        producer.send(b"%d" % partition, partition=partition)
        settle(stage)
    stage.send(producer.offsets_request(7), 5)
    settle(stage)
    ending = stage.send(producer.end_request(committed=committed), 5 if second else 3)
    stage.scheduler.run()
    while not ending.is_answered:
        stage.jobs.finish()
    assert ending.response.error_code == ErrorCode.NONE
    for _ in range(jobs_after):
        if stage.jobs.waiting:
            stage.jobs.finish()
    return producer


@pytest.mark.parametrize("second", [True, False], ids=["second", "first"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("jobs_after", range(7))
def test_an_end_that_was_acknowledged_reaches_every_partition_after_a_crash(
    jobs_after: int, *, committed: bool, second: bool
) -> None:
    producer = decided(jobs_after=jobs_after, committed=committed, second=second)
    stage = producer.stage
    crash(stage)
    settle(stage)
    stage.held = False
    stage.restart()
    for partition in (0, 1):
        assert committed_values(stage, "t", partition) == ([b"%d" % partition] if committed else [])
        assert end_offset(stage, "t", partition) == end_offset(stage, "t", partition, committed=False)
        found = {kind for _, _, kind in markers(stage, "t", partition)}
        assert found == {"COMMIT" if committed else "ABORT"}
    assert fetched(stage, [("t", 0)], group="g")["t", 0] == (7 if committed else -1)
    assert producer.state().transaction_state == ("CompleteCommit" if committed else "CompleteAbort")


def test_a_topic_whose_directory_cannot_be_read_at_a_start_is_not_deleted() -> None:
    producer = decided()
    stage = producer.stage
    kept = stage.disk.files()["/data/t-1/partition.metadata"]
    crash(stage, lambda stage: stage.disk.remove("/data/t-1/partition.metadata"))
    settle(stage)
    stage.scheduler.advance(60_000)
    assert "t" in stage.broker.services.catalog.offline
    assert describe(producer) == "PrepareCommit"

    def mend(stage: Stage) -> None:
        file = stage.disk.open("/data/t-1/partition.metadata", create=True)
        file.append([kept])
        file.sync()
        stage.disk.sync_directory("/data/t-1")

    crash(stage, mend)
    settle(stage)
    assert describe(producer) == "CompleteCommit"
    assert [kind for _, _, kind in markers(stage, "t", 1)] == ["COMMIT"]


def test_a_topic_that_the_metadata_has_lost_is_not_deleted_as_long_as_its_directory_is_there() -> None:
    producer = decided()
    stage = producer.stage
    key, _ = encode(RemoveTopic("t"))
    kept = stage.store.load().entries[key].value
    crash(stage, lambda stage: stage.store.commit(Commit(deletes=frozenset([key]))))
    settle(stage)
    stage.scheduler.advance(60_000)
    assert "t" not in stage.broker.services.catalog.image.topics
    assert describe(producer) == "PrepareCommit"
    crash(stage, lambda stage: stage.store.commit(Commit(puts={key: kept})))
    settle(stage)
    assert describe(producer) == "CompleteCommit"
    assert [kind for _, _, kind in markers(stage, "t", 1)] == ["COMMIT"]


def test_after_a_crash_the_producer_cannot_begin_before_the_end_has_reached_every_partition() -> None:
    producer = decided()
    stage = producer.stage
    crash(stage)
    stage.scheduler.run()
    successor = stage.send(producer.init_request())
    stage.scheduler.run()
    assert not successor.is_answered
    settle(stage)
    assert successor.response.error_code == ErrorCode.NONE
    assert [kind for _, _, kind in markers(stage, "t", 1)] == ["COMMIT"]


def test_an_order_that_is_given_again_while_it_is_carried_out_is_one_order() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    other = TransactionalProducer(stage, "id/of the same shard")
    take_offline(stage, "t")
    producer.end()
    # The coordinator loses its partition too, is read back, and orders the same again.
    take_offline(stage, STATE, shard_of("id"))
    assert stage.call(other.init_request()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(60_000)
    assert producer.state().transaction_state == "CompleteCommit"
    assert len(markers(stage)) == 1


def test_a_coordinator_that_is_away_when_all_is_written_learns_of_it_later() -> None:
    producer = decided()
    stage = producer.stage
    stage.scheduler.run()
    # The markers are on their way to the disk when the coordinator's own partition fails.
    take_offline(stage, STATE, shard_of("id"))
    refused = stage.send(TransactionalProducer(stage, "id/of the same shard").init_request())
    settle(stage)
    assert refused.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(markers(stage, "t", 0)) == len(markers(stage, "t", 1)) == 1
    for _ in range(60):
        stage.scheduler.advance(1_000)
        settle(stage)
    assert describe(producer) == "CompleteCommit"


# --- what stands in them -----------------------------------------------------------------------------------


def test_markers_carry_the_epoch_of_the_coordinators_own_leader() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    stage.crash()
    leader_epoch = stage.partition(STATE, shard_of("id")).leader_epoch
    assert leader_epoch == 1
    producer.end()
    (found,) = (parse_marker(each.data) for each in stage.partition("t").log.batches(offset=1))
    assert found is not None
    assert found.coordinator_epoch == leader_epoch


def test_a_marker_of_an_admin_with_an_epoch_of_its_own_does_not_keep_the_coordinators_out() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    written = marker(producer.producer_id, MarkerType.ABORT, epoch=producer.epoch, coordinator_epoch=2**31 - 1)
    stage.partition("t").append(written, peek(written))
    producer.end()
    assert producer.state().transaction_state == "CompleteCommit"


def test_a_partition_that_has_a_newer_marker_needs_none() -> None:
    producer = open_transaction(0, 1)
    stage = producer.stage
    written = marker(producer.producer_id, MarkerType.COMMIT, epoch=producer.epoch + 5)
    stage.partition("t").append(written, peek(written))
    producer.end()
    assert producer.state().transaction_state == "CompleteCommit"
    assert len(markers(stage, "t", 0)) == 1
    assert len(markers(stage, "t", 1)) == 1


def test_a_marker_that_is_written_and_finds_the_disk_full_is_not_written_twice() -> None:
    producer = decided()
    stage = producer.stage

    def fill(stage: Stage) -> None:
        # There is room for the marker, and none for what its sync has to note beside it.
        stage.disk.fail_next("append", "t-0/leader-epoch-checkpoint.tmp", ENOSPC, times=4)

    crash(stage, fill)
    settle(stage)
    assert describe(producer) == "PrepareCommit"
    for _ in range(10):
        stage.scheduler.advance(RETRY_MS_MAX)
        settle(stage)
    assert describe(producer) == "CompleteCommit"
    assert len(markers(stage, "t", 0)) == 1


def test_a_transaction_may_have_more_partitions_than_are_ended_in_one_pass() -> None:
    stage = Stage()
    stage.create("t", MANY_PARTITIONS)
    producer = TransactionalProducer(stage, second=False).init()
    producer.add(*(("t", index) for index in range(MANY_PARTITIONS)))
    assert producer.end() == ErrorCode.NONE
    assert producer.state().transaction_state == "CompleteCommit"
    assert all(len(markers(stage, "t", index)) == 1 for index in range(MANY_PARTITIONS))


def test_a_transaction_without_a_partition_comes_to_its_end_at_once() -> None:
    stage = Stage()
    producer = TransactionalProducer(stage).init()
    assert producer.end(committed=False) == ErrorCode.NONE
    assert producer.state().transaction_state == "CompleteAbort"


def test_a_thousand_empty_ends_that_are_found_at_a_start_are_brought_to_their_end() -> None:
    stage = Stage({"transaction.state.log.num.partitions": "1"})
    producers = [TransactionalProducer(stage, f"id{number}").init() for number in range(1_000)]
    sent = [stage.send(producer.end_request(committed=False), 5) for producer in producers]
    # The decisions are on the disk, and the power goes before anything follows them.
    stage.partition(STATE).log.sync()
    assert not any(each.is_answered for each in sent)
    stage.crash()
    stage.scheduler.advance(100)
    listed = stage.call(ListTransactionsRequest()).transaction_states
    assert {state.transaction_state for state in listed} == {"CompleteAbort"}


# --- stopping ----------------------------------------------------------------------------------------------


def test_a_broker_that_stops_tries_nothing_again() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    take_offline(stage, "t")
    producer.end()
    stage.broker.stop()
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.advance(60_000)
    assert markers(stage) == []


def test_after_a_restart_it_goes_on_with_what_was_decided() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    take_offline(stage, "t")
    producer.end()
    stage.restart()
    assert producer.state().transaction_state == "CompleteCommit"
    assert committed_values(stage) == [b"a"]


def test_a_commit_that_is_asked_for_while_the_broker_stops_is_carried_out() -> None:
    producer = open_transaction(0)
    producer.stage.broker.stop()
    assert producer.end() == ErrorCode.NONE
    assert markers(producer.stage) == [(producer.producer_id, 1, "COMMIT")]


def test_when_the_topic_that_keeps_transactions_is_deleted_what_was_decided_is_carried_out() -> None:
    producer = open_transaction(0)
    stage = producer.stage
    take_offline(stage, "t")
    producer.end()
    # No client may; but its files can be lost.
    stage.broker.services.catalog.delete_topic(STATE, lambda outcome: None)
    stage.scheduler.run()
    bring_back(stage)
    assert markers(stage) == [(producer.producer_id, 1, "COMMIT")]
    assert committed_values(stage) == [b"a"]
