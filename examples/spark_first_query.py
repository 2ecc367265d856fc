"""A first query on Spark: a table becomes a topic, and a stream copies what matters of it to another one, exactly once.

Runs a broker and a Spark of its own, so that nothing has to be started. Needs Java 17 and `pip install 'ottla[spark]'`.
The data goes to the directory named on the command line, or to a temporary one that is gone afterwards.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import ottla
from ottla.spark import session
from ottla.testing.server_thread import ServerThread

ORDERS = 1_000
BIG = 990


def main(directory: Path) -> None:
    """Write, read, stream; then stop and stream again, to see that nothing comes twice."""
    server = ServerThread(str(directory / "broker"))
    server.start()
    address = {"kafka.bootstrap.servers": server.bootstrap}
    spark = session("first query")

    orders = spark.range(ORDERS).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
    orders.write.format("ottla").options(**address, topic="orders").mode("append").save()
    table = spark.read.format("ottla").options(**address, subscribe="orders").load()
    print(f"The topic has {table.count()} orders. The first three:")
    table.selectExpr("CAST(key AS STRING) customer", "CAST(value AS STRING) amount", "offset", "timestamp").show(3)

    stream = spark.readStream.format("ottla").options(**address, subscribe="orders", startingOffsets="earliest").load()
    big = stream.where(f"CAST(CAST(value AS STRING) AS INT) >= {BIG}").select("key", "value")
    for _ in range(2):
        query = (
            big.writeStream.format("ottla")
            .options(**address, topic="big-orders")
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with ottla.connect(server.bootstrap) as client, client.consumer(isolation="read_committed") as consumer:
        consumer.subscribe(["big-orders"])
        amounts = sorted(int(record.value or b"0") for record in consumer.records(idle_ms=1_000))
    print(f"Big orders after two runs of the query: {amounts}")
    spark.stop()
    server.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="ottla-") as temporary:
            main(Path(temporary))
