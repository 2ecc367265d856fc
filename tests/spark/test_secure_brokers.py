"""A real Spark and Apache Kafka behind TLS and logins, with the options that users of Spark's own connector have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.client.secure_kafka import PASSWORD, USER, SecureKafka, secure_kafka
from tests.peers.tools import Tools
from tests.spark.brokers import Broker
from tests.spark.queries import QUERY_SECONDS_MAX, write_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.peers]

ROWS = 1_000
FAILURE_SECONDS_MAX = 60
"""Less than any time-out that a client would wait for a broker which might come back."""
DELIVERY_MS = 10 * QUERY_SECONDS_MAX * 1000
"""Longer than any test waits, so that a sink which tried a refused login again and again would be found out."""
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
WRONG_PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def kafka(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(Tools(java, kafka_jars), tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def broker(kafka: SecureKafka) -> Iterator[Broker]:
    """The same broker through its plain door, to fill topics and to see what came."""
    made = Broker(kafka.addresses["PLAINTEXT"], kind="kafka")
    yield made
    made.close()


def login_over_tls(kafka: SecureKafka, password: str = PASSWORD) -> dict[str, str]:
    """SASL_SSL with SCRAM; the authority is a file."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "kafka.bootstrap.servers": kafka.addresses["TLSLOGIN"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{SCRAM} required username="{USER}" password="{quoted}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.authority.certificate),
    }


def certificate_in_files(kafka: SecureKafka) -> dict[str, str]:
    """Mutual TLS, both stores as files."""
    return {
        "kafka.bootstrap.servers": kafka.addresses["MUTUAL"],
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.authority.certificate),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(kafka.client.together()),
    }


def certificate_in_text(kafka: SecureKafka) -> dict[str, str]:
    """Mutual TLS without a file: the options hold what the stores would."""
    return {
        "kafka.bootstrap.servers": kafka.addresses["MUTUAL"],
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": kafka.authority.certificate.read_text(encoding="utf-8"),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": kafka.client.certificate.read_text(encoding="utf-8"),
        "kafka.ssl.keystore.key": kafka.client.key.read_text(encoding="utf-8"),
    }


Door = Callable[[SecureKafka], dict[str, str]]
every_door = pytest.mark.parametrize("door", [login_over_tls, certificate_in_files, certificate_in_text])
one_of_each = pytest.mark.parametrize("door", [login_over_tls, certificate_in_text])


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) value")


def filled(broker: Broker) -> str:
    """A topic with the numbers."""
    topic = broker.topic(2)
    broker.produce(topic, [b"%d" % number for number in range(ROWS)])
    return topic


def found(broker: Broker, topic: str) -> list[int]:
    return sorted(int(value or b"") for value in broker.values(topic))


@every_door
def test_a_batch_is_read(spark: SparkSession, kafka: SecureKafka, broker: Broker, door: Door) -> None:
    topic = filled(broker)

    rows = spark.read.format("ottla").options(**door(kafka)).option("subscribe", topic).load().collect()

    assert sorted(int(row.value) for row in rows) == list(range(ROWS))


@one_of_each
def test_a_table_is_written(spark: SparkSession, kafka: SecureKafka, broker: Broker, door: Door) -> None:
    topic = broker.topic(2)
    options = {**door(kafka), "topic": topic, "deliveryGuarantee": "at-least-once"}

    numbers(spark).write.format("ottla").options(**options).mode("append").save()

    assert found(broker, topic) == list(range(ROWS))


@one_of_each
def test_a_stream_runs_from_topic_to_topic(
    spark: SparkSession, kafka: SecureKafka, broker: Broker, door: Door, tmp_path: Path
) -> None:
    source, target = filled(broker), broker.topic(2)
    reading = {**door(kafka), "subscribe": source, "startingOffsets": "earliest"}
    frame = spark.readStream.format("ottla").options(**reading).load()

    write_now(frame.select("value"), tmp_path / "checkpoint", {**door(kafka), "topic": target})

    assert found(broker, target) == list(range(ROWS))


def refusal(frame: DataFrame, checkpoint: Path, options: dict[str, str]) -> str:
    """What a query says that is to fail; without a trigger it would run for ever if it did not."""
    writer = frame.writeStream.format("ottla").options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.start()
    with pytest.raises(PySparkException) as failed:
        query.awaitTermination(FAILURE_SECONDS_MAX)
    return str(failed.value)


@pytest.mark.parametrize("wrong", ["source", "sink"])
def test_a_wrong_password_ends_a_stream_with_a_message_that_says_so(
    spark: SparkSession, kafka: SecureKafka, broker: Broker, tmp_path: Path, wrong: str
) -> None:
    source, target = filled(broker), broker.topic()
    passwords = {"source": PASSWORD, "sink": PASSWORD} | {wrong: WRONG_PASSWORD}
    options = {side: login_over_tls(kafka, password) for side, password in passwords.items()}
    reading = {**options["source"], "subscribe": source, "startingOffsets": "earliest"}
    writing = {**options["sink"], "topic": target, "kafka.delivery.timeout.ms": str(DELIVERY_MS)}
    frame = spark.readStream.format("ottla").options(**reading).load()

    told = refusal(frame.select("value"), tmp_path / "checkpoint", writing)

    assert "AuthenticationFailed" in told
    assert f"'{USER}'" in told
    assert "check sasl_username and sasl_password" in told
    assert WRONG_PASSWORD not in told


def test_a_wrong_password_ends_a_batch_with_a_message_that_says_so(
    spark: SparkSession, kafka: SecureKafka, broker: Broker
) -> None:
    options = {**login_over_tls(kafka, WRONG_PASSWORD), "subscribe": filled(broker)}

    with pytest.raises(PySparkException, match=f"'{USER}'.*check sasl_username and sasl_password") as failed:
        spark.read.format("ottla").options(**options).load().collect()
    assert WRONG_PASSWORD not in str(failed.value)


def test_a_certificate_that_is_missing_is_asked_for(spark: SparkSession, kafka: SecureKafka, broker: Broker) -> None:
    given = certificate_in_text(kafka)
    options = {name: text for name, text in given.items() if "keystore" not in name}

    with pytest.raises(PySparkException, match="ssl_certificate_location"):
        spark.read.format("ottla").options(**options, subscribe=filled(broker)).load().collect()
