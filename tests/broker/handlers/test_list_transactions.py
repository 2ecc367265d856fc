"""ListTransactions and DescribeTransactions: what tools are shown of transactional ids."""

from __future__ import annotations

import pytest

from ottla.coordinators.runtime import shard_index
from ottla.error_codes import ErrorCode
from ottla.errors import StorageFault
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.stage import Stage
from tests.broker.transactional_producer import TransactionalProducer

STATE = "__transaction_state"


@pytest.fixture
def several(stage: Stage) -> dict[str, TransactionalProducer]:
    """Producers in different states, in different shards."""
    stage.create("t", 3)
    producers = {name: TransactionalProducer(stage, name).init() for name in ("empty", "open", "done", "undone")}
    for name in ("open", "done", "undone"):
        producers[name].produce(b"a")
    producers["done"].end()
    producers["undone"].end(committed=False)
    return producers


def listed(stage: Stage, **filters: object) -> dict[str, str]:
    response = stage.call(ListTransactionsRequest(**filters))  # type: ignore[arg-type]
    assert response.error_code == ErrorCode.NONE
    return {each.transactional_id: each.transaction_state for each in response.transaction_states}


def test_all_are_listed_where_nothing_is_asked_for(several: dict[str, TransactionalProducer]) -> None:
    assert listed(several["open"].stage) == {
        "empty": "Empty",
        "open": "Ongoing",
        "done": "CompleteCommit",
        "undone": "CompleteAbort",
    }


def test_filters_go_together(several: dict[str, TransactionalProducer]) -> None:
    stage = several["open"].stage
    assert listed(stage, state_filters=["Ongoing", "Empty"]) == {"empty": "Empty", "open": "Ongoing"}
    assert listed(stage, producer_id_filters=[several["done"].producer_id]) == {"done": "CompleteCommit"}
    assert listed(stage, transactional_id_pattern=".*done") == {"done": "CompleteCommit", "undone": "CompleteAbort"}
    assert listed(stage, state_filters=["Empty"], transactional_id_pattern=".*done") == {}


def test_only_what_is_running_has_a_duration(several: dict[str, TransactionalProducer]) -> None:
    stage = several["open"].stage
    stage.scheduler.advance(1_000)
    assert listed(stage, duration_filter=999) == {"open": "Ongoing"}
    assert listed(stage, duration_filter=1_000) == {}


def test_a_pattern_that_is_none_is_an_error(several: dict[str, TransactionalProducer]) -> None:
    response = several["open"].stage.call(ListTransactionsRequest(transactional_id_pattern="("))
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_to_look_for_transactions_makes_no_topic(stage: Stage) -> None:
    response = stage.call(ListTransactionsRequest(state_filters=["Ongoing", "Strange"]))
    assert (response.error_code, list(response.transaction_states)) == (ErrorCode.NONE, [])
    assert list(response.unknown_state_filters) == ["Strange"]
    described = stage.call(DescribeTransactionsRequest(transactional_ids=["id"])).transaction_states[0]
    assert described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert STATE not in stage.broker.services.catalog.image.topics


def test_a_shard_that_is_away_is_an_error_and_not_an_empty_list(several: dict[str, TransactionalProducer]) -> None:
    stage = several["open"].stage
    stage.partition(STATE, shard_index("open", 50)).fail(StorageFault("/data", "test"))
    several["open"].produce(b"b", partition=1)
    assert stage.call(ListTransactionsRequest()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_transaction_is_described_with_all_that_is_known(several: dict[str, TransactionalProducer]) -> None:
    producer = several["open"]
    producer.produce(b"b", partition=2)
    state = producer.state()
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, producer.epoch)
    assert state.transaction_timeout_ms == 60_000
    assert state.transaction_start_time_ms == producer.stage.clock.now_ms()
    assert [(topic.topic, list(topic.partitions)) for topic in state.topics] == [("t", [0, 2])]


def test_each_id_is_described_once(several: dict[str, TransactionalProducer]) -> None:
    names = ["open", "unknown", "open", "", "done"]
    response = several["open"].stage.call(DescribeTransactionsRequest(transactional_ids=names))
    assert [(state.transactional_id, state.error_code) for state in response.transaction_states] == [
        ("open", ErrorCode.NONE),
        ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
        ("done", ErrorCode.NONE),
    ]


def test_an_id_that_nobody_uses_is_forgotten_in_the_end(several: dict[str, TransactionalProducer]) -> None:
    stage = several["open"].stage
    stage.scheduler.advance(7 * 24 * 3_600_000 + 3_600_000)
    # What was open has timed out long ago, and is kept for as long after that.
    assert set(listed(stage)) <= {"open"}
    stage.restart()
    assert set(listed(stage)) <= {"open"}
