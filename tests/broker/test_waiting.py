"""Deadlines and answers that come in parts: every wait has an end, and is told once."""

from __future__ import annotations

import pytest

from ottla.broker.answers import Answers, code_of
from ottla.broker.deadlines import BUCKET_MS, Deadlines
from ottla.broker.pending import Pending
from ottla.clock import ManualClock
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, StorageFault, TopicNotFound
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla.protocol.schema import Message
from ottla.scheduler import ManualScheduler


class Waiter:
    """Counts how often its time was over."""

    def __init__(self) -> None:
        self.times = 0

    def time_out(self) -> None:
        self.times += 1


@pytest.fixture
def scheduler() -> ManualScheduler:
    return ManualScheduler(ManualClock())


@pytest.fixture
def deadlines(scheduler: ManualScheduler) -> Deadlines:
    return Deadlines(scheduler)


@pytest.mark.parametrize("timeout_ms", [0, 1, 249, 250, 251, 1_000, 30_000, -5])
def test_a_wait_ends_at_its_time_and_at_most_a_bucket_and_a_timer_later(
    scheduler: ManualScheduler, deadlines: Deadlines, timeout_ms: int
) -> None:
    waiter = Waiter()
    deadlines.add(waiter, timeout_ms)
    scheduler.advance(max(timeout_ms, 0))
    assert waiter.times == 0
    scheduler.advance(2 * BUCKET_MS)
    assert waiter.times == 1
    scheduler.advance(60_000)
    assert waiter.times == 1


def test_a_wait_that_ended_by_itself_is_not_told(scheduler: ManualScheduler, deadlines: Deadlines) -> None:
    waiter = Waiter()
    bucket = deadlines.add(waiter, 1_000)
    deadlines.remove(waiter, bucket)
    assert len(deadlines) == 0
    scheduler.advance(5_000)
    assert waiter.times == 0


def test_each_of_many_waits_is_told_in_its_own_time(scheduler: ManualScheduler, deadlines: Deadlines) -> None:
    waiters = [Waiter() for _ in range(100)]
    for number, waiter in enumerate(waiters):
        deadlines.add(waiter, number * 100)
    scheduler.advance(5_000)
    told = [waiter.times for waiter in waiters]
    assert told == sorted(told, reverse=True)
    assert 40 <= sum(told) <= 51
    scheduler.advance(10_000)
    assert [waiter.times for waiter in waiters] == [1] * 100


def test_a_later_wait_does_not_put_off_an_earlier_one(scheduler: ManualScheduler, deadlines: Deadlines) -> None:
    late, early = Waiter(), Waiter()
    deadlines.add(late, 60_000)
    deadlines.add(early, 500)
    scheduler.advance(500 + 2 * BUCKET_MS)
    assert (early.times, late.times) == (1, 0)


# --- answers in parts --------------------------------------------------------------------------------------


def answers(deadlines: Deadlines, count: int) -> Answers[DeletableTopicResult]:
    return Answers(
        count,
        deadlines=deadlines,
        timeout_ms=1_000,
        late=lambda place, error: DeletableTopicResult(name=str(place), error_code=error.code),
        respond=lambda parts: DeleteTopicsResponse(responses=parts),
    )


def part(name: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name)


def names(response: Message) -> list[tuple[str | None, int]]:
    assert isinstance(response, DeleteTopicsResponse)
    return [(result.name, result.error_code) for result in response.responses]


def test_parts_stand_in_the_order_of_the_request_whenever_they_come(deadlines: Deadlines) -> None:
    parts = answers(deadlines, 3)
    parts.settle(2, part("c"))
    pending = parts.response()
    assert isinstance(pending, Pending)
    parts.settle(0, part("a"))
    assert not pending.is_complete
    parts.settle(1, part("b"))
    told: list[Message] = []
    pending.then(told.append)
    assert names(told[0]) == [("a", 0), ("b", 0), ("c", 0)]
    assert len(deadlines) == 0


def test_what_is_there_at_once_is_answered_at_once(deadlines: Deadlines) -> None:
    parts = answers(deadlines, 1)
    parts.settle(0, part("a"))
    response = parts.response()
    assert isinstance(response, DeleteTopicsResponse)
    assert names(response) == [("a", 0)]


def test_when_the_time_is_over_only_what_is_missing_is_late(scheduler: ManualScheduler, deadlines: Deadlines) -> None:
    parts = answers(deadlines, 2)
    parts.settle(0, part("a"))
    pending = parts.response()
    assert isinstance(pending, Pending)
    told: list[Message] = []
    pending.then(told.append)
    scheduler.advance(2_000)
    parts.settle(1, part("b"))
    assert [names(each) for each in told] == [[("a", 0), ("1", ErrorCode.REQUEST_TIMED_OUT)]]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFound("a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (StorageFault("a", "sync"), ErrorCode.KAFKA_STORAGE_ERROR),
        (OttlaError("something else"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_every_error_has_a_code_for_the_client(error: OttlaError, code: ErrorCode) -> None:
    assert code_of(error) is code
