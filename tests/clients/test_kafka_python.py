"""kafka-python, unmodified, against a server."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from tests.clients.abilities import Ability, check_account, shows
from tests.clients.server_process import Make, ServerProcess
from tests.clients.version_cap import capped_server
from tests.report import Report

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import TopicAlreadyExistsError

SECONDS_MAX = 60
CODECS = (None, "gzip", "snappy", "lz4", "zstd")

pytestmark = [
    pytest.mark.slow,
    # The same for the definitions that it reads at first use.
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # kafka-python leaves the socket of a connection that it gives up, as it does when the machine stands still.
    pytest.mark.leaves_sockets,
]

LACKING: dict[Ability, str] = {}

BROKER_VERSIONS = [
    (0, 11), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5), (2, 6), (2, 7), (2, 8),
    (3, 0), (3, 7), (3, 9), (4, 0), (4, 3),
]  # fmt: skip
"""What the client can be told to take the broker for. Older ones speak formats that Kafka 4 refuses too."""

GROWTH_SINCE = (1, 0)
"""Before, there was no request for more partitions."""
CONFIGS_SINCE = (2, 0)
"""Before, it asks for configs in a version (0) that Kafka 4 refuses too."""

VERSIONS = {
    ApiKey.PRODUCE: range(3, 10),
    ApiKey.FETCH: range(4, 13),
    ApiKey.LIST_OFFSETS: range(1, 12),
    ApiKey.METADATA: range(4, 14),
    ApiKey.CREATE_TOPICS: range(2, 8),
    ApiKey.DELETE_TOPICS: range(1, 7),
    ApiKey.DELETE_RECORDS: range(3),
    ApiKey.INIT_PRODUCER_ID: range(5),
    ApiKey.DESCRIBE_CONFIGS: range(1, 5),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: range(2),
    ApiKey.CREATE_PARTITIONS: range(4),
}
"""All that this client can be brought to use, each of which must work."""


class Client:
    """A producer, a consumer and an admin for one address, which take the broker for one of a version."""

    def __init__(self, address: str, api_version: tuple[int, ...] | None = None) -> None:
        self.settings: dict[str, Any] = {"bootstrap_servers": address, "api_version": api_version}

    @contextmanager
    def admin(self) -> Iterator[Any]:
        with closing(KafkaAdminClient(**self.settings)) as admin:
            yield admin

    def create(self, topic: str, *, partitions: int = 1, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": settings}
        with self.admin() as admin:
            admin.create_topics({topic: wanted})

    def produce(self, topic: str, values: list[bytes], **settings: Any) -> list[int]:
        with closing(KafkaProducer(**self.settings, linger_ms=5, **settings)) as producer:
            sent = [
                producer.send(topic, value, key=b"k", partition=0, timestamp_ms=1_000_000 + number)
                for number, value in enumerate(values)
            ]
            producer.flush(SECONDS_MAX)
            return [future.get(SECONDS_MAX).offset for future in sent]

    @contextmanager
    def consumer(self, topic: str) -> Iterator[tuple[Any, TopicPartition]]:
        consumer = KafkaConsumer(
            **self.settings, group_id=None, consumer_timeout_ms=SECONDS_MAX * 1000, auto_offset_reset="none"
        )
        place = TopicPartition(topic, 0)
        try:
            consumer.assign([place])
            yield consumer, place
        finally:
            consumer.close()

    def read(self, topic: str, offset: int | None, count: int) -> list[tuple[int, bytes]]:
        """Records from an offset on, or from the beginning."""
        with self.consumer(topic) as (consumer, place):
            if offset is None:
                consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, offset)
            return [(record.offset, record.value) for _, record in zip(range(count), consumer, strict=False)]

    def config(self, topic: str) -> dict[str, Any]:
        with self.admin() as admin:
            told = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        (resources,) = told.values()
        return {name: entry["value"] for name, entry in resources[topic].items()}

    def set_config(self, topic: str, name: str, value: str, **how: Any) -> None:
        with self.admin() as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: value})], **how)


@pytest.fixture(scope="module")
def client(ottla_server: ServerProcess) -> Client:
    return Client(ottla_server.address)


def test_the_table_accounts_for_every_ability() -> None:
    check_account(sys.modules[__name__], LACKING)


@shows(Ability.CREATE_TOPICS)
def test_it_creates_topics_with_partitions_and_configs(client: Client) -> None:
    client.create("created", partitions=4, retention_ms="123456")
    with client.admin() as admin:
        (told,) = admin.describe_topics(["created"])
    assert len(told["partitions"]) == 4
    assert client.config("created")["retention.ms"] == "123456"
    with pytest.raises(TopicAlreadyExistsError):
        client.create("created")


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
    client.produce(topic, values, acks=acks, enable_idempotence=False)
    assert [value for _, value in client.read(topic, None, 50)] == values


@shows(Ability.IDEMPOTENT)
def test_it_produces_idempotently(client: Client) -> None:
    client.create("idempotent")
    values = [b"%d" % number for number in range(500)]
    assert client.produce("idempotent", values, enable_idempotence=True, batch_size=200) == list(range(500))
    assert client.read("idempotent", None, 500) == list(enumerate(values))


@shows(Ability.FETCH_END)
def test_it_reads_from_the_end_only_what_comes_afterwards(client: Client) -> None:
    client.create("end")
    client.produce("end", [b"old"] * 20)
    with client.consumer("end") as (consumer, place):
        consumer.seek_to_end(place)
        assert consumer.position(place) == 20
        client.produce("end", [b"new"])
        assert next(consumer).value == b"new"


@shows(Ability.FETCH_OFFSET)
def test_it_reads_from_an_offset(client: Client) -> None:
    client.create("offset")
    client.produce("offset", [b"%d" % number for number in range(100)])
    assert client.read("offset", 63, 2) == [(63, b"63"), (64, b"64")]
    with client.consumer("offset") as (consumer, place):
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 100}


@shows(Ability.FETCH_TIMESTAMP)
def test_it_finds_offsets_by_timestamp_and_reads_from_there(client: Client) -> None:
    client.create("times")
    client.produce("times", [b"%d" % number for number in range(100)])
    with client.consumer("times") as (consumer, place):
        found = consumer.offsets_for_times({place: 1_000_042})[place]
        assert (found.offset, found.timestamp) == (42, 1_000_042)
        assert consumer.offsets_for_times({place: 2_000_000})[place] is None
    assert client.read("times", found.offset, 1) == [(42, b"42")]


@shows(Ability.ALTER_CONFIG)
@pytest.mark.parametrize("incremental", [True, False])
def test_it_alters_a_config_and_sees_the_change(client: Client, incremental: bool) -> None:
    topic = f"configs-{incremental}"
    client.create(topic, retention_ms="1000")
    client.set_config(topic, "retention.ms", "777", incremental=incremental)
    assert client.config(topic)["retention.ms"] == "777"


@shows(Ability.ADD_PARTITIONS)
def test_it_adds_partitions(client: Client) -> None:
    client.create("grown")
    with client.admin() as admin:
        admin.create_partitions({"grown": 3})
        (told,) = admin.describe_topics(["grown"])
    assert len(told["partitions"]) == 3


@shows(Ability.DELETE_RECORDS)
def test_it_deletes_records_below_an_offset(client: Client) -> None:
    client.create("trimmed")
    client.produce("trimmed", [b"%d" % number for number in range(10)])
    with client.admin() as admin:
        (told,) = admin.delete_records({TopicPartition("trimmed", 0): 4}).values()
    assert told["low_watermark"] == 4
    assert client.read("trimmed", None, 1) == [(4, b"4")]


@shows(Ability.DELETE_TOPICS)
def test_it_deletes_topics_and_makes_them_anew_empty(client: Client) -> None:
    client.create("deleted")
    client.produce("deleted", [b"gone"])
    with client.admin() as admin:
        admin.delete_topics(["deleted"])
        assert "deleted" not in admin.list_topics()
    client.create("deleted")
    assert client.produce("deleted", [b"fresh"]) == [0]


@pytest.mark.parametrize("api_version", BROKER_VERSIONS, ids=lambda version: ".".join(map(str, version)))
def test_it_works_when_it_takes_the_broker_for_an_older_one(
    ottla_server: ServerProcess, api_version: tuple[int, ...]
) -> None:
    client = Client(ottla_server.address, api_version)
    _do_everything(client, f"told-{'.'.join(map(str, api_version))}", taken_for=api_version)


def test_every_version_that_it_can_be_brought_to_use_works(make_server: Make, report_lines: Report) -> None:
    with capped_server(make_server) as (_, cap):
        # From older metadata it concludes that the broker takes only message formats that Kafka 4 refuses.
        cap.at_least = {ApiKey.METADATA: 4}
        for level in range(max(versions.stop for versions in VERSIONS.values())):
            cap.level = level
            _do_everything(Client(cap.address), f"level-{level}")
        used = {key: cap.versions(key) for key in VERSIONS}
    for key, versions in used.items():
        report_lines.say("versions: kafka-python", f"{key.name} {sorted(versions)}")
    assert used == {key: set(versions) for key, versions in VERSIONS.items()}


def _do_everything(client: Client, topic: str, *, taken_for: tuple[int, ...] = BROKER_VERSIONS[-1]) -> None:
    client.create(topic)
    values = [b"%d" % number for number in range(20)]
    assert client.produce(topic, values) == list(range(20))
    assert client.read(topic, 3, 17) == list(enumerate(values))[3:]
    with client.consumer(topic) as (consumer, place):
        assert consumer.end_offsets([place]) == {place: 20}
        assert consumer.offsets_for_times({place: 1_000_007})[place].offset == 7
    if taken_for >= CONFIGS_SINCE:
        client.set_config(topic, "retention.ms", "777")
        assert client.config(topic)["retention.ms"] == "777"
    with client.admin() as admin:
        if taken_for >= GROWTH_SINCE:
            admin.create_partitions({topic: 2})
        admin.delete_records({TopicPartition(topic, 0): 5})
        admin.delete_topics([topic])
