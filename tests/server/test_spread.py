"""Requests for several partitions at once: which are answered without being read, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
)
from ottla.server.gathering import PACE_S
from ottla.server.spread import TOPICS_MAX
from tests.server.repeats_stage import Door
from tests.server.spreading_producer import TOPIC, Producer
from tests.storage.workbench import batch

PARTITIONS = 200
"""So many that their count takes two bytes."""
LARGE = batch(b"v" * 10_000)


@pytest.fixture
def producer() -> Iterator[Producer]:
    door = Door()
    door.stage.create(TOPIC, PARTITIONS)
    made = Producer(door)
    yield made
    made.line.end()
    door.close()


def _places(answers: Sequence[PartitionProduceResponse]) -> list[tuple[int, int]]:
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    return [(answer.index, answer.base_offset) for answer in answers]


def _hurry(producer: Producer) -> None:
    """Send so much that the connection is found to be a busy producer's, all of it to the first two partitions."""
    for together in (1, 1, 200):
        producer.send_all([(0, 1)] * together, data=LARGE)
    producer.door.pass_time(2 * PACE_S)
    assert producer.line.transport.marks.told == []


@pytest.mark.parametrize("version", range(9, 14))
def test_a_request_for_partitions_that_were_served_before_is_not_read(producer: Producer, version: int) -> None:
    producer.send((0, 1, 2), version=version)
    assert producer.read == 1
    assert _places(producer.send((2, 0, 1), version=version)) == [(2, 1), (0, 1), (1, 1)]
    assert _places(producer.send((1, 2), version=version)) == [(1, 2), (2, 2)]
    assert producer.read == 1


def test_so_is_one_for_a_single_partition_of_them(producer: Producer) -> None:
    producer.send((0, 1))
    assert _places(producer.send((1,))) == [(1, 1)]
    assert producer.read == 1


@pytest.mark.parametrize("version", range(5, 9))
def test_versions_before_the_flexible_ones_are_read(producer: Producer, version: int) -> None:
    for _ in range(3):
        producer.send((0, 1), version=version)
    assert producer.read == 3


def test_those_that_come_together_are_answered_in_order(producer: Producer) -> None:
    producer.send((0, 1, 2))
    answers = producer.send_all([(0, 1), (1, 2), (2, 1, 0)])
    assert [_places(each) for each in answers] == [[(0, 1), (1, 1)], [(1, 2), (2, 1)], [(2, 2), (1, 3), (0, 2)]]
    assert producer.read == 1


def test_a_count_of_two_bytes_is_understood(producer: Producer) -> None:
    everybody = range(PARTITIONS)
    producer.send(everybody)
    assert _places(producer.send(everybody)) == [(each, 1) for each in everybody]
    assert producer.read == 1


def test_large_batches_are_taken_too(producer: Producer) -> None:
    large = batch(bytes(20_000))
    producer.send((0, 1), data=large)
    assert _places(producer.send((1, 0), data=large)) == [(1, 1), (0, 1)]
    assert producer.read == 1


def test_a_partition_that_is_new_to_the_connection_is_read_once(producer: Producer) -> None:
    producer.send((0, 1))
    producer.send((0, 5))
    assert producer.read == 2
    producer.send((5, 1))
    assert producer.read == 2


