"""Frames of a transfer: offsets of a topic, and what is counted of rows as they pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.settings import Isolation
from ottla.pipelines.transfer.steps import Span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

    from ottla.client.blocking.admin import Admin

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType")
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


class Tally(NamedTuple):
    """What passed."""

    rows: int
    checksum: int


def of_topic(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    spans: Sequence[Span],
    *,
    isolation: Isolation,
    columns: Sequence[str] = COLUMNS,
) -> DataFrame:
    """The records of these offsets. Each partition's come to one task, in order."""
    return (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", isolation)
        .option("assign", json.dumps({topic: [span.partition for span in spans]}))
        .option("startingOffsets", json.dumps({topic: {str(span.partition): span.start for span in spans}}))
        .option("endingOffsets", json.dumps({topic: {str(span.partition): span.end for span in spans}}))
        .option("columns", ",".join(columns))
        .load()
    )


def checksum() -> Column:
    """All rows' hashes, xor-ed: the order in which they come does not matter. A row is everything but its topic."""
    from pyspark.sql import functions as fn

    # A null leaves a hash as it was, so that a key without a value would look like a value without a key.
    absent = [fn.col(name).isNull() for name in ("key", "value", "headers")]
    parts = [fn.col(name) for name in ("key", "value", "headers", "partition", "offset", "timestamp", "timestampType")]
    return fn.coalesce(fn.bit_xor(fn.xxhash64(*parts, *absent)), fn.lit(0))


def observed(frame: DataFrame) -> tuple[DataFrame, Observation]:
    """The same frame, watched: `tally` has what passed when it was written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as fn

    watching = Observation()
    return frame.observe(watching, fn.count(fn.lit(1)).alias("rows"), checksum().alias("checksum")), watching


def tally(watching: Observation) -> Tally:
    told: dict[str, Any] = watching.get
    return Tally(int(told["rows"]), int(told["checksum"]))


def by_task(frame: DataFrame, column: str, *, values: int) -> DataFrame:
    """Rows with the same number in a column go to one task; there are `values` different ones, about."""
    from pyspark.sql import functions as fn

    tasks = max(1, min(values, int(frame.sparkSession.conf.get(SHUFFLE_PARTITIONS) or 1)))
    return frame.repartitionById(tasks, fn.col(column).cast("int") % tasks)


def sink(bootstrap: str, topic: str, *, application: str, step: int) -> dict[str, str]:
    """Options under which a step is written once, however often that is tried."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic,
        "includeHeaders": "true",
        "deliveryGuarantee": "exactly-once",
        "txnAppId": application,
        "txnVersion": str(_FIRST_VERSION + step),
    }


def steps_committed(admin: Admin, topic: str, application: str) -> int:
    """How many steps of a transfer are in the topic; they are taken one after the other."""
    last = admin.last_committed(f"{topic}:{application}")
    return 0 if last is None else last + 1 - _FIRST_VERSION


_FIRST_VERSION = 1
"""An application with nothing but a batch 0 is taken for one that nobody will ask about, and may be forgotten soon."""
