"""EndTxn: decided once, told again to whoever asks again, and never undone."""

from __future__ import annotations

import pytest

from ottla.broker.pending import Pending
from ottla.coordinators.outcome import CoordinatorRecord
from ottla.coordinators.runtime import shard_index
from ottla.coordinators.transactions.records import TransactionLogKey, TransactionLogValue, encode
from ottla.coordinators.transactions.transaction import EPOCH_MAX
from ottla.error_codes import ErrorCode
from ottla.errors import StorageFault
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.records.batch import peek
from ottla.records.builder import build_batch
from tests.broker.stage import Stage
from tests.broker.transactional_producer import (
    TIMEOUT_MS,
    TransactionalProducer,
    committed_values,
    end_offset,
    held_producer,
    markers,
    settle,
)


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    stage.create("t", 3)
    return TransactionalProducer(stage).init()


def test_an_end_is_answered_when_the_decision_is_durable_and_before_the_markers_are() -> None:
    producer = held_producer()
    stage = producer.stage
    producer.send(b"a")
    settle(stage)
    sent = stage.send(producer.end_request(), 5)
    stage.scheduler.run()
    assert not sent.is_answered
    stage.jobs.finish()
    assert sent.response.error_code == ErrorCode.NONE
    assert stage.partition("t").log.synced_offset == 1


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_an_end_that_is_asked_for_again_is_told_again(stage: Stage, version: int, *, committed: bool) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage, second=version >= 5).init()
    producer.produce(b"a")
    request = producer.end_request(committed=committed)
    first, second = stage.call(request, version), stage.call(request, version)
    assert first == second
    assert first.error_code == ErrorCode.NONE
    assert len(markers(stage)) == 1


@pytest.mark.parametrize("version", range(6))
def test_what_was_committed_cannot_be_aborted_any_more(stage: Stage, version: int) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage, second=version >= 5).init()
    producer.produce(b"a")
    commit, abort = producer.end_request(), producer.end_request(committed=False)
    assert stage.call(commit, version).error_code == ErrorCode.NONE
    assert stage.call(abort, version).error_code == ErrorCode.INVALID_TXN_STATE
    assert committed_values(stage) == [b"a"]


def test_an_end_of_long_ago_that_comes_again_ends_nothing(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    replayed = producer.end_request(committed=False)
    producer.end()
    producer.produce(b"b")
    assert producer.stage.call(replayed, 5).error_code == ErrorCode.PRODUCER_FENCED
    assert producer.end() == ErrorCode.NONE
    assert committed_values(producer.stage) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, ErrorCode.PRODUCER_FENCED),
        (5, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_zombie_cannot_commit(producer: TransactionalProducer, version: int, code: ErrorCode) -> None:
    producer.produce(b"a")
    TransactionalProducer(producer.stage).init()
    response = producer.stage.call(producer.end_request(), version)
    assert (response.error_code, response.producer_id) == (code, -1)
    assert committed_values(producer.stage) == []


def test_there_must_be_something_to_commit(producer: TransactionalProducer) -> None:
    assert producer.end() == ErrorCode.INVALID_TXN_STATE


def test_an_id_that_nobody_knows_has_nothing_to_end(producer: TransactionalProducer) -> None:
    producer.transactional_id = "other"
    assert producer.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_empty_transactional_id_is_refused(stage: Stage) -> None:
    assert stage.call(EndTxnRequest(transactional_id="", producer_id=1)).error_code == ErrorCode.INVALID_REQUEST


# --- timeouts ----------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted(producer: TransactionalProducer) -> None:
    stage = producer.stage
    producer.produce(b"a")
    stage.scheduler.advance(TIMEOUT_MS - 1)
    assert producer.state().transaction_state == "Ongoing"
    stage.scheduler.advance(2)
    assert producer.state().transaction_state == "CompleteAbort"
    assert markers(stage) == [(producer.producer_id, producer.epoch + 1, "ABORT")]
    assert end_offset(stage) == end_offset(stage, committed=False)


@pytest.mark.parametrize("second", [True, False], ids=["second", "first"])
def test_a_commit_that_comes_after_the_timeout_is_refused_and_changes_nothing(stage: Stage, *, second: bool) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage, second=second).init()
    producer.produce(b"a")
    stage.scheduler.advance(TIMEOUT_MS)
    assert producer.end() == (ErrorCode.INVALID_TXN_STATE if second else ErrorCode.PRODUCER_FENCED)
    assert committed_values(stage) == []
    assert [kind for _, _, kind in markers(stage)] == ["ABORT"]


