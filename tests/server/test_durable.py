"""Requests that come together and wait for the disk: none is answered before its records are there, nor out of turn."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceResponse
from tests.broker.stage import creation
from tests.server.repeats_stage import Door
from tests.server.spreading_producer import TOPIC, Producer

Partitions = tuple[int, ...]
SHAPES: list[Partitions] = [(0,), (0, 1)]


@pytest.fixture
def held() -> Iterator[Producer]:
    """Its broker's disk does nothing unless it is told to."""
    door = Door(held=True)
    door.stage.send(creation(TOPIC, 2))
    yield from _producer(door)


@pytest.fixture
def producer() -> Iterator[Producer]:
    door = Door()
    door.stage.create(TOPIC, 2)
    yield from _producer(door)


def _producer(door: Door) -> Iterator[Producer]:
    made = Producer(door)
    _sync(made)
    yield made
    made.line.end()
    door.close()


def _sync(producer: Producer) -> None:
    """Let the disk do all that it was asked for."""
    producer.door.settle()
    if producer.door.stage.held:
        while producer.door.stage.jobs.waiting:
            producer.door.stage.jobs.finish()
    producer.door.settle()


def _alter(producer: Producer, name: str, value: str) -> None:
    """Change a setting of the topic, and let the disk have it."""
    producer.door.alter(TOPIC, name, value)
    _sync(producer)


def _send(producer: Producer, requests: Sequence[Partitions]) -> list[list[PartitionProduceResponse]]:
    return producer.send_all(requests, acks=-1)


def _learn(producer: Producer, partitions: Partitions) -> int:
    """Have requests of that kind taken from now on; returns how many were read until then."""
    for _ in range(3):
        _send(producer, [partitions])
        _sync(producer)
    producer.heard()
    return producer.read


def _codes(answers: Sequence[Sequence[PartitionProduceResponse]]) -> list[list[int]]:
    return [[each.error_code for each in answer] for answer in answers]


@pytest.mark.parametrize("partitions", SHAPES)
def test_nothing_is_answered_before_it_is_on_the_disk(held: Producer, partitions: Partitions) -> None:
    read = _learn(held, partitions)
    assert _send(held, [partitions] * 3) == []
    _sync(held)
    answers = held.heard()
    assert [[each.base_offset for each in answer] for answer in answers] == [
        [offset] * len(partitions) for offset in (3, 4, 5)
    ]
    assert held.read == read


@pytest.mark.parametrize("partitions", SHAPES)
@pytest.mark.parametrize(
    ("acks", "name", "before", "after"), [(1, "flush.messages", "100", "1"), (-1, "ottla.acks.all", "os", "disk")]
)
def test_records_that_wait_for_the_disk_after_a_change_of_settings_do_so(
    held: Producer, partitions: Partitions, acks: int, name: str, before: str, after: str
) -> None:
    _alter(held, name, before)
    for _ in range(3):
        held.send(partitions, acks=acks)
    assert _codes(held.send_all([partitions], acks=acks)) == [[ErrorCode.NONE] * len(partitions)]
    _alter(held, name, after)
    assert held.send_all([partitions], acks=acks) == []
    _sync(held)
    assert _codes(held.heard()) == [[ErrorCode.NONE] * len(partitions)]


def test_all_of_the_partitions_are_waited_for(held: Producer) -> None:
    _learn(held, (0, 1))
    assert _send(held, [(0,), (1,)]) == []
    jobs = held.door.stage.jobs
    jobs.finish()
    held.door.settle()
    assert held.heard() == []
    jobs.finish()
    held.door.settle()
    assert _codes(held.heard()) == [[ErrorCode.NONE], [ErrorCode.NONE]]


def test_what_came_first_is_answered_first_though_its_disk_is_slower(held: Producer) -> None:
    _learn(held, (0, 1))
    _send(held, [(0,)])
    _send(held, [(1,)])
    jobs = held.door.stage.jobs
    jobs.finish(1)
    held.door.settle()
    assert held.heard() == []
    _sync(held)
    assert [[each.index for each in answer] for answer in held.heard()] == [[0], [1]]


def test_what_waits_for_nothing_waits_for_its_turn(held: Producer) -> None:
    _learn(held, (0, 1))
    held.send_all([(0, 1)], acks=1)
    _sync(held)
    held.heard()
    read = held.read
    assert _send(held, [(0, 1)]) == []
    assert held.send_all([(0, 1)], acks=1) == []
    _sync(held)
    assert [[each.base_offset for each in answer] for answer in held.heard()] == [[4, 4], [5, 5]]
    assert held.read == read


@pytest.mark.parametrize("partitions", SHAPES)
def test_after_its_timeout_a_request_is_told_so(held: Producer, partitions: Partitions) -> None:
    _learn(held, partitions)
    _send(held, [partitions] * 2)
    held.door.stage.scheduler.advance(1_500)
    held.door.settle()
    answers = held.heard()
    assert _codes(answers) == [[ErrorCode.REQUEST_TIMED_OUT] * len(partitions)] * 2
    assert {(each.base_offset, each.error_message) for answer in answers for each in answer} == {
        (-1, "not on disk after 1000 ms")
    }
    _sync(held)
    assert held.heard() == []
    assert len(held.door.stage.values(TOPIC)) == 5


def test_only_the_partition_that_is_late_is_told_so(held: Producer) -> None:
    _learn(held, (0, 1))
    _send(held, [(0, 1)])
    held.door.stage.jobs.finish(1)
    held.door.stage.scheduler.advance(1_500)
    held.door.settle()
    ((first, second),) = held.heard()
    assert (first.error_code, second.error_code) == (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    assert second.base_offset == 3


@pytest.mark.parametrize("partitions", SHAPES)
def test_a_sync_that_fails_fails_every_request_that_waits_for_it(producer: Producer, partitions: Partitions) -> None:
    _learn(producer, partitions)
    producer.door.stage.disk.fail_next("sync", ".log", errno.EIO)
    failed = [ErrorCode.KAFKA_STORAGE_ERROR, *[ErrorCode.NONE] * (len(partitions) - 1)]
    answers = _send(producer, [partitions] * 3)
    assert _codes(answers) == [failed] * 3
    assert {answer[0].base_offset for answer in answers} == {-1}


def test_a_batch_that_is_refused_keeps_its_reason_when_the_others_had_to_wait(held: Producer) -> None:
    _learn(held, (0, 1))
    held.send_all([(0, 1)], acks=-1, damaged=(1,))
    _sync(held)
    ((good, bad),) = held.heard()
    assert (good.error_code, good.base_offset) == (ErrorCode.NONE, 3)
    assert bad.error_code == ErrorCode.CORRUPT_MESSAGE
    held.send_all([(0, 1)], acks=-1, damaged=(1,))
    held.door.stage.scheduler.advance(1_500)
    held.door.settle()
    ((late, still_bad),) = held.heard()
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert still_bad == bad


def test_a_connection_that_is_lost_is_told_nothing(held: Producer) -> None:
    _learn(held, (0, 1))
    _send(held, [(0, 1)])
    held.line.end()
    _sync(held)
    assert held.heard() == []
    held.door.stage.scheduler.advance(1_500)
    assert len(held.door.stage.values(TOPIC)) == 4
