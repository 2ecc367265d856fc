"""What most tests ask of a Spark, once each, so that Java notes which classes that takes; `spark_start` has it run.

Run as `python -m tests.peers.spark_training <directory>`. Through Spark Connect, which needs the classes of a plain
session and those of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "key BINARY, value BINARY"


def main(directory: Path) -> None:
    from ottla.spark import session
    from ottla.testing.server_thread import ServerThread

    server = ServerThread(str(directory / "broker"))
    server.start()
    spark = session("training", remote="local[2]", config={"spark.sql.warehouse.dir": str(directory / "warehouse")})
    address = {"kafka.bootstrap.servers": server.bootstrap}
    _batches(spark, address, str(directory / "table"))
    _streams(spark, address, directory / "checkpoints")
    spark.stop()
    server.stop()


def _batches(spark: SparkSession, address: dict[str, str], table: str) -> None:
    rows = spark.range(100).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.write.format("ottla").options(**address, topic="numbers").mode("append").save()
    read = spark.read.format("ottla").options(**address, subscribe="numbers").load()
    read.groupBy("key").count().orderBy("key").collect()
    read.write.parquet(table)
    spark.read.parquet(table).join(rows.withColumnRenamed("value", "number"), "key").collect()


def _streams(spark: SparkSession, address: dict[str, str], checkpoints: Path) -> None:
    stream = spark.readStream.format("ottla").options(**address, subscribe="numbers", startingOffsets="earliest").load()
    copies = stream.select("key", "value").mapInArrow(_same, COLUMNS).writeStream.format("ottla")
    counts = stream.withWatermark("timestamp", "1 second").groupBy("value").count().writeStream.outputMode("update")
    for name, writer in (
        ("copies", copies.options(**address, topic="copies")),
        ("counts", counts.foreachBatch(_look_at)),
    ):
        query = writer.option("checkpointLocation", str(checkpoints / name)).trigger(availableNow=True).start()
        query.awaitTermination()


def _look_at(frame: DataFrame, batch_id: int) -> None:
    frame.collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main(Path(sys.argv[1]))
