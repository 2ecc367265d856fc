"""confluent-kafka (librdkafka), unmodified, against a server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from ottla.protocol.api_keys import ApiKey
from tests.clients.abilities import Ability, check_account, shows
from tests.clients.server_process import Make, ServerProcess
from tests.clients.version_cap import capped_server
from tests.report import Report

SECONDS_MAX = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

pytestmark = pytest.mark.slow

LACKING: dict[Ability, str] = {}

VERSIONS = {
    ApiKey.PRODUCE: range(3, 11),
    ApiKey.FETCH: range(4, 17),
    ApiKey.LIST_OFFSETS: range(1, 8),
    ApiKey.METADATA: range(14),
    ApiKey.CREATE_TOPICS: range(2, 5),
    ApiKey.DELETE_TOPICS: range(1, 5),
    ApiKey.DELETE_RECORDS: range(3),
    ApiKey.INIT_PRODUCER_ID: range(5),
    ApiKey.DESCRIBE_CONFIGS: range(1, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: range(2),
    ApiKey.CREATE_PARTITIONS: range(3),
}
"""All that this client can be brought to use, each of which must work."""


class Client:
    """A producer, a consumer and an admin for one address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def create(self, topic: str, *, partitions: int = 1, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(SECONDS_MAX)

    def produce(self, topic: str, values: list[bytes], **settings: str | int | bool) -> list[int | None]:
        """Produce to partition 0 and wait; the offsets that were acknowledged."""
        delivered: list[Message] = []

        def done(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            delivered.append(message)

        names = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5, **names})
        for number, value in enumerate(values):
            producer.produce(topic, value, key=b"k", partition=0, timestamp=1_000_000 + number, on_delivery=done)
        assert producer.flush(SECONDS_MAX) == 0
        return [message.offset() for message in delivered]

    def consumer(self) -> Consumer:
        # The group is never joined: partitions are assigned by hand.
        settings = {"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
        return Consumer({"bootstrap.servers": self.address, **settings})

    def read(self, topic: str, offset: int, count: int) -> list[tuple[int | None, bytes | str | None]]:
        consumer = self.consumer()
        try:
            consumer.assign([TopicPartition(topic, 0, offset)])
            return [(message.offset(), message.value()) for message in _poll(consumer, count)]
        finally:
            consumer.close()


def _poll(consumer: Consumer, count: int) -> Iterator[Message]:
    deadline = time.monotonic() + SECONDS_MAX
    found = 0
    while found < count:
        assert time.monotonic() < deadline, f"only {found} of {count} records came"
        message = consumer.poll(0.5)
        if message is None:
            continue
        assert message.error() is None, message.error()
        found += 1
        yield message


def _until(settled: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not settled():
        assert time.monotonic() < deadline


@pytest.fixture(scope="module")
def client(ottla_server: ServerProcess) -> Client:
    return Client(ottla_server.address)


def test_the_table_accounts_for_every_ability() -> None:
    check_account(sys.modules[__name__], LACKING)


@shows(Ability.CREATE_TOPICS)
def test_it_creates_topics_with_partitions_and_configs(client: Client) -> None:
    client.create("created", partitions=4, retention_ms="123456")
    topics = client.admin.list_topics(timeout=SECONDS_MAX).topics
    assert sorted(topics["created"].partitions) == [0, 1, 2, 3]
    with pytest.raises(KafkaException) as caught:
        client.create("created")
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


@shows(Ability.EVERY_CODEC, Ability.FETCH_BEGIN)
@pytest.mark.parametrize("codec", CODECS)
def test_it_reads_from_the_beginning_what_it_produced_with_each_codec(client: Client, codec: str) -> None:
    topic = f"codec-{codec}"
    client.create(topic)
    values = [b"%d " % number + b"x" * 500 for number in range(200)]
    assert client.produce(topic, values, compression_type=codec) == list(range(200))
    assert client.read(topic, OFFSET_BEGINNING, 200) == list(enumerate(values))


@shows(Ability.EVERY_ACKS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_it_produces_with_each_acks_mode(client: Client, acks: str) -> None:
    topic = f"acks-{acks}"
    client.create(topic)
    values = [b"%d" % number for number in range(50)]
    client.produce(topic, values, acks=acks)
    assert [value for _, value in client.read(topic, OFFSET_BEGINNING, 50)] == values


@shows(Ability.IDEMPOTENT)
def test_it_produces_idempotently(client: Client) -> None:
    client.create("idempotent")
    values = [b"%d" % number for number in range(500)]
    offsets = client.produce("idempotent", values, enable_idempotence=True, batch_num_messages=7)
    assert offsets == list(range(500))
    assert client.read("idempotent", OFFSET_BEGINNING, 500) == list(enumerate(values))


@shows(Ability.FETCH_END)
def test_it_reads_from_the_end_only_what_comes_afterwards(client: Client) -> None:
    client.create("end")
    client.produce("end", [b"old"] * 20)
    consumer = client.consumer()
    try:
        consumer.assign([TopicPartition("end", 0, OFFSET_END)])
        new: list[Message] = []

        def arrived() -> bool:
            # When the consumer has found the end is not told, so it is given something new until it has.
            client.produce("end", [b"new"])
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                new.append(message)
            return bool(new)

        _until(arrived)
        assert new[0].value() == b"new"
    finally:
        consumer.close()


@shows(Ability.FETCH_OFFSET)
def test_it_reads_from_an_offset(client: Client) -> None:
    client.create("offset")
    client.produce("offset", [b"%d" % number for number in range(100)])
    assert client.read("offset", 63, 2) == [(63, b"63"), (64, b"64")]
    consumer = client.consumer()
    try:
        assert consumer.get_watermark_offsets(TopicPartition("offset", 0), timeout=SECONDS_MAX) == (0, 100)
    finally:
        consumer.close()


@shows(Ability.FETCH_TIMESTAMP)
def test_it_finds_offsets_by_timestamp_and_reads_from_there(client: Client) -> None:
    client.create("times")
    client.produce("times", [b"%d" % number for number in range(100)])
    consumer = client.consumer()
    try:
        asked = [TopicPartition("times", 0, 1_000_000 + 42), TopicPartition("times", 0, 2_000_000)]
        found = [consumer.offsets_for_times([one], timeout=SECONDS_MAX)[0].offset for one in asked]
    finally:
        consumer.close()
    assert found == [42, OFFSET_END]
    assert client.read("times", found[0], 1) == [(42, b"42")]


@shows(Ability.ALTER_CONFIG)
def test_it_alters_a_config_and_sees_the_change(client: Client) -> None:
    client.create("configs", retention_ms="1000")
    change = ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "configs", incremental_configs=[change])
    client.admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
    assert _config(client, "configs")["retention.ms"] == "777"
    whole = ConfigResource(ResourceType.TOPIC, "configs", set_config={"segment.bytes": "1048576"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        altered = client.admin.alter_configs([whole])
    altered[whole].result(SECONDS_MAX)
    after = _config(client, "configs")
    assert after["segment.bytes"] == "1048576"
    assert after["retention.ms"] != "777", "the older call resets what it does not name"


def _config(client: Client, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = client.admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    return {name: entry.value for name, entry in entries.items()}


@shows(Ability.ADD_PARTITIONS)
def test_it_adds_partitions_and_can_use_them_at_once(client: Client) -> None:
    client.create("grown")
    client.admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(SECONDS_MAX)
    assert len(client.admin.list_topics("grown", timeout=SECONDS_MAX).topics["grown"].partitions) == 3


@shows(Ability.DELETE_RECORDS)
def test_it_deletes_records_below_an_offset(client: Client) -> None:
    client.create("trimmed")
    client.produce("trimmed", [b"%d" % number for number in range(10)])
    place = TopicPartition("trimmed", 0, 4)
    deleted = client.admin.delete_records([place])
    assert [future.result(SECONDS_MAX).low_watermark for future in deleted.values()] == [4]
    assert client.read("trimmed", OFFSET_BEGINNING, 1) == [(4, b"4")]


@shows(Ability.DELETE_TOPICS)
def test_it_deletes_topics_and_makes_them_anew_empty(client: Client) -> None:
    client.create("deleted")
    client.produce("deleted", [b"gone"])
    client.admin.delete_topics(["deleted"])["deleted"].result(SECONDS_MAX)
    assert "deleted" not in client.admin.list_topics(timeout=SECONDS_MAX).topics
    client.create("deleted")
    assert client.produce("deleted", [b"fresh"]) == [0]


def test_every_version_that_it_can_be_brought_to_use_works(make_server: Make, report_lines: Report) -> None:
    with capped_server(make_server) as (_, cap):
        for level in range(max(len(versions) for versions in VERSIONS.values())):
            cap.level = level
            # Version 0 does not say who the controller is, and without one there is no admin.
            cap.at_least = {ApiKey.METADATA: 1}
            _do_everything(Client(cap.address), f"level-{level}")
        # Topic ids come with version 10 of the metadata, and are used from version 13 of a fetch on.
        cap.level, cap.at_least = 13 - 4, {ApiKey.METADATA: 13}
        _do_everything(Client(cap.address), "first-with-ids")
        cap.level, cap.at_least = 0, {}
        _produce_and_read(Client(cap.address), "made-by-asking")
        used = {key: cap.versions(key) for key in VERSIONS}
    for key, versions in used.items():
        report_lines.say("versions: confluent-kafka", f"{key.name} {sorted(versions)}")
    assert used == {key: set(versions) for key, versions in VERSIONS.items()}


def _produce_and_read(client: Client, topic: str) -> None:
    values = [b"%d" % number for number in range(20)]
    assert client.produce(topic, values, enable_idempotence=True) == list(range(20))
    assert client.read(topic, 3, 17) == list(enumerate(values))[3:]


def _do_everything(client: Client, topic: str) -> None:
    client.create(topic)
    _produce_and_read(client, topic)
    consumer = client.consumer()
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS_MAX) == (0, 20)
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1_000_007)], timeout=SECONDS_MAX)
        assert found.offset == 7
    finally:
        consumer.close()
    change = ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    client.admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
    assert _config(client, topic)["retention.ms"] == "777"
    client.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(SECONDS_MAX)
    (deleted,) = client.admin.delete_records([TopicPartition(topic, 0, 5)]).values()
    assert deleted.result(SECONDS_MAX).low_watermark == 5
    client.admin.delete_topics([topic])[topic].result(SECONDS_MAX)
