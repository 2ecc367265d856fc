"""What a micro-batch costs when there is next to nothing in it: a hundred rows, as fast as the trigger lets it.

The median over the batches of one query is one turn; the first batches, in which Spark and its workers warm up, are
left out.
"""

from __future__ import annotations

import statistics
from functools import partial
from time import monotonic, sleep

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from bench.spark_rows import Judgement, Row, Turn, measured, quicker
from bench.spark_stage import Side, Stage
from bench.spark_throughput import AT_LEAST_ONCE, EXACTLY_ONCE, OURS, PEER

ROWS = 100
SKIPPED = 10
PARTITION_COUNTS = (1, 4)
WARM_UPS = 2
"""It takes the JVM many batches to have compiled what a small one runs through."""
BATCH_S_MAX = 10.0
LOOK_AGAIN_S = 0.05
SINK_PARTITIONS = 1


def measure(stage: Stage, *, batches: int, rounds: int) -> list[Row]:
    """To noop from one and from several partitions, and to a topic."""
    rows: list[Row] = []
    for partitions in PARTITION_COUNTS:
        topic = stage.topic(partitions, records=ROWS * (SKIPPED + batches + 1))
        to_noop = {side.name: partial(_to_noop, stage, side, topic, batches=batches) for side in (OURS, PEER)}
        rows += measured(what(partitions), "ms", to_noop, rounds=rounds, warm_ups=WARM_UPS)
    source = stage.topic(SINK_PARTITIONS, records=ROWS * (SKIPPED + batches + 1))
    sides = AT_LEAST_ONCE, EXACTLY_ONCE, PEER
    to_topic = {side.name: partial(_to_topic, stage, side, source, batches=batches) for side in sides}
    return rows + measured(TO_TOPIC, "ms", to_topic, rounds=rounds, warm_ups=WARM_UPS)


def what(partitions: int) -> str:
    """How the rows of that many partitions are called."""
    return f"{ROWS} rows a batch, {partitions} partition{'s' * (partitions > 1)}, to noop"


TO_TOPIC = f"{ROWS} rows a batch, {SINK_PARTITIONS} partition, to a topic"


def judgements(rows: list[Row]) -> list[Judgement]:
    """A batch of ours should take no longer."""
    found = {(row.what, row.side): row for row in rows}
    judged = []
    for partitions in PARTITION_COUNTS:
        ours, peer = (found[what(partitions), side.name] for side in (OURS, PEER))
        judged.append(quicker(ours, peer, times_min=1.0))
    return judged


def _to_noop(stage: Stage, side: Side, topic: str, *, batches: int) -> Turn:
    frame = stage.stream(side, topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS))
    return _turn(stage, frame, "noop", {}, batches=batches)


def _to_topic(stage: Stage, side: Side, topic: str, *, batches: int) -> Turn:
    reader = side._replace(options={})
    frame = stage.stream(reader, topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS))
    target = stage.topic(SINK_PARTITIONS)
    turn = _turn(stage, frame.select("key", "value"), side.format, stage.options(side, topic=target), batches=batches)
    stage.committed(target, partitions=SINK_PARTITIONS, at_least=ROWS * (SKIPPED + batches))
    return turn


def _turn(stage: Stage, frame: DataFrame, sink: str, options: dict[str, str], *, batches: int) -> Turn:
    writing = frame.writeStream.format(sink).options(**options).option("checkpointLocation", stage.checkpoint())
    query = writing.trigger(processingTime="0 seconds").start()
    try:
        first = _await(query, SKIPPED)
        meters = stage.meters()
        last = _await(query, SKIPPED + batches)
        spark_cpu_s, broker_cpu_s = (meter.seconds() / (last - first) for meter in meters)
        progress = [each for each in query.recentProgress if SKIPPED <= each.batchId < SKIPPED + batches]
    finally:
        query.stop()
    if len(progress) != batches or any(each.numInputRows != ROWS for each in progress):
        raise RuntimeError(
            f"these are not {batches} batches of {ROWS} rows: {[each.numInputRows for each in progress]}"
        )
    figure = statistics.median(each.durationMs["triggerExecution"] for each in progress)
    return Turn(figure, spark_cpu_s, broker_cpu_s)


def _await(query: StreamingQuery, batches: int) -> int:
    """How many batches are done, as soon as it is this many."""
    until_s = monotonic() + BATCH_S_MAX * batches
    while True:
        progress = query.lastProgress
        done = 0 if progress is None else progress.batchId + 1
        if done >= batches:
            return done
        if monotonic() > until_s or not query.isActive:
            raise RuntimeError(f"{done} of {batches} batches are done: {query.status}, {query.exception()}")
        sleep(LOOK_AGAIN_S)
