"""Spark's own Kafka connector on Ottla: it reads and writes as it does on Kafka, and its checkpoints are ours too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import fastavro
import pytest

from ottla.client.values import NewRecord
from tests.clients.missing import missing
from tests.peers import kafka, spark_connector
from tests.spark.brokers import Broker
from tests.spark.connector_process import ConnectorSpark

pytestmark = [pytest.mark.slow, pytest.mark.peers]

BEFORE_MS = 1_000_000
"""How much older than now the older records are; they must be young enough for retention."""


@pytest.fixture(scope="module")
def official(spark_java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectorSpark]:
    try:
        directory = spark_connector.jars(print)
    except kafka.PeerMissing as reason:
        missing(str(reason))
    made = ConnectorSpark(spark_connector.spark_jars(directory), tmp_path_factory.mktemp("official"))
    yield made
    made.end()


@pytest.fixture
def ottla(ottla_broker_process: Broker) -> Broker:
    return ottla_broker_process


def _pairs(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((record.key or b"", record.value or b"") for record in broker.records(topic))


def test_it_reads_in_a_batch_what_was_produced(official: ConnectorSpark, ottla: Broker) -> None:
    topic = ottla.topic(2)
    ottla.produce(topic, [NewRecord(b"v%d" % n, b"k%d" % n, [("n", b"%d" % n)]) for n in range(50)], compression="zstd")

    rows = official.read(ottla.options(subscribe=topic))

    produced = ottla.records(topic)
    assert [(row.partition, row.offset, row.timestamp_ms) for row in rows] == [
        (record.partition, record.offset, record.timestamp_ms) for record in produced
    ]
    assert sorted((row.key, row.value, row.headers) for row in rows) == sorted(
        (f"k{n}", f"v{n}", [("n", f"{n}")]) for n in range(50)
    )


def test_it_reads_from_a_timestamp_on(official: ConnectorSpark, ottla: Broker) -> None:
    topic = ottla.topic()
    ottla.produce(topic, [b"now"])
    (first,) = ottla.records(topic)
    later_ms = first.timestamp_ms + BEFORE_MS
    ottla.produce(topic, [NewRecord(b"later", timestamp_ms=later_ms)])

    rows = official.read(ottla.options(subscribe=topic, startingTimestamp=later_ms - 1))

    assert [row.value for row in rows] == ["later"]


def test_it_reads_no_aborted_records_when_told_so(official: ConnectorSpark, ottla: Broker) -> None:
    topic = ottla.topic()
    ottla.produce_in_transaction(topic, [b"dropped"], commit=False)
    ottla.produce_in_transaction(topic, [b"kept"], commit=True)
    ottla.produce(topic, [b"plain"])

    rows = official.read(ottla.options(subscribe=topic, **{"kafka.isolation.level": "read_committed"}))

    assert [row.value for row in rows] == ["kept", "plain"]


def test_it_writes_a_batch(official: ConnectorSpark, ottla: Broker) -> None:
    topic = ottla.topic(3)
    rows = [(f"k{n}", f"v{n}") for n in range(40)]

    official.write(rows, ottla.options(topic=topic))

    assert _pairs(ottla, topic) == sorted((key.encode(), value.encode()) for key, value in rows)


def test_it_streams_from_topic_to_topic_and_goes_on_where_it_ended(
    official: ConnectorSpark, ottla: Broker, tmp_path: Path
) -> None:
    origin, target = ottla.topic(2), ottla.topic(2)
    ottla.produce(origin, [b"a%d" % n for n in range(30)])
    options = ottla.options(subscribe=origin, startingOffsets="earliest", maxOffsetsPerTrigger=10)

    official.stream(options, ottla.options(topic=target), tmp_path / "checkpoint")
    ottla.produce(origin, [b"b%d" % n for n in range(30)])
    official.stream(options, ottla.options(topic=target), tmp_path / "checkpoint")

    assert _pairs(ottla, target) == _pairs(ottla, origin)


@pytest.mark.parametrize(("first", "second"), [("kafka", "ottla"), ("ottla", "kafka")])
def test_a_checkpoint_of_one_source_is_resumed_by_the_other(
    official: ConnectorSpark, ottla: Broker, tmp_path: Path, first: str, second: str
) -> None:
    origin, target = ottla.topic(3), ottla.topic()
    options = ottla.options(subscribe=origin, startingOffsets="earliest")
    ottla.produce(origin, [b"before %d" % n for n in range(100)])
    official.stream(options, ottla.options(topic=target), tmp_path / "checkpoint", source=first)
    ottla.produce(origin, [b"after %d" % n for n in range(100)])

    official.stream(options, ottla.options(topic=target), tmp_path / "checkpoint", source=second)

    assert _pairs(ottla, target) == _pairs(ottla, origin)


@pytest.mark.parametrize("second", ["kafka", "ottla"])
def test_a_start_that_was_only_written_down_is_resumed_by_either_source(
    official: ConnectorSpark, ottla: Broker, tmp_path: Path, second: str
) -> None:
    origin, target = ottla.topic(2), ottla.topic()
    options = ottla.options(subscribe=origin, startingOffsets="latest")
    ottla.produce(origin, [b"before"])
    official.stream(options, ottla.options(topic=target), tmp_path / "checkpoint", source="ottla")
    ottla.produce(origin, [b"after %d" % n for n in range(10)])

    official.stream(options, ottla.options(topic=target), tmp_path / "checkpoint", source=second)

    assert _pairs(ottla, target) == sorted((b"", b"after %d" % n) for n in range(10))


AVRO = """
pipeline: avro-{orders}
sources:
  orders: {{topic: {orders}, format: avro, schema_file: order.avsc, jar: true, bad: {bad}}}
sinks:
  out: {{from: orders, topic: {out}, value: "concat_ws(' ', id, code.member0, code.member1)"}}
"""


def test_a_pipeline_leaves_avro_to_spark_where_it_has_the_jar(
    official: ConnectorSpark, ottla: Broker, tmp_path: Path
) -> None:
    # A union that has no counterpart without the jar.
    fields = [{"name": "id", "type": "long"}, {"name": "code", "type": ["int", "string"]}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    topics = {name: ottla.topic(stem=name) for name in ("orders", "bad", "out")}
    (tmp_path / "order.avsc").write_text(json.dumps(schema), encoding="utf-8")
    (tmp_path / "avro.yaml").write_text(AVRO.format(**topics), encoding="utf-8")
    for order in ({"id": 1, "code": 7}, {"id": 2, "code": "x"}):
        datum = BytesIO()
        fastavro.schemaless_writer(datum, fastavro.parse_schema(schema), order)
        ottla.produce(topics["orders"], [datum.getvalue(), b"\x80"])

    official.run_pipeline(tmp_path / "avro.yaml", ottla.bootstrap)

    assert ottla.values(topics["out"]) == [b"1 7", b"2 x"]
    assert ottla.values(topics["bad"]) == [b"\x80"] * 2