def test_of_a_commit_and_a_timeout_in_the_same_moment_the_first_one_counts() -> None:
    producer = held_producer()
    stage = producer.stage
    producer.send(b"a")
    settle(stage)
    stage.scheduler.advance(TIMEOUT_MS - 1)
    settle(stage)
    # The commit is decided and not yet durable when the time is over.
    sent = stage.send(producer.end_request(), 5)
    stage.scheduler.advance(10)
    settle(stage)
    assert sent.response.error_code == ErrorCode.NONE
    assert [kind for _, _, kind in markers(stage)] == ["COMMIT"]


def test_of_a_timeout_and_a_commit_in_the_same_moment_the_first_one_counts_too() -> None:
    producer = held_producer()
    stage = producer.stage
    producer.send(b"a")
    settle(stage)
    stage.scheduler.advance(TIMEOUT_MS)
    sent = stage.send(producer.end_request(), 5)
    settle(stage)
    assert sent.response.error_code == ErrorCode.INVALID_TXN_STATE
    assert [kind for _, _, kind in markers(stage)] == ["ABORT"]


def test_a_producer_that_was_timed_out_goes_on_after_it_has_aborted(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    producer.stage.scheduler.advance(TIMEOUT_MS)
    assert producer.produce(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end(committed=False) == ErrorCode.NONE
    assert producer.produce(b"b") == ErrorCode.NONE
    assert producer.end() == ErrorCode.NONE
    assert committed_values(producer.stage) == [b"b"]
    assert [kind for _, _, kind in markers(producer.stage)] == ["ABORT", "COMMIT"]


def test_a_producer_that_was_timed_out_begins_again_after_it_has_taken_its_id(producer: TransactionalProducer) -> None:
    producer.produce(b"a")
    producer.stage.scheduler.advance(TIMEOUT_MS)
    producer.init()
    assert producer.produce(b"b") == ErrorCode.NONE
    assert producer.end() == ErrorCode.NONE
    assert committed_values(producer.stage) == [b"b"]


# --- epochs that run out -----------------------------------------------------------------------------------


def worn_out(stage: Stage) -> TransactionalProducer:
    """A producer that has one epoch left, and a transaction open under it."""
    stage.create("t")
    producer = TransactionalProducer(stage).init()
    record = stage.partition("__transaction_state", shard_index("id", 50))
    value = TransactionLogValue(
        producer_id=producer.producer_id,
        producer_epoch=EPOCH_MAX - 1,
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_last_update_timestamp_ms=stage.clock.now_ms(),
        transaction_start_timestamp_ms=-1,
    )
    key, encoded = encode(CoordinatorRecord(TransactionLogKey(transactional_id="id"), value))
    batch = build_batch([(key, encoded, stage.clock.now_ms(), ())])
    record.append(batch, peek(batch))
    stage.restart()
    producer.epoch = EPOCH_MAX - 1
    assert producer.produce(b"last") == ErrorCode.NONE
    return producer


def test_a_producer_whose_epochs_run_out_goes_on_under_another_id(stage: Stage) -> None:
    producer = worn_out(stage)
    before = producer.producer_id
    assert producer.end() == ErrorCode.NONE
    assert producer.producer_id != before
    assert producer.epoch == 0
    assert producer.produce(b"first") == ErrorCode.NONE
    assert producer.end() == ErrorCode.NONE
    assert committed_values(stage) == [b"last", b"first"]


def test_such_an_end_is_told_again_with_the_same_new_id(stage: Stage) -> None:
    producer = worn_out(stage)
    request = producer.end_request()
    first, second = stage.call(request, 5), stage.call(request, 5)
    assert first == second
    assert first.producer_id != producer.producer_id


def test_a_store_that_has_no_new_id_leaves_the_transaction_open(stage: Stage) -> None:
    producer = worn_out(stage)
    stage.store.fail_next(StorageFault("metadata", "commit"))
    assert producer.end() == ErrorCode.KAFKA_STORAGE_ERROR
    assert producer.state().transaction_state == "Ongoing"
    assert producer.end() == ErrorCode.NONE


def test_a_client_that_goes_away_while_it_waits_for_one_decides_nothing(stage: Stage) -> None:
    producer = worn_out(stage)
    stage.store.held = True
    sent = stage.send(producer.end_request(), 5)
    assert isinstance(sent.outcome, Pending)
    sent.outcome.cancel()
    stage.store.sync()
    stage.scheduler.run()
    assert producer.state().transaction_state == "Ongoing"
