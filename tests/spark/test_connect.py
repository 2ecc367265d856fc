"""Source and sink through Spark Connect, where the program and Spark are two processes that share no Python objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.spark.brokers import Broker
from tests.spark.programs import connect_port, run_python

PROGRAM = """
import json, sys
from ottla.spark import session
from ottla.spark.foreach_batch import exactly_once_batches

bootstrap, origin, target, counts, checkpoints = sys.argv[1:]
spark = session(remote="local[2]")
address = {"kafka.bootstrap.servers": bootstrap}

batch = spark.read.format("ottla").options(**address, subscribe=origin).load()
read = [row.value for row in batch.selectExpr("CAST(value AS STRING) AS value").collect()]

rows = spark.createDataFrame([("batch", "written as a batch")], "key STRING, value STRING")
rows.write.format("ottla").options(**address, topic=target).mode("append").save()

stream = spark.readStream.format("ottla").options(**address, subscribe=origin, startingOffsets="earliest").load()
copy = stream.select("key", "value").writeStream.format("ottla").options(**address, topic=target)
counted = stream.groupBy("value").count().selectExpr("value as key", "concat(value, ' ', count) as value")
each = exactly_once_batches("connected", address, topic=counts)
for name, writer in (("copy", copy), ("counts", counted.writeStream.outputMode("update").foreachBatch(each))):
    query = writer.option("checkpointLocation", f"{checkpoints}/{name}").trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None, query.exception()
print("RESULT" + json.dumps({"session": type(spark).__module__, "read": read}))
spark.stop()
"""
VALUES = [f"value {n}" for n in range(200)] + ["value 7"]


class Connected(NamedTuple):
    """What the program said, and the topics that it wrote to."""

    result: dict[str, Any]
    target: str
    counts: str


@pytest.fixture(scope="module")
def connected(spark_java: Path, ottla_broker_process: Broker, tmp_path_factory: pytest.TempPathFactory) -> Connected:
    """One program does it all: most of its time goes into its start."""
    broker, directory = ottla_broker_process, tmp_path_factory.mktemp("connect")
    origin, target, counts = broker.topic(2), broker.topic(), broker.topic()
    broker.produce(origin, VALUES)
    with connect_port():
        said = run_python(PROGRAM, directory, broker.bootstrap, origin, target, counts, str(directory / "checkpoints"))
    (line,) = [line for line in said.splitlines() if line.startswith("RESULT")]
    return Connected(json.loads(line.removeprefix("RESULT")), target, counts)


def test_batches_and_streams_are_read_and_written_through_connect(
    connected: Connected, ottla_broker_process: Broker
) -> None:
    assert connected.result["session"].startswith("pyspark.sql.connect")
    assert sorted(connected.result["read"]) == sorted(VALUES)
    assert sorted(value or b"" for value in ottla_broker_process.values(connected.target)) == sorted(
        text.encode() for text in ["written as a batch", *VALUES]
    )


def test_batches_of_changes_are_written_exactly_once_through_connect(
    connected: Connected, ottla_broker_process: Broker
) -> None:
    expected = {f"{value} {VALUES.count(value)}".encode() for value in VALUES}

    assert sorted(value or b"" for value in ottla_broker_process.values(connected.counts)) == sorted(expected)
    assert ottla_broker_process.client.admin().is_committed(f"{connected.counts}:connected", 0)