def test_a_partition_that_does_not_exist_is_refused_by_itself(producer: Producer) -> None:
    producer.send((0, 1))
    known, unknown = producer.send((0, PARTITIONS))
    assert (known.error_code, known.base_offset) == (ErrorCode.NONE, 1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_damaged_batch_is_refused_in_the_words_that_it_always_is(producer: Producer) -> None:
    ordinary = producer.send((0, 1, 2), damaged=(1,))
    assert producer.read == 1
    short = producer.send((0, 1, 2), damaged=(1,))
    assert producer.read == 1
    assert [answer.error_code for answer in short] == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert short[1] == ordinary[1]
    assert _places(producer.send((0, 1, 2))) == [(0, 2), (1, 0), (2, 2)]


def test_the_same_partition_twice_gets_two_places(producer: Producer) -> None:
    producer.send((0, 1))
    assert _places(producer.send((0, 0, 1))) == [(0, 1), (0, 2), (1, 1)]
    assert producer.read == 1


def test_a_full_disk_refuses_what_has_no_room(producer: Producer) -> None:
    producer.send((0, 1))
    producer.send((0, 1))
    disk, data = producer.door.stage.disk, batch(b"v")
    disk.capacity_bytes = disk.used_bytes() + len(data)
    first, second = producer.send((0, 1), data=data)
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    disk.heal()
    assert _places(producer.send((0, 1), data=data)) == [(0, 3), (1, 2)]


def test_requests_without_an_answer_are_read(producer: Producer) -> None:
    for _ in range(5):
        producer.send_all([(0, 1)], acks=0)
    assert producer.read == 5


def test_a_request_for_all_acknowledgements_like_an_earlier_one_is_not_read(producer: Producer) -> None:
    for _ in range(5):
        producer.send_all([(0, 1)], acks=-1)
    assert producer.read == 1


def test_a_topic_that_was_made_anew_is_learned_anew(producer: Producer) -> None:
    producer.send((0, 1), version=12)
    stage = producer.door.stage
    stage.call(DeleteTopicsRequest([DeleteTopicState(TOPIC)]))
    stage.scheduler.run()
    stage.create(TOPIC, 2)
    assert _places(producer.send((0, 1), version=12)) == [(0, 0), (1, 0)]
    assert producer.read == 2
    assert _places(producer.send((1, 0), version=12)) == [(1, 1), (0, 1)]
    assert producer.read == 2


@pytest.mark.parametrize(("together", "waited_for"), [(1, 0), (2, 2), (3, 3), (4, 4), (5, 5), (6, 5)])
def test_as_many_requests_as_came_together_are_waited_for_up_to_five(
    producer: Producer, together: int, waited_for: int
) -> None:
    _hurry(producer)
    producer.send_all([(0, 1)] * together, data=LARGE)

    told = producer.line.transport.marks.told
    assert [mark // (2 * len(LARGE)) for mark in told] == ([waited_for] if waited_for else [])


def test_those_of_a_producer_at_its_leisure_are_not_waited_for(producer: Producer) -> None:
    _hurry(producer)
    producer.door.pass_time(1)
    producer.send_all([(0, 1)] * 3, data=LARGE)

    assert producer.line.transport.marks.told == []


@pytest.mark.parametrize("size", [100, 80_000])
def test_neither_small_requests_are_waited_for_nor_large_ones(producer: Producer, size: int) -> None:
    _hurry(producer)
    producer.send_all([(0, 1)] * 2, data=batch(b"v" * size))

    assert producer.line.transport.marks.told == []


def test_requests_that_would_not_meet_in_a_partition_are_not_waited_for(producer: Producer) -> None:
    _hurry(producer)
    producer.send(range(12))
    producer.send_all([(0, 1)] * 2, data=LARGE)
    assert producer.line.transport.marks.told == []

    producer.send_all([(0, 1, 2)] * 2, data=LARGE)
    assert len(producer.line.transport.marks.told) == 1


def test_a_request_behind_that_has_come_in_part_is_under_way_too(producer: Producer) -> None:
    _hurry(producer)
    stream = producer.encoded([(0, 1)] * 2, data=LARGE)
    producer.line.send(stream[: len(stream) * 3 // 4])

    assert [mark // (2 * len(LARGE)) for mark in producer.line.transport.marks.told] == [2]


def test_a_connection_remembers_a_limited_number_of_topics() -> None:
    door = Door()
    producer = Producer(door)
    for number in range(TOPICS_MAX + 1):
        name = f"topic-{number:03}"
        door.stage.create(name, 2)
        producer.send((0, 1), topic=name)
    assert len(producer.line.session._repeats.spread._topics) <= TOPICS_MAX
    read = producer.read
    producer.send((0, 1), topic=f"topic-{TOPICS_MAX:03}")
    assert producer.read == read
    producer.line.end()
    door.close()
