"""InitProducerId: ids that nobody has had, and a plain no to transactions."""

from __future__ import annotations

import pytest

from ottla.broker.deadlines import BUCKET_MS, TIMEOUT_MS_DEFAULT
from ottla.broker.producer_ids import BLOCK_SIZE
from ottla.error_codes import ErrorCode
from ottla.errors import StorageFault
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.stage import Stage
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
@pytest.mark.parametrize(
    ("transactional_id", "code"), [("t", ErrorCode.INVALID_TXN_STATE), ("", ErrorCode.INVALID_REQUEST)]
)
def test_a_transactional_id_is_refused(stage: Stage, version: int, transactional_id: str, code: ErrorCode) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000)
    assert stage.call(request, version).error_code == code


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
