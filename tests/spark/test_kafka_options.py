"""Kafka's own settings: where they arrive, which are refused and why, which are only warned of."""

from __future__ import annotations

import pytest

from ottla.client.settings import Address, ClientSettings
from ottla.spark import kafka_options
from ottla.spark.errors import InvalidOption
from ottla.spark.kafka_options import REFUSED_READING, REFUSED_WRITING, SINK_BATCH_BYTES

SERVERS = {"bootstrap.servers": "a:1"}


@pytest.mark.parametrize(
    ("name", "text", "field", "expected"),
    [
        ("client.id", "me", "client_id", "me"),
        ("request.timeout.ms", "5000", "request_timeout_ms", 5_000),
        ("socket.connection.setup.timeout.ms", "700", "connect_timeout_ms", 700),
        ("retry.backoff.ms", "0", "retry_backoff_ms", 1),
        ("retry.backoff.max.ms", "4000", "retry_backoff_max_ms", 4_000),
        ("metadata.max.age.ms", "100", "metadata_age_max_ms", 100),
        ("security.protocol", "SSL", "security_protocol", "SSL"),
    ],
)
def test_settings_of_the_client_arrive(name: str, text: str, field: str, expected: object) -> None:
    assert getattr(kafka_options.connection(SERVERS | {name: text}).client, field) == expected


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [({"retry.backoff.ms": "5000"}, (5_000, 5_000)), ({"retry.backoff.max.ms": "10"}, (10, 10))],
)
def test_one_backoff_draws_the_other_along(given: dict[str, str], expected_ms: tuple[int, int]) -> None:
    client = kafka_options.connection(SERVERS | given).client

    assert (client.retry_backoff_ms, client.retry_backoff_max_ms) == expected_ms


@pytest.mark.parametrize(
    ("name", "text", "field", "expected"),
    [
        ("fetch.max.bytes", "1000", "request_bytes_max", 1_000),
        ("max.partition.fetch.bytes", "500", "partition_bytes_max", 500),
        ("fetch.max.wait.ms", "0", "wait_ms", 0),
        ("check.crcs", "false", "check_crcs", False),
    ],
)
def test_settings_of_fetching_arrive(name: str, text: str, field: str, expected: object) -> None:
    assert getattr(kafka_options.connection(SERVERS | {name: text}).fetch, field) == expected


def test_only_committed_records_are_read_when_that_is_asked_for() -> None:
    assert kafka_options.connection(SERVERS | {"isolation.level": "read_committed"}).isolation == "read_committed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1,b", [Address("a", 1), Address("b", 9092)]),
        ("PLAINTEXT://a:1, SSL://[::1]:2", [Address("a", 1), Address("::1", 2)]),
    ],
)
def test_brokers_are_named_as_for_any_client(text: str, expected: list[Address]) -> None:
    assert list(kafka_options.connection({"bootstrap.servers": text}).bootstrap) == expected


@pytest.mark.parametrize(
    ("name", "text", "field", "expected"),
    [
        ("acks", "ALL", "acks", "all"),
        ("acks", "-1", "acks", "all"),
        ("acks", "0", "acks", 0),
        ("acks", "1", "acks", 1),
        ("enable.idempotence", "true", "idempotent", True),
        ("compression.type", "ZSTD", "compression", "zstd"),
        ("linger.ms", "0", "linger_ms", 0),
        ("batch.size", "16384", "batch_bytes", 16_384),
        ("batch.size", "0", "batch_bytes", 1),
        ("buffer.memory", "1000", "buffer_bytes", 1_000),
        ("max.block.ms", "5", "block_ms", 5),
        ("retries", "2147483647", "retries", 2**31 - 1),
        ("delivery.timeout.ms", "9", "delivery_timeout_ms", 9),
        ("transaction.timeout.ms", "900", "transaction_timeout_ms", 900),
    ],
)
def test_settings_of_the_producer_arrive(name: str, text: str, field: str, expected: object) -> None:
    assert getattr(kafka_options.producer({name: text}), field) == expected


def test_the_sink_has_larger_batches_than_a_program_that_sends_single_records() -> None:
    assert kafka_options.producer({}).batch_bytes == SINK_BATCH_BYTES


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bootstrap.servers", "a:b"),
        ("bootstrap.servers", ","),
        ("request.timeout.ms", "0"),
        ("request.timeout.ms", "30s"),
        ("isolation.level", "committed"),
        ("fetch.max.bytes", "0"),
        ("check.crcs", "yes"),
        ("security.protocol", "TLS"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_full_name(name: str, text: str) -> None:
    with pytest.raises(InvalidOption, match=f"^kafka.{name}:"):
        kafka_options.connection(SERVERS | {name: text})


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"acks": "2"}, "acks"),
        ({"compression.type": "brotli"}, "compression.type"),
        ({"transaction.timeout.ms": "0"}, "transaction.timeout.ms"),
        ({"enable.idempotence": "true", "acks": "1"}, "enable.idempotence"),
    ],
)
def test_a_value_of_the_producer_that_cannot_be_is_refused_by_its_full_name(given: dict[str, str], option: str) -> None:
    with pytest.raises(InvalidOption, match=f"^kafka.{option}:"):
        kafka_options.producer(given)


@pytest.mark.parametrize("name", ["g/h", "..", ""])
def test_a_group_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"^kafka\.group\.id:"):
        kafka_options.group_id({"group.id": name})


@pytest.mark.parametrize(
    ("refused", "name", "fix"),
    [
        (REFUSED_READING, "auto.offset.reset", "Set startingOffsets"),
        (REFUSED_READING, "key.deserializer", "cast them in the query"),
        (REFUSED_READING, "value.deserializer", "cast them in the query"),
        (REFUSED_READING, "enable.auto.commit", "Set kafka.group.id"),
        (REFUSED_READING, "interceptor.classes", "Leave it out"),
        (REFUSED_WRITING, "key.serializer", "string or binary"),
        (REFUSED_WRITING, "value.serializer", "string or binary"),
        (REFUSED_WRITING, "interceptor.classes", "Leave it out"),
        (REFUSED_WRITING, "partitioner.class", "a column named partition"),
        (REFUSED_WRITING, "transactional.id", "Leave it out"),
    ],
)
def test_what_would_do_harm_is_refused_with_a_fix(refused: dict[str, tuple[str, str]], name: str, fix: str) -> None:
    with pytest.raises(InvalidOption, match=f"^kafka.{name}: is not supported: .*{fix}"):
        kafka_options.refuse({"client.id": "x", name: "x"}, refused)


def test_what_nothing_takes_notice_of_is_named_without_its_value() -> None:
    given = SERVERS | {"zeta": "secret", "alpha.beta": "secret", "group.id": "g", "max.poll.records": "5", "acks": "1"}

    assert kafka_options.without_effect(given) == ("kafka.alpha.beta", "kafka.zeta")


def test_settings_of_security_are_not_without_effect() -> None:
    assert kafka_options.without_effect({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}) == ()


def test_nothing_but_the_brokers_leaves_the_client_as_it_is() -> None:
    assert kafka_options.connection(SERVERS).client == ClientSettings()
