"""InitProducerId: ids that nobody has had, and transactional ids that are taken, taken over and kept."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.deadlines import BUCKET_MS, TIMEOUT_MS_DEFAULT
from ottla.broker.pending import Pending
from ottla.broker.producer_ids import BLOCK_SIZE
from ottla.error_codes import ErrorCode
from ottla.errors import StorageFault
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.stage import Stage
from tests.broker.transactional_producer import TransactionalProducer, markers
from tests.storage.workbench import sequenced

IDEMPOTENT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)


def test_every_producer_gets_an_id_of_its_own_over_blocks_and_restarts(stage: Stage) -> None:
    sent = [stage.send(IDEMPOTENT) for _ in range(BLOCK_SIZE * 2 + 1)]
    stage.scheduler.run()
    ids = [each.response.producer_id for each in sent]
    stage.crash()
    ids.append(stage.call(IDEMPOTENT).producer_id)
    stage.restart()
    ids.append(stage.call(IDEMPOTENT).producer_id)
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 0


def test_a_block_is_one_change_of_the_metadata(stage: Stage) -> None:
    stage.call(IDEMPOTENT)
    revision = stage.broker.services.catalog.image.revision
    for _ in range(BLOCK_SIZE - 1):
        stage.call(IDEMPOTENT)
    assert stage.broker.services.catalog.image.revision == revision


def test_nobody_gets_an_id_before_its_block_is_durable(stage: Stage) -> None:
    stage.store.held = True
    sent = stage.send(IDEMPOTENT)
    stage.scheduler.run()
    assert not sent.is_answered
    stage.store.sync()
    stage.scheduler.run()
    assert sent.response.error_code == ErrorCode.NONE


def test_a_store_that_fails_is_an_error_and_the_next_producer_tries_again(stage: Stage) -> None:
    stage.store.fail_next(StorageFault("metadata", "commit"))
    failed = stage.call(IDEMPOTENT)
    assert (failed.error_code, failed.producer_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert stage.call(IDEMPOTENT).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_refused(stage: Stage, version: int) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000)
    assert stage.call(request, version).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_half_of_an_identity_is_refused(stage: Stage, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    assert stage.call(request).error_code == ErrorCode.INVALID_REQUEST


def test_a_producer_that_names_the_identity_it_has_gets_a_new_one(stage: Stage) -> None:
    first = stage.call(IDEMPOTENT)
    request = InitProducerIdRequest(
        transactional_id=None, producer_id=first.producer_id, producer_epoch=first.producer_epoch
    )
    second = stage.call(request)
    assert (second.error_code, second.producer_epoch) == (ErrorCode.NONE, 0)
    assert second.producer_id != first.producer_id


def test_with_its_id_a_producers_retry_is_stored_once(stage: Stage) -> None:
    stage.create("a")
    producer_id = stage.call(IDEMPOTENT).producer_id
    for sequence in (0, 1, 1, 0):
        assert stage.produce("a", 0, sequenced(producer_id, sequence)).error_code == ErrorCode.NONE
    assert len(stage.values("a")) == 2


def test_a_block_that_never_comes_does_not_keep_the_answer_for_ever(stage: Stage) -> None:
    stage.store.held = True
    sent = stage.send(IDEMPOTENT)
    stage.scheduler.advance(TIMEOUT_MS_DEFAULT - 1)
    assert not sent.is_answered
    stage.scheduler.advance(1 + 2 * BUCKET_MS)
    assert sent.response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert sent.response.producer_epoch == -1


# --- transactional ids -------------------------------------------------------------------------------------


def init(stage: Stage, version: int = 5, **fields: Any) -> Any:
    request = InitProducerIdRequest(transactional_id="id", **{"transaction_timeout_ms": 60_000, **fields})
    return stage.call(request, version)


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_is_given_a_producer_id_and_then_higher_epochs_of_it(stage: Stage, version: int) -> None:
    first, second = init(stage, version), init(stage, version)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert (second.error_code, second.producer_epoch) == (ErrorCode.NONE, 1)
    assert second.producer_id == first.producer_id >= 0


def test_a_transactional_id_is_remembered_over_a_crash(stage: Stage) -> None:
    first = init(stage)
    stage.crash()
    second = init(stage)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_a_timeout_that_nobody_may_have_is_refused(stage: Stage, timeout_ms: int) -> None:
    response = init(stage, transaction_timeout_ms=timeout_ms)
    assert (response.error_code, response.producer_epoch) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)


def test_the_longest_timeout_is_a_setting() -> None:
    stage = Stage({"transaction.max.timeout.ms": "1000"})
    assert init(stage, transaction_timeout_ms=1_000).error_code == ErrorCode.NONE
    assert init(stage, transaction_timeout_ms=1_001).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_names_what_it_has_goes_on_with_the_next_epoch(stage: Stage, version: int) -> None:
    first = init(stage)
    second = init(stage, version, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (ErrorCode.NONE, first.producer_id, 1)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED), (5, ErrorCode.PRODUCER_FENCED)],
)
def test_a_producer_that_was_fenced_is_told_so_in_the_words_of_its_version(
    stage: Stage, version: int, code: ErrorCode
) -> None:
    first = init(stage)
    init(stage)
    init(stage)
    assert init(stage, version, producer_id=first.producer_id, producer_epoch=0).error_code == code


def test_whoever_takes_an_id_over_aborts_what_is_open(stage: Stage) -> None:
    stage.create("t")
    producer = TransactionalProducer(stage).init()
    producer.produce(b"a")
    successor = init(stage)
    assert successor.error_code == ErrorCode.NONE
    assert successor.producer_epoch > producer.epoch + 1
    assert markers(stage) == [(producer.producer_id, producer.epoch + 1, "ABORT")]
    assert producer.end() == ErrorCode.PRODUCER_FENCED


def test_a_transactional_id_waits_for_its_block_of_producer_ids_no_longer_than_others(stage: Stage) -> None:
    stage.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]))
    stage.store.held = True
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    sent = stage.send(request)
    stage.scheduler.advance(TIMEOUT_MS_DEFAULT - 1)
    assert not sent.is_answered
    stage.scheduler.advance(1 + 2 * BUCKET_MS)
    assert (sent.response.error_code, sent.response.producer_epoch) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    stage.store.sync()
    stage.scheduler.run()
    described = stage.call(DescribeTransactionsRequest(transactional_ids=["id"])).transaction_states[0]
    assert described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_store_that_fails_is_an_error_for_a_transactional_id_too(stage: Stage) -> None:
    stage.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]))
    stage.store.fail_next(StorageFault("metadata", "commit"))
    assert init(stage).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert init(stage).error_code == ErrorCode.NONE


def test_a_client_that_goes_away_while_it_waits_for_an_id_takes_nothing(stage: Stage) -> None:
    stage.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]))
    stage.store.held = True
    sent = stage.send(InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000))
    assert isinstance(sent.outcome, Pending)
    sent.outcome.cancel()
    stage.store.sync()
    stage.scheduler.run()
    assert not sent.is_answered
    described = stage.call(DescribeTransactionsRequest(transactional_ids=["id"])).transaction_states[0]
    assert described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_broker_that_stops_lets_nobody_wait_for_an_id(stage: Stage) -> None:
    stage.store.held = True
    sent = stage.send(InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000))
    assert isinstance(sent.outcome, Pending)
    sent.outcome.hurry()
    assert sent.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
