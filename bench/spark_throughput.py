"""How many records a second go through Spark: topics read as tables and as streams, tables written to topics.

No side can be quick by doing less: before its turns each must give the same count and the same checksums of keys,
values, offsets and times, and after each written table the ends of the partitions must be where its rows put them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from bench.spark_rows import Judgement, Turn, cheaper, measured, quicker
from bench.spark_rows import Row as Measured
from bench.spark_stage import KEY_BYTES, KEYS, VALUE_BYTES, Side, Stage

PARTITIONS = 4
OURS = Side("ottla", "ottla")
PEER = Side("kafka", "kafka")
TUNED = Side(
    "kafka, tuned", "kafka", {"kafka.max.poll.records": "10000", "kafka.max.partition.fetch.bytes": str(8 << 20)}
)
READERS = (OURS, PEER, TUNED)

AT_LEAST_ONCE = Side("ottla, at-least-once", "ottla", {"deliveryGuarantee": "at-least-once"})
EXACTLY_ONCE = Side("ottla, exactly-once", "ottla", {"deliveryGuarantee": "exactly-once"})
TUNED_SINK = Side(
    "kafka, tuned",
    "kafka",
    {"kafka.batch.size": str(1 << 18), "kafka.linger.ms": "10", "kafka.buffer.memory": str(1 << 26)},
)
WRITERS = (AT_LEAST_ONCE, EXACTLY_ONCE, PEER, TUNED_SINK)

PEER_TIMES, TUNED_TIMES, SINK_TIMES = 2.0, 1.5, 1.5
BROKER_SHARE = 1 / 3


def to_noop(frame: DataFrame) -> None:
    """Every column of every record, to a sink that drops them."""
    frame.write.format("noop").mode("overwrite").save()


def to_group_by(frame: DataFrame) -> None:
    """How many records there are of each key."""
    to_noop(frame.groupBy("key").count())


def to_filter(frame: DataFrame) -> None:
    """One record of ten, and of it two columns."""
    to_noop(frame.where("offset % 10 = 0").select(f.col("key").cast("string"), f.length("value")))


WORKS: dict[str, Callable[[DataFrame], None]] = {
    "topic to noop": to_noop,
    "topic to groupBy(key).count": to_group_by,
    "topic to filter and project": to_filter,
}
STREAM = "topic to noop as a stream (AvailableNow)"
SINK = "table to topic"


def sources(stage: Stage, *, records: int, rounds: int) -> list[Measured]:
    """The rows of all sides that read."""
    topic = stage.topic(PARTITIONS, records=records)
    sums = {side.name: _sums(stage.batch(side, topic)) for side in READERS}
    if len(set(sums.values())) != 1 or sums[OURS.name].records != records:
        raise RuntimeError(f"the sides do not read the same {records:,} records: {sums}")
    rows = []
    for what, work in WORKS.items():
        turns = {side.name: partial(_read, stage, side, topic, work, records=records) for side in READERS}
        rows += measured(what, "records/s", turns, rounds=rounds)
    streams = {side.name: partial(_read_stream, stage, side, topic, records=records) for side in READERS}
    rows += measured(STREAM, "records/s", streams, rounds=rounds)
    stage.client.admin().delete_topic(topic)
    return rows


def sinks(stage: Stage, *, records: int, rounds: int) -> list[Measured]:
    """The rows of all sides that write."""
    number = f.col("id")
    key = f.lpad((number % KEYS).cast("string"), KEY_BYTES, "0").cast("binary").alias("key")
    text = f.concat(number.cast("string"), f.lit("/"))
    value = f.rpad(f.repeat(text, VALUE_BYTES), VALUE_BYTES, "/").cast("binary").alias("value")
    # In memory, so that what is measured is the sink.
    table = stage.spark.range(0, records, 1, PARTITIONS).select(key, value).cache()
    table.count()
    turns = {side.name: partial(_write, stage, side, table, records=records) for side in WRITERS}
    rows = measured(SINK, "records/s", turns, rounds=rounds)
    table.unpersist()
    return rows


def judgements_of_sources(rows: list[Measured]) -> list[Judgement]:
    """What is expected of those that read."""
    found = {(row.what, row.side): row for row in rows}
    judged = []
    for what in WORKS:
        ours, peer, tuned = (found[what, side.name] for side in READERS)
        judged += [
            quicker(ours, peer, times_min=PEER_TIMES),
            quicker(ours, tuned, times_min=TUNED_TIMES),
            cheaper(ours, peer, share_max=BROKER_SHARE),
        ]
    return judged


def judgements_of_sinks(rows: list[Measured]) -> list[Judgement]:
    """What is expected of those that write."""
    found = {(row.what, row.side): row for row in rows}
    at_least_once, exactly_once, peer, _ = (found[SINK, side.name] for side in WRITERS)
    return [
        quicker(at_least_once, peer, times_min=SINK_TIMES),
        quicker(exactly_once, peer, times_min=1.0),
        cheaper(at_least_once, peer, share_max=BROKER_SHARE),
    ]


def _sums(frame: DataFrame) -> Row:
    sums = frame.agg(
        f.count("*").alias("records"),
        f.sum("offset"),
        f.sum(f.crc32("key")),
        f.sum(f.crc32("value")),
        f.sum(f.unix_millis("timestamp") % 1_000_003),
        f.sum("timestampType"),
    ).first()
    assert sums is not None
    return sums


def _read(stage: Stage, side: Side, topic: str, work: Callable[[DataFrame], None], *, records: int) -> Turn:
    taken = stage.timed(lambda: work(stage.batch(side, topic)))
    return Turn(records / taken.wall_s, taken.spark_cpu_s, taken.broker_cpu_s)


def _read_stream(stage: Stage, side: Side, topic: str, *, records: int) -> Turn:
    checkpoint, read = stage.checkpoint(), []

    def run() -> None:
        frame = stage.stream(side, topic, startingOffsets="earliest")
        writing = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        read.append(sum(progress.numInputRows for progress in query.recentProgress))

    taken = stage.timed(run)
    if read != [records]:
        raise RuntimeError(f"{side.name} gives {read} records of {records:,} as a stream")
    return Turn(records / taken.wall_s, taken.spark_cpu_s, taken.broker_cpu_s)


def _write(stage: Stage, side: Side, table: DataFrame, *, records: int) -> Turn:
    topic = stage.topic(PARTITIONS)
    writing = table.write.format(side.format).options(**stage.options(side, topic=topic)).mode("append")
    taken = stage.timed(writing.save)
    written = stage.committed(topic, partitions=PARTITIONS, at_least=records)
    # A transaction ends with a marker in every partition that it touched, and each of the table's parts has one.
    if written > records + (PARTITIONS * PARTITIONS if side is EXACTLY_ONCE else 0):
        raise RuntimeError(f"{side.name} wrote {written:,} records of {records:,}")
    stage.client.admin().delete_topic(topic)
    return Turn(records / taken.wall_s, taken.spark_cpu_s, taken.broker_cpu_s)
