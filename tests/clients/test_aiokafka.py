"""aiokafka, unmodified, against a server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete

from ottla.error_codes import ErrorCode
from tests.clients.abilities import Ability, check_account, shows
from tests.clients.server_process import ServerProcess

SECONDS_MAX = 60
CODECS = (None, "gzip", "snappy", "lz4", "zstd")

LACKING: dict[Ability, str] = {}

T = TypeVar("T")


class Client:
    """A producer, a consumer and an admin for one address; each call is a loop of its own."""

    def __init__(self, address: str) -> None:
        self._address = address

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def limited() -> T:
            return await asyncio.wait_for(work(), SECONDS_MAX)

        return asyncio.run(limited())

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._address)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    @asynccontextmanager
    async def consumer(self, topic: str) -> AsyncIterator[tuple[Any, TopicPartition]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._address, group_id=None, auto_offset_reset="none")
        await consumer.start()
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        try:
            yield consumer, place
        finally:
            await consumer.stop()

    def create(self, topic: str, *, partitions: int = 1, **config: str) -> list[int]:
        """Create a topic; the error codes that come back, of which there are none when it went well."""

        async def work() -> list[int]:
            settings = {name.replace("_", "."): value for name, value in config.items()}
            async with self.admin() as admin:
                told = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
            return [error for _, error, *_ in told.topic_errors if error]

        return self.run(work)

    def produce(self, topic: str, values: list[bytes], **settings: Any) -> list[int | None]:
        async def work() -> list[int | None]:
            producer = AIOKafkaProducer(bootstrap_servers=self._address, linger_ms=5, **settings)
            await producer.start()
            try:
                sent = [
                    await producer.send(topic, value, key=b"k", partition=0, timestamp_ms=1_000_000 + number)
                    for number, value in enumerate(values)
                ]
                done = await asyncio.gather(*sent)
            finally:
                await producer.stop()
            # Without acknowledgements nobody knows where a record went.
            return [None if one is None else one.offset for one in done]

        return self.run(work)

    def read(self, topic: str, offset: int | None, count: int) -> list[tuple[int, bytes]]:
        async def work() -> list[tuple[int, bytes]]:
            async with self.consumer(topic) as (consumer, place):
                if offset is None:
                    await consumer.seek_to_beginning(place)
                else:
                    consumer.seek(place, offset)
                found = [await consumer.getone() for _ in range(count)]
            return [(record.offset, record.value) for record in found]

        return self.run(work)


@pytest.fixture(scope="module")
def client(ottla_server: ServerProcess) -> Client:
    return Client(ottla_server.address)


def test_the_table_accounts_for_every_ability() -> None:
    check_account(sys.modules[__name__], LACKING)


@shows(Ability.CREATE_TOPICS)
def test_it_creates_topics_with_partitions_and_configs(client: Client) -> None:
    assert client.create("created", partitions=4, retention_ms="123456") == []
    assert client.create("created") == [ErrorCode.TOPIC_ALREADY_EXISTS]

    async def work() -> list[dict[str, Any]]:
        async with client.admin() as admin:
            told: list[dict[str, Any]] = await admin.describe_topics(["created"])
            return told

    (topic,) = client.run(work)
    assert len(topic["partitions"]) == 4


@shows(Ability.EVERY_CODEC, Ability.FETCH_BEGIN)
@pytest.mark.parametrize("codec", CODECS)
def test_it_reads_from_the_beginning_what_it_produced_with_each_codec(client: Client, codec: str | None) -> None:
    topic = f"codec-{codec}"
    client.create(topic)
    values = [b"%d " % number + b"x" * 500 for number in range(200)]
    assert client.produce(topic, values, compression_type=codec) == list(range(200))
    assert client.read(topic, None, 200) == list(enumerate(values))


@shows(Ability.EVERY_ACKS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_it_produces_with_each_acks_mode(client: Client, acks: int | str) -> None:
    topic = f"acks-{acks}"
    client.create(topic)
    values = [b"%d" % number for number in range(50)]
    client.produce(topic, values, acks=acks)
    assert [value for _, value in client.read(topic, None, 50)] == values


@shows(Ability.IDEMPOTENT)
def test_it_produces_idempotently(client: Client) -> None:
    client.create("idempotent")
    values = [b"%d" % number for number in range(500)]
    offsets = client.produce("idempotent", values, enable_idempotence=True, max_batch_size=300)
    assert offsets == list(range(500))
    assert client.read("idempotent", None, 500) == list(enumerate(values))


@shows(Ability.FETCH_END)
def test_it_reads_from_the_end_only_what_comes_afterwards(client: Client) -> None:
    client.create("end")
    client.produce("end", [b"old"] * 20)

    async def work() -> tuple[int, bytes]:
        async with client.consumer("end") as (consumer, place):
            await consumer.seek_to_end(place)
            position = await consumer.position(place)
            await asyncio.to_thread(client.produce, "end", [b"new"])
            return position, (await consumer.getone()).value

    assert client.run(work) == (20, b"new")


@shows(Ability.FETCH_OFFSET)
def test_it_reads_from_an_offset(client: Client) -> None:
    client.create("offset")
    client.produce("offset", [b"%d" % number for number in range(100)])
    assert client.read("offset", 63, 2) == [(63, b"63"), (64, b"64")]

    async def work() -> tuple[int, int]:
        async with client.consumer("offset") as (consumer, place):
            return (await consumer.beginning_offsets([place]))[place], (await consumer.end_offsets([place]))[place]

    assert client.run(work) == (0, 100)


@shows(Ability.FETCH_TIMESTAMP)
def test_it_finds_offsets_by_timestamp_and_reads_from_there(client: Client) -> None:
    client.create("times")
    client.produce("times", [b"%d" % number for number in range(100)])

    async def work() -> tuple[Any, Any]:
        async with client.consumer("times") as (consumer, place):
            found = (await consumer.offsets_for_times({place: 1_000_042}))[place]
            none = (await consumer.offsets_for_times({place: 2_000_000}))[place]
            return found, none

    found, none = client.run(work)
    assert (found.offset, found.timestamp) == (42, 1_000_042)
    assert none is None
    assert client.read("times", found.offset, 1) == [(42, b"42")]


@shows(Ability.ALTER_CONFIG)
def test_it_alters_a_config_and_sees_the_change(client: Client) -> None:
    client.create("configs", retention_ms="1000")

    async def work() -> dict[str, str]:
        async with client.admin() as admin:
            await admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, "configs", configs={"retention.ms": "777"})]
            )
            (told,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "configs")])
        (resource,) = told.resources
        return {entry[0]: entry[1] for entry in resource[4]}

    assert client.run(work)["retention.ms"] == "777"


@shows(Ability.ADD_PARTITIONS)
def test_it_adds_partitions(client: Client) -> None:
    client.create("grown")

    async def work() -> list[dict[str, Any]]:
        async with client.admin() as admin:
            await admin.create_partitions({"grown": NewPartitions(3)})
            told: list[dict[str, Any]] = await admin.describe_topics(["grown"])
            return told

    (topic,) = client.run(work)
    assert len(topic["partitions"]) == 3


@shows(Ability.DELETE_RECORDS)
def test_it_deletes_records_below_an_offset(client: Client) -> None:
    client.create("trimmed")
    client.produce("trimmed", [b"%d" % number for number in range(10)])

    async def work() -> dict[TopicPartition, int]:
        async with client.admin() as admin:
            told: dict[TopicPartition, int] = await admin.delete_records(
                {TopicPartition("trimmed", 0): RecordsToDelete(before_offset=4)}
            )
            return told

    assert client.run(work) == {TopicPartition("trimmed", 0): 4}
    assert client.read("trimmed", None, 1) == [(4, b"4")]


@shows(Ability.DELETE_TOPICS)
def test_it_deletes_topics_and_makes_them_anew_empty(client: Client) -> None:
    client.create("deleted")
    client.produce("deleted", [b"gone"])

    async def work() -> list[str]:
        async with client.admin() as admin:
            await admin.delete_topics(["deleted"])
            names: list[str] = await admin.list_topics()
            return names

    assert "deleted" not in client.run(work)
    client.create("deleted")
    assert client.produce("deleted", [b"fresh"]) == [0]
