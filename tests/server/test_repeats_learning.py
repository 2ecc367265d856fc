"""Which requests a connection learns to answer without reading them, and when it reads them after all."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import cast

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from ottla.protocol.wire import COPIED_BYTES_MAX
from ottla.records.compression import Codec
from ottla.server.repeats import SHAPES_MAX
from tests.broker.stage import produce_request
from tests.server.repeats_stage import Door, Line
from tests.storage.workbench import batch

TOPIC = "orders"
READ_FIRST = 3
"""A log's first batches are looked at one by one, so that many requests are read before one is not."""


class Producer:
    """A client that sends alike requests over one connection."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.line = Line(door)
        self._client = ClientConnection("producer")

    def send(
        self,
        count: int = 1,
        *,
        version: int = 9,
        partition: int = 0,
        data: bytes | None = None,
        acks: int = 1,
        cut_at: int = 0,
    ) -> list[PartitionProduceResponse]:
        """Send requests in one pass, or in two that are cut anywhere; what each of them got."""
        stage = self.door.stage
        is_by_id = version >= 13
        topic = stage.broker.services.catalog.image.topics.get(TOPIC)
        topic_id = topic.topic_id.bytes if is_by_id and topic is not None else bytes(16)
        request = produce_request(
            "" if is_by_id else TOPIC, partition, batch(b"v") if data is None else data, acks=acks, topic_id=topic_id
        )
        stream = b"".join(b"".join(self._client.send(ApiKey.PRODUCE, version, request)[1]) for _ in range(count))
        for piece in (stream[:cut_at], stream[cut_at:]) if cut_at else (stream,):
            self.line.send(piece)
        self.door.settle()
        answers = []
        for response in self._client.receive(self.line.take()):
            assert isinstance(response.message, ProduceResponse)
            answers.append(response.message.responses[0].partition_responses[0])
        return answers

    def read(self, count: int = 1, **how: int | bytes) -> int:
        """How many of so many alike requests, one in each pass, were read; all of them have been served."""
        before = self.door.broker.produced
        for _ in range(count):
            (answer,) = self.send(**how)  # type: ignore[arg-type]
            assert answer.error_code == ErrorCode.NONE
        return self.door.broker.produced - before


@pytest.fixture
def producer() -> Iterator[Producer]:
    door = Door()
    door.stage.create(TOPIC, 2)
    made = Producer(door)
    yield made
    made.line.end()
    door.close()


@pytest.mark.parametrize("version", range(5, 14))
def test_a_request_like_an_earlier_one_is_not_read(producer: Producer, version: int) -> None:
    producer.read(READ_FIRST, version=version)
    assert producer.read(10, version=version) == 0


def test_one_that_is_larger_than_allowed_ends_the_connection_though_it_is_like_an_earlier_one() -> None:
    door = Door(request_bytes_max=2_000)
    door.stage.create(TOPIC, 1)
    producer = Producer(door)
    producer.read(READ_FIRST)
    assert producer.read(data=batch(b"v" * 1_500)) == 0
    assert producer.send(data=batch(b"v" * 2_000)) == []
    assert producer.line.transport.is_closed
    assert door.stage.partition(TOPIC).log.end_offset == READ_FIRST + 1
    producer.line.end()
    door.close()


@pytest.mark.parametrize("version", [3, 4])
def test_versions_whose_answers_leave_something_out_are_read(producer: Producer, version: int) -> None:
    assert producer.read(10, version=version) == 10


def test_requests_without_an_answer_are_read(producer: Producer) -> None:
    for _ in range(10):
        producer.send(acks=0)
    assert producer.door.broker.produced == 10


@pytest.mark.parametrize("level", ["os", "disk"])
def test_a_request_for_all_acknowledgements_like_an_earlier_one_is_not_read(producer: Producer, level: str) -> None:
    producer.door.alter(TOPIC, "ottla.acks.all", level)
    producer.read(READ_FIRST, acks=-1)
    assert producer.read(10, acks=-1) == 0


def test_those_that_come_together_get_offsets_of_their_own(producer: Producer) -> None:
    producer.read(READ_FIRST)
    before = producer.door.broker.produced
    answers = producer.send(5, data=batch(b"a", b"b"))
    assert [answer.base_offset for answer in answers] == [3, 5, 7, 9, 11]
    assert producer.door.broker.produced == before


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_large_request_like_an_earlier_one_is_not_read(producer: Producer, version: int) -> None:
    large = batch(bytes(COPIED_BYTES_MAX))
    producer.send(READ_FIRST, version=version, data=large)
    before = producer.door.broker.produced
    answers = producer.send(5, version=version, data=large)
    assert [answer.base_offset for answer in answers] == [READ_FIRST + number for number in range(5)]
    assert producer.door.broker.produced == before


def test_a_large_request_that_comes_in_two_pieces_is_not_read(producer: Producer) -> None:
    large = batch(bytes(COPIED_BYTES_MAX))
    producer.send(READ_FIRST, data=large)
    before = producer.door.broker.produced
    answers = producer.send(3, data=large, cut_at=COPIED_BYTES_MAX + 5_000)
    assert [answer.base_offset for answer in answers] == [READ_FIRST + number for number in range(3)]
    assert producer.door.broker.produced == before


def test_a_compression_that_not_every_version_knows_is_read(producer: Producer) -> None:
    producer.read(READ_FIRST)
    before = producer.door.broker.produced
    producer.send(2, data=batch(b"v", codec=Codec.ZSTD))
    assert producer.door.broker.produced == before + 2


def test_partitions_in_turn_in_one_pass_are_not_read(producer: Producer) -> None:
    for partition in (0, 1):
        producer.read(READ_FIRST, partition=partition)
    before = producer.door.broker.produced
    client = ClientConnection("producer")
    stream = b""
    for partition in (0, 1, 1, 0):
        stream += b"".join(client.send(ApiKey.PRODUCE, 9, produce_request(TOPIC, partition, batch(b"v"), acks=1))[1])
    producer.line.send(stream)
    answers = [cast(ProduceResponse, response.message) for response in client.receive(producer.line.take())]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == [READ_FIRST, READ_FIRST, READ_FIRST + 1, READ_FIRST + 1]
    assert producer.door.broker.produced == before


def test_partitions_in_turn_are_all_remembered(producer: Producer) -> None:
    for partition in (0, 1):
        producer.read(READ_FIRST, partition=partition)
    assert producer.read(partition=0) + producer.read(partition=1) + producer.read(partition=0) == 0


def test_another_version_with_the_same_head_is_learned_in_its_place(producer: Producer) -> None:
    producer.read(READ_FIRST + 1, version=9)
    assert producer.read(version=10) == 1
    assert producer.read(5, version=10) == 0


def test_a_topic_that_was_made_anew_is_learned_anew(producer: Producer) -> None:
    producer.read(READ_FIRST + 1)
    stage = producer.door.stage
    stage.call(DeleteTopicsRequest([DeleteTopicState(TOPIC)]))
    (refused,) = producer.send()
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stage.scheduler.run()
    producer.read(READ_FIRST)
    assert producer.read(5) == 0
    assert stage.partition(TOPIC).log.end_offset == READ_FIRST + 5


def test_a_connection_remembers_a_limited_number_of_heads() -> None:
    door = Door()
    door.stage.create(TOPIC, SHAPES_MAX + 1)
    producer = Producer(door)
    for partition in range(SHAPES_MAX + 1):
        producer.read(READ_FIRST, partition=partition)
    assert len(producer.line.session._repeats._shapes) <= SHAPES_MAX
    assert producer.read(partition=SHAPES_MAX) == 0
    producer.line.end()
    door.close()


def test_a_disk_that_fills_up_keeps_the_first_requests_of_a_pass(producer: Producer) -> None:
    producer.read(READ_FIRST)
    disk, data = producer.door.stage.disk, batch(b"v")
    disk.capacity_bytes = disk.used_bytes() + 2 * len(data)
    answers = producer.send(4, data=data)
    full = ErrorCode.KAFKA_STORAGE_ERROR
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE, ErrorCode.NONE, full, full]
    disk.heal()
    assert [answer.base_offset for answer in producer.send(2, data=data)] == [5, 6]


def test_a_disk_that_fails_refuses_all_requests_of_a_pass(producer: Producer) -> None:
    producer.read(READ_FIRST)
    producer.door.stage.disk.fail_next("append", ".log", errno.EIO)
    answers = producer.send(3)
    assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert not producer.line.transport.is_closed


def test_a_damaged_batch_among_good_ones_is_refused_by_itself(producer: Producer) -> None:
    producer.read(READ_FIRST)
    good, damaged = batch(b"v"), bytearray(batch(b"v"))
    damaged[-1] ^= 1
    client = ClientConnection("producer")
    frames = [
        b"".join(client.send(ApiKey.PRODUCE, 9, produce_request(TOPIC, 0, bytes(data), acks=1))[1])
        for data in (good, damaged, good)
    ]
    producer.line.send(b"".join(frames))
    codes = []
    for response in client.receive(producer.line.take()):
        assert isinstance(response.message, ProduceResponse)
        codes.append(response.message.responses[0].partition_responses[0].error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]


def _frame(data: bytes, *, length: bytes | None = None, end: bytes = b"\0\0\0") -> bytes:
    """A request of version 9, whose length of the records or whose end may be another than it should."""
    records_end = bytes((len(data) + 1,)) + data + b"\0\0\0"
    whole = b"".join(ClientConnection("producer").send(ApiKey.PRODUCE, 9, produce_request(TOPIC, 0, data, acks=1))[1])
    assert whole.endswith(records_end)
    body = whole[4 : -len(records_end)] + (length or records_end[:1]) + data + end
    return len(body).to_bytes(4) + body


def test_records_that_wait_for_the_disk_after_a_change_of_settings_do_so(producer: Producer) -> None:
    producer.read(READ_FIRST + 1)
    producer.door.alter(TOPIC, "flush.messages", "1")
    # The first batch after the change is looked at in any case.
    producer.send()
    producer.line.send(_frame(batch(b"v")))
    assert producer.line.take() == b""
    producer.door.settle()
    assert producer.line.take() != b""


def test_an_end_that_is_none_closes_the_connection(producer: Producer) -> None:
    producer.read(READ_FIRST + 1)
    producer.line.send(_frame(batch(b"v"), end=b"\0\0\1"))
    assert producer.line.transport.is_closed


def test_a_length_that_only_begins_like_an_earlier_one_closes_the_connection(producer: Producer) -> None:
    data = batch(b"v")
    low = len(data) + 1 | 0x80
    for _ in range(READ_FIRST):
        producer.line.send(_frame(data, length=bytes((low, 0))))
    assert not producer.line.transport.is_closed
    producer.line.send(_frame(data, length=bytes((low, len(data) + 1))))
    assert producer.line.transport.is_closed


def test_stray_bytes_that_look_like_records_are_never_taken_for_them(producer: Producer) -> None:
    data, other = batch(b"mine"), batch(b"them")
    for echoed in (data, data, data, other):
        producer.line.send(_frame(data, end=b"\0\0\0?" + bytes((len(echoed) + 1,)) + echoed + b"\0\0\0"))
    producer.door.stage.scheduler.advance(1_000)
    assert producer.door.stage.values(TOPIC) == [b"mine"] * 4
