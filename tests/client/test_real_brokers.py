"""The client against brokers that were not written for its tests: Ottla embedded, Ottla over sockets, Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

import pytest

import ottla
from ottla.client.admin import ConfigEntry
from ottla.client.blocking.client import Client
from ottla.client.client import AsyncClient
from ottla.client.values import NO_OFFSET, NewRecord, OffsetSpec, TopicPartition
from ottla.testing.server_thread import ServerThread
from tests.client.kafka_server import kafka_server
from tests.peers.tools import Tools

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_AUTO_CREATION = {"auto.create.topics.enable": "false"}
_numbers = count()
Told = TypeVar("Told")


class Target:
    """A running broker, and the ways to it."""

    def __init__(
        self, blocking: Callable[[], Client], background: Callable[[], AsyncClient], *, patience_s: float = 0
    ) -> None:
        self.blocking = blocking
        self.background = background
        self._patience_s = patience_s
        """How long it may take until a change that was taken is shown."""

    def settled(self, ask: Callable[[], Told], expected: Callable[[Told], bool]) -> Told:
        """What it tells, as soon as that is what is expected; or at last."""
        end_s = monotonic() + self._patience_s
        while not expected(told := ask()) and monotonic() < end_s:
            sleep(0.02)
        return told


@pytest.fixture(scope="module")
def kafka_address(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_server(Tools(java, kafka_jars), tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(
    params=["embedded", "sockets", pytest.param("kafka", marks=[pytest.mark.peers, pytest.mark.slow])],
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "kafka":
        address = request.getfixturevalue("kafka_address")
        # A broker of Kafka's hears of a change from its controller, a moment after that has taken it.
        yield Target(lambda: ottla.connect(address), lambda: ottla.connect_async(address), patience_s=10)
    elif request.param == "sockets":
        server = ServerThread(str(tmp_path / "data"), NO_AUTO_CREATION)
        server.start()
        yield Target(lambda: ottla.connect(server.bootstrap), lambda: ottla.connect_async(server.bootstrap))
        server.stop()
    else:
        path = tmp_path / "data"
        yield Target(
            lambda: ottla.open(path, config=NO_AUTO_CREATION), lambda: ottla.open_async(path, config=NO_AUTO_CREATION)
        )


@pytest.fixture
def real(target: Target) -> Iterator[Client]:
    with target.blocking() as client:
        yield client


@pytest.fixture
def topic(real: Client) -> str:
    """A fresh topic of three partitions."""
    name = f"topic-{next(_numbers)}"
    assert real.admin().create_topic(name, partitions=3).partition_count == 3
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_every_codec_comes_back_as_it_was_sent(real: Client, topic: str, codec: str) -> None:
    records = [
        NewRecord(b"v%d" % n * 20, b"k%d" % (n % 7), [("n", b"%d" % n)], timestamp_ms=1_700_000_000_000 + n)
        for n in range(300)
    ]
    places = real.producer(compression=codec).send_batch(topic, records)
    consumer = real.consumer()
    consumer.subscribe([topic])

    read = {record.position: record for record in consumer.records(idle_ms=200)}

    assert len(read) == 300
    for new, place in zip(records, places, strict=True):
        found = read[place]
        assert (found.value, found.key, found.timestamp_ms) == (new.value, new.key, new.timestamp_ms)
        assert list(found.headers) == list(new.headers)


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_every_acks_mode_delivers(real: Client, topic: str, acks: str | int) -> None:
    # A partition that is just being set up would drop what nobody waits for.
    assert real.producer().send_to(topic, 0, b"first").offset == 0
    with real.producer(acks=acks) as producer:
        places = [producer.send_to(topic, 0, b"%d" % number) for number in range(20)]
    consumer = real.consumer()
    consumer.assign([(topic, 0)])

    read = []
    for record in consumer.records(idle_ms=5_000):
        read.append(record.value)
        if len(read) == 21:
            break

    assert read == [b"first", *(b"%d" % number for number in range(20))]
    assert [place.offset for place in places] == ([NO_OFFSET] * 20 if acks == 0 else list(range(1, 21)))


def test_many_submitted_records_arrive_once_and_in_order(real: Client, topic: str) -> None:
    with real.producer(linger_ms=1, batch_bytes=2_000) as producer:
        futures = [producer.submit(topic, b"%d" % number, partition=number % 3) for number in range(3_000)]
    consumer = real.consumer()
    consumer.subscribe([topic])
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}

    for record in consumer.records(idle_ms=200):
        found[record.partition].append(int(record.value or b""))

    assert found == {partition: list(range(partition, 3_000, 3)) for partition in range(3)}
    assert [future.result(0).offset for future in futures[:3]] == [0, 0, 0]


def test_reading_starts_at_begin_end_offset_and_time(real: Client, topic: str) -> None:
    producer = real.producer()
    for number in range(10):
        producer.send_to(topic, 1, b"%d" % number, timestamp_ms=1_700_000_000_000 + number * 1_000)
    consumer = real.consumer()
    consumer.assign([(topic, 1)])

    assert len(consumer.poll(5_000)) == 10
    consumer.seek(topic, 1, offset=7)
    assert [record.value for record in consumer.poll(5_000)] == [b"7", b"8", b"9"]
    consumer.seek_to_time(1_700_000_000_000 + 7_500)
    assert [record.value for record in consumer.poll(5_000)] == [b"8", b"9"]
    consumer.seek_to_end()
    assert consumer.position(topic, 1) == 10
    assert consumer.poll(0) == []
    consumer.seek_to_beginning()
    assert [record.offset for record in consumer.poll(5_000, records_max=2)] == [0, 1]


def test_offsets_are_listed_by_name_and_time(real: Client, topic: str) -> None:
    producer = real.producer()
    for number in range(5):
        producer.send_to(topic, 0, b"x", timestamp_ms=1_700_000_000_000 + number)
    admin = real.admin()
    key = TopicPartition(topic, 0)

    found = {
        spec: admin.list_offsets({key: spec})[key]
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, 1_700_000_000_003, 2**50)
    }

    assert [place and place.offset for place in found.values()] == [0, 5, 4, 3, None]


def test_deleted_records_are_skipped_by_a_reader_from_the_start(real: Client, topic: str) -> None:
    real.producer().send_batch(topic, [NewRecord(b"%d" % number, partition=2) for number in range(10)])
    consumer = real.consumer()
    consumer.assign([(topic, 2)])
    assert consumer.position(topic, 2) == 0

    assert real.admin().delete_records({(topic, 2): 6}) == {TopicPartition(topic, 2): 6}

    assert [record.value for record in consumer.poll(5_000)] == [b"6", b"7", b"8", b"9"]


def test_partitions_are_added_and_written_to(real: Client, topic: str) -> None:
    producer = real.producer()
    producer.send(topic, b"x")
    real.admin().add_partitions(topic, new_total=5)

    assert producer.send_to(topic, 4, b"x").offset == 0
    with pytest.raises(ottla.InvalidPartitionCount):
        real.admin().add_partitions(topic, new_total=2)


def test_configs_are_changed_and_taken_back(target: Target, real: Client, topic: str) -> None:
    admin = real.admin()

    def told() -> ConfigEntry:
        return admin.describe_configs(topic=topic)["retention.ms"]

    default = told()

    admin.alter_configs(topic=topic, set={"retention.ms": "12345"})
    changed = target.settled(told, lambda entry: not entry.is_default)
    admin.alter_configs(topic=topic, delete=["retention.ms"])

    assert (changed.value, changed.is_default) == ("12345", False)
    assert target.settled(told, lambda entry: entry.is_default) == default
    with pytest.raises(ottla.InvalidConfig):
        admin.alter_configs(topic=topic, set={"retention.ms": "soon"})


def test_a_topic_created_anew_is_written_and_read_from_offset_0(real: Client, topic: str) -> None:
    producer = real.producer()
    producer.send_to(topic, 0, b"old")
    consumer = real.consumer()
    consumer.assign([(topic, 0)])
    assert [record.value for record in consumer.poll(5_000)] == [b"old"]
    real.admin().delete_topic(topic)
    real.admin().create_topic(topic, partitions=1)

    assert producer.send_to(topic, 0, b"new").offset == 0
    assert [record.value for record in consumer.poll(10_000)] == [b"new"]


def test_refusals_have_their_own_classes(real: Client, topic: str) -> None:
    admin, producer = real.admin(), real.producer(topic_wait_ms=0)

    with pytest.raises(ottla.TopicExists):
        admin.create_topic(topic)
    with pytest.raises(ottla.TopicNotFound):
        admin.delete_topic("nowhere")
    with pytest.raises(ottla.TopicNotFound):
        producer.send("nowhere", b"x")
    with pytest.raises(ottla.PartitionNotFound):
        producer.send_to(topic, 3, b"x")
    with pytest.raises(ottla.InvalidReplicationFactor):
        admin.create_topic("too-safe", replication_factor=3)
    with pytest.raises(ottla.InvalidTopicName):
        admin.create_topic("not a name!")
    with pytest.raises(ottla.RecordTooLarge):
        producer.send_to(topic, 0, bytes(2_000_000))
    # The refused batch left no gap in the numbering.
    assert producer.send_to(topic, 0, b"x").offset == 0


def test_topics_and_the_cluster_are_described(real: Client, topic: str) -> None:
    admin = real.admin()

    assert topic in admin.list_topics()
    assert admin.partition_count(topic) == 3
    assert admin.describe_topic("nowhere") is None
    cluster = admin.cluster()
    assert cluster.cluster_id
    assert [broker.node_id for broker in cluster.brokers] == [cluster.controller]


def test_a_poll_wakes_when_another_client_appends(real: Client, topic: str) -> None:
    consumer = real.consumer(start="end")
    consumer.assign([(topic, 0)])
    assert consumer.position(topic, 0) == 0
    assert consumer.poll(0) == []
    future = real.producer(linger_ms=50).submit(topic, b"late", partition=0)

    assert [record.value for record in consumer.poll(30_000)] == [b"late"]
    assert future.result(30).offset == 0


def test_the_async_face_tells_the_same_story(target: Target) -> None:
    name = f"topic-{next(_numbers)}"

    async def story() -> None:
        async with target.background() as client:
            assert (await client.admin().create_topic(name, partitions=2)).partition_count == 2
            async with client.producer() as producer:
                places = await producer.send_batch(name, [NewRecord(b"%d" % n, b"%d" % n) for n in range(50)])
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(producer.send(name, b"t%d" % n)) for n in range(50)]
            places += [task.result() for task in tasks]
            async with client.consumer() as consumer:
                await consumer.subscribe([name])
                read = [record.position async for record in consumer.records(idle_ms=300)]
            assert sorted(read, key=lambda p: (p.partition, p.offset)) == sorted(
                places, key=lambda p: (p.partition, p.offset)
            )

    asyncio.run(story())
