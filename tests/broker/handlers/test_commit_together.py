"""CommitTogether, DescribeCommit and KeepTransactions: many transactions of one query, committed as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.commit_together import CommitTogetherRequest, OpenTransaction
from ottla.protocol.messages.describe_commit import DescribeCommitRequest
from ottla.protocol.messages.keep_transactions import KeepTransactionsRequest
from tests.broker.stage import Stage
from tests.broker.transactional_producer import (
    TIMEOUT_MS,
    TransactionalProducer,
    committed_values,
    end_offset,
    settle,
)

SLOTS = 3


@pytest.fixture
def tasks(stage: Stage) -> list[TransactionalProducer]:
    """Tasks of one query, each with a transaction open in a partition of its own."""
    return begun(stage)


def begun(stage: Stage) -> list[TransactionalProducer]:
    stage.create("t", SLOTS)
    found = [TransactionalProducer(stage, f"query/{slot}").init() for slot in range(SLOTS)]
    for slot, task in enumerate(found):
        assert task.produce(b"%d" % slot, partition=slot) == ErrorCode.NONE
    return found


def opened(tasks: Sequence[TransactionalProducer]) -> list[OpenTransaction]:
    return [
        OpenTransaction(transactional_id=task.transactional_id, producer_id=task.producer_id, producer_epoch=task.epoch)
        for task in tasks
    ]


def request(tasks: Sequence[TransactionalProducer], batch_id: int = 0, query_id: str = "query") -> Any:
    return CommitTogetherRequest(query_id=query_id, batch_id=batch_id, transactions=opened(tasks))


def is_committed(stage: Stage, batch_id: int) -> bool:
    response = stage.call(DescribeCommitRequest(query_id="query", batch_id=batch_id))
    assert response.error_code == ErrorCode.NONE
    return bool(response.is_committed)


def seen(stage: Stage) -> list[list[bytes | None]]:
    return [committed_values(stage, "t", slot) for slot in range(SLOTS)]


def test_all_are_committed(stage: Stage, tasks: list[TransactionalProducer]) -> None:
    assert not is_committed(stage, 0)
    response = stage.call(request(tasks))
    assert (response.error_code, response.is_repeated) == (ErrorCode.NONE, False)
    assert seen(stage) == [[b"0"], [b"1"], [b"2"]]
    assert is_committed(stage, 0)


def test_a_commit_that_is_asked_for_again_is_told_again(stage: Stage, tasks: list[TransactionalProducer]) -> None:
    stage.call(request(tasks))
    response = stage.call(request(tasks))
    assert (response.error_code, response.is_repeated) == (ErrorCode.NONE, True)
    assert seen(stage) == [[b"0"], [b"1"], [b"2"]]


def test_one_that_cannot_be_committed_keeps_the_others_open(stage: Stage, tasks: list[TransactionalProducer]) -> None:
    old = opened(tasks)
    TransactionalProducer(stage, "query/1").init()
    response = stage.call(CommitTogetherRequest(query_id="query", batch_id=0, transactions=old))
    assert response.error_code == ErrorCode.PRODUCER_FENCED
    assert response.error_message
    assert [task.state().transaction_state for task in (tasks[0], tasks[2])] == ["Ongoing", "Ongoing"]
    assert not is_committed(stage, 0)


def test_a_batch_in_which_nobody_has_written_is_committed_too(stage: Stage) -> None:
    assert stage.call(request([])).error_code == ErrorCode.NONE
    assert is_committed(stage, 0)


def test_ids_of_another_query_are_refused(stage: Stage, tasks: list[TransactionalProducer]) -> None:
    assert stage.call(request(tasks, query_id="quer")).error_code == ErrorCode.INVALID_REQUEST
    assert tasks[0].state().transaction_state == "Ongoing"


def test_on_a_broker_without_transactions_nothing_is_committed_and_no_topic_made(stage: Stage) -> None:
    response = stage.call(DescribeCommitRequest(query_id="query", batch_id=0))
    assert (response.error_code, response.is_committed, response.last_batch_id) == (ErrorCode.NONE, False, -1)
    assert "__transaction_state" not in stage.broker.services.catalog.image.topics


@pytest.mark.parametrize("jobs", range(8))
def test_a_crash_leaves_all_or_none_committed(jobs: int) -> None:
    stage = Stage()
    tasks = begun(stage)
    stage.held = True
    stage.restart()
    settle(stage)
    sent = stage.send(request(tasks))
    stage.scheduler.run()
    for _ in range(jobs):
        if stage.jobs.waiting:
            stage.jobs.finish()
    is_answered = sent.is_answered
    stage.held = False
    stage.crash()
    if is_answered:
        assert is_committed(stage, 0)
    if is_committed(stage, 0):
        assert seen(stage) == [[b"0"], [b"1"], [b"2"]]
    else:
        assert seen(stage) == [[], [], []]
        assert stage.call(request(tasks)).error_code == ErrorCode.NONE
        assert seen(stage) == [[b"0"], [b"1"], [b"2"]]


def test_transactions_that_are_kept_do_not_time_out(stage: Stage, tasks: list[TransactionalProducer]) -> None:
    for _ in range(3):
        stage.scheduler.advance(TIMEOUT_MS - 1_000)
        kept = stage.call(KeepTransactionsRequest(query_id="query", transactions=opened(tasks)))
        assert kept.error_code == ErrorCode.NONE
    assert stage.call(request(tasks)).error_code == ErrorCode.NONE


def test_what_has_timed_out_cannot_be_kept(stage: Stage, tasks: list[TransactionalProducer]) -> None:
    old = opened(tasks)
    stage.scheduler.advance(TIMEOUT_MS)
    kept = stage.call(KeepTransactionsRequest(query_id="query", transactions=old))
    assert kept.error_code == ErrorCode.PRODUCER_FENCED
    assert all(end_offset(stage, "t", slot) == 2 for slot in range(SLOTS))
