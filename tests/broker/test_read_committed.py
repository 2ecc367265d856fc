"""What consumers are given of transactions: through Fetch, ListOffsets and DescribeProducers."""

from __future__ import annotations

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.stage import Sent, Stage, fetch_topic
from tests.broker.transactional_producer import (
    READ_COMMITTED,
    TransactionalProducer,
    committed_data,
    committed_values,
    end_offset,
)
from tests.storage.workbench import NOW_MS, batch

LATEST = -1
MAX_TIMESTAMP = -3


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    stage.create("t", 2)
    return TransactionalProducer(stage).init()


def poll(stage: Stage, *, offset: int = 0, isolation_level: int = READ_COMMITTED) -> Sent:
    """A fetch that waits for a byte, for ten seconds."""
    request = FetchRequest(
        isolation_level=isolation_level,
        min_bytes=1,
        max_wait_ms=10_000,
        topics=[fetch_topic("t", 0, offset=offset)],
    )
    sent = stage.send(request, 12)
    stage.scheduler.run()
    return sent


def found(stage: Stage, timestamp_ms: int, *, isolation_level: int = READ_COMMITTED) -> int:
    request = ListOffsetsRequest(
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=timestamp_ms)])],
    )
    return int(stage.call(request).topics[0].partitions[0].offset)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_fetch_of_what_is_not_decided_waits_for_the_end(producer: TransactionalProducer, *, committed: bool) -> None:
    producer.produce(b"a")
    waiting = poll(producer.stage)
    producer.produce(b"b")
    producer.stage.scheduler.advance(1_000)
    assert not waiting.is_answered
    producer.end(committed=committed)
    data = waiting.response.responses[0].partitions[0]
    assert (data.error_code, data.last_stable_offset) == (ErrorCode.NONE, 3)
    assert len(data.aborted_transactions or ()) == (0 if committed else 1)


def test_a_fetch_that_reads_all_does_not_wait(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    data = poll(producer.stage, isolation_level=0).response.responses[0].partitions[0]
    assert bytes(data.records)
    assert (data.high_watermark, data.last_stable_offset, data.aborted_transactions) == (1, 0, None)


def test_a_fetch_that_waits_is_answered_when_a_transaction_times_out(producer: TransactionalProducer) -> None:
    producer.init(timeout_ms=2_000)
    producer.produce(b"a")
    waiting = poll(producer.stage)
    producer.stage.scheduler.advance(3_000)
    assert waiting.is_answered


def test_transactions_that_overlap_are_told_in_the_order_of_their_beginnings(stage: Stage) -> None:
    stage.create("t")
    first, second, third = (TransactionalProducer(stage, name).init() for name in ("a", "b", "c"))
    first.produce(b"1")
    second.produce(b"2")
    third.produce(b"3")
    first.produce(b"4")
    second.end(committed=False)
    assert end_offset(stage) == 0
    third.end()
    first.end(committed=False)
    told = [(each.producer_id, each.first_offset) for each in committed_data(stage).aborted_transactions or ()]
    assert told == [(first.producer_id, 0), (second.producer_id, 1)]
    assert committed_values(stage) == [b"3"]


def test_the_end_for_those_who_read_committed_is_where_the_first_open_transaction_begins(
    producer: TransactionalProducer,
) -> None:
    stage = producer.stage
    stage.produce("t", 0, batch(b"plain"))
    producer.produce(b"a")
    assert found(stage, LATEST) == 1
    assert found(stage, LATEST, isolation_level=0) == 2
    producer.end()
    assert found(stage, LATEST) == found(stage, LATEST, isolation_level=0) == 3


def test_a_time_within_an_open_transaction_is_found_only_by_those_who_read_all(
    producer: TransactionalProducer,
) -> None:
    stage = producer.stage
    stage.produce("t", 0, batch(b"plain", timestamp_ms=NOW_MS - 1_000))
    producer.produce(b"a")
    assert found(stage, NOW_MS - 500) == -1
    assert found(stage, NOW_MS - 500, isolation_level=0) == 1
    assert found(stage, MAX_TIMESTAMP) == 0
    assert found(stage, NOW_MS - 2_000) == 0
    producer.end()
    assert found(stage, NOW_MS - 500) == 1


def test_an_open_transaction_is_shown_with_its_producer(producer: TransactionalProducer) -> None:
    stage = producer.stage
    stage.produce("t", 0, batch(b"plain"))
    producer.produce(b"a")
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])

    def shown() -> tuple[int, int, int, int]:
        (state,) = stage.call(request).topics[0].partitions[0].active_producers
        return state.producer_id, state.producer_epoch, state.coordinator_epoch, state.current_txn_start_offset

    assert shown() == (producer.producer_id, 0, -1, 1)
    producer.end()
    assert shown() == (producer.producer_id, 1, 0, -1)
