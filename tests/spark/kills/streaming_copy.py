"""The program that is killed: a streaming query that copies one topic to another, and whose tasks fail at random.

Run as `python -m tests.spark.kills.streaming_copy <errand>`. It ends by itself when all that was in the source at its
start is copied. It knows nothing of the kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MASTER = "local[2,4]"
"""Two cores. Without the second number a local Spark gives up at the first task that fails."""
FAILING_ATTEMPTS = 2
"""Attempts of a task that may fail on purpose; two are left for those that a kill of the broker takes along."""
ARROW_ROWS_MAX = 100
"""Small enough that a task has many places to fail at."""
TRANSACTION_TIMEOUT_MS = 30_000
"""How long readers may be held up by a slot that a dead driver has left open and that no later one uses."""


@dataclass(frozen=True)
class Errand:
    """All that one life of the program has to know."""

    address: str
    source: str
    target: str
    checkpoint: str
    scratch: str
    """A directory for what Spark keeps while it runs."""
    stumbles: str
    """The file to which each failure on purpose adds a line."""
    batch_records: int
    task_count: int
    seed: int
    failure_chance: float
    """Of each attempt of a task that is not among the last ones."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Errand:
        return cls(**json.loads(text))


class Stumbled(Exception):
    """A task fails because chance has it."""


def stumble(batches: Iterator[pa.RecordBatch], errand: Errand) -> Iterator[pa.RecordBatch]:
    """Pass everything on; now and then fail somewhere in between, by an error or as a process that is killed."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    batch, task = context.getLocalProperty("streaming.sql.batchId"), context.partitionId()
    chance = random.Random(f"{errand.seed} {batch} {task} {context.attemptNumber()}")
    fails = context.attemptNumber() < FAILING_ATTEMPTS and chance.random() < errand.failure_chance
    # Within what every task gets, as far as it is shared out evenly.
    fails_after = chance.randrange(1, max(2, errand.batch_records // errand.task_count // ARROW_ROWS_MAX))
    is_killed = chance.random() < 0.5
    for number, rows in enumerate(batches):
        if fails and number == fails_after:
            kind = "killed" if is_killed else "failed"
            with open(errand.stumbles, "a", encoding="utf-8") as file:
                file.write(f"{kind}: batch {batch}, task {task}, attempt {context.attemptNumber()}\n")
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Stumbled(f"batch {batch}, task {task}, attempt {context.attemptNumber()}")
        yield rows


def main(errand: Errand) -> None:
    spark = _session(errand)
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", errand.address)
        .option("subscribe", errand.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", errand.batch_records)
        .option("minPartitions", errand.task_count)
        .load()
        .select("key", "value", "partition")
    )
    copied = rows.mapInArrow(partial(stumble, errand=errand), rows.schema)
    query = (
        copied.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", errand.address)
        .option("topic", errand.target)
        .option("deliveryGuarantee", "exactly-once")
        # Small, so that there is much to be cut off after the first write of a task and before its last.
        .option("kafka.batch.size", 16_384)
        .option("kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        .option("checkpointLocation", errand.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def _session(errand: Errand) -> SparkSession:
    from ottla.spark import session

    settings: dict[str, object] = {
        "spark.ui.enabled": False,
        "spark.driver.memory": "600m",
        "spark.local.dir": errand.scratch,
        "spark.sql.warehouse.dir": str(Path(errand.scratch, "warehouse")),
        "spark.sql.execution.arrow.maxRecordsPerBatch": ARROW_ROWS_MAX,
        "spark.log.level": "WARN",
    }
    return session("a copy that is killed", master=MASTER, config=settings)


if __name__ == "__main__":
    main(Errand.from_json(sys.argv[1]))
