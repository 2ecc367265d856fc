"""Source and sink through Spark Connect, where the program and Spark are two processes that share no Python objects."""

from __future__ import annotations

import json
from pathlib import Path

from tests.spark.brokers import Broker
from tests.spark.programs import run_python

PROGRAM = """
import json, sys
from ottla.spark import session

bootstrap, origin, target, checkpoint = sys.argv[1:]
spark = session(remote="local[2]")
address = {"kafka.bootstrap.servers": bootstrap}

batch = spark.read.format("ottla").options(**address, subscribe=origin).load()
read = [row.value for row in batch.selectExpr("CAST(value AS STRING) AS value").collect()]

rows = spark.createDataFrame([("batch", "written as a batch")], "key STRING, value STRING")
rows.write.format("ottla").options(**address, topic=target).mode("append").save()

stream = spark.readStream.format("ottla").options(**address, subscribe=origin, startingOffsets="earliest").load()
query = (
    stream.select("key", "value").writeStream.format("ottla").options(**address, topic=target)
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
assert query.exception() is None, query.exception()
print("RESULT" + json.dumps({"session": type(spark).__module__, "read": read}))
spark.stop()
"""


def test_batches_and_streams_are_read_and_written_through_connect(
    spark_java: Path, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    origin, target = broker.topic(2), broker.topic()
    broker.produce(origin, [f"value {n}" for n in range(200)])

    said = run_python(PROGRAM, tmp_path, broker.bootstrap, origin, target, str(tmp_path / "checkpoint"))

    (line,) = [line for line in said.splitlines() if line.startswith("RESULT")]
    result = json.loads(line.removeprefix("RESULT"))
    values = [f"value {n}" for n in range(200)]
    assert result["session"].startswith("pyspark.sql.connect")
    assert sorted(result["read"]) == sorted(values)
    assert sorted(value or b"" for value in broker.values(target)) == sorted(
        text.encode() for text in ["written as a batch", *values]
    )
