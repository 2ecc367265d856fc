"""How long a record takes from its producer through a query to a reader of the topic that the query writes to.

The trigger is Spark's default: the next batch begins when the last one has ended. One record comes every tenth of a
second, and its time runs from the moment at which it was due.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from time import monotonic, perf_counter_ns
from typing import NamedTuple

from bench.spark_rows import NOT_KNOWN, Judgement, Row, Turn, in_turns, until_known, within
from bench.spark_stage import Side, Stage
from bench.spark_throughput import AT_LEAST_ONCE, EXACTLY_ONCE, PEER

PERIOD_MS = 100
WARM_UP_RECORDS = 30
"""The first batch takes long, and what has come meanwhile is in the second."""
START_S_MAX = 120.0
ARRIVAL_S_MAX = 30.0
POLL_MS = 100
P50_MS_MAX = 250.0
QUICK_FETCH = Side("kafka, kafka.fetch.max.wait.ms=20", "kafka", {"kafka.fetch.max.wait.ms": "20"})
SIDES = (AT_LEAST_ONCE, EXACTLY_ONCE, PEER, QUICK_FETCH)
P50, P90 = "record to sink topic, p50", "record to sink topic, p90"


class Arrivals(NamedTuple):
    """One turn: how late the records were, and what was computed in a second of it."""

    latencies_ms: list[float]
    spark_cpu_s: float
    broker_cpu_s: float

    def turn(self, percent: int) -> Turn:
        figure = statistics.quantiles(self.latencies_ms, n=100, method="inclusive")[percent - 1]
        return Turn(figure, self.spark_cpu_s, self.broker_cpu_s)


def measure(stage: Stage, *, records: int, rounds: int) -> list[Row]:
    """The median and the slowest tenth, for each sink."""
    sides = {side.name: partial(_turn, stage, side, records=records) for side in SIDES}

    def take() -> list[Row]:
        taken = in_turns(sides, rounds=rounds)
        return [
            Row(what, side, "ms", tuple(each.turn(percent) for each in turns))
            for what, percent in ((P50, 50), (P90, 90))
            for side, turns in taken.items()
        ]

    return until_known(take, _are_judged, rounds=rounds)


def _are_judged(rows: list[Row]) -> bool:
    return all(judged.verdict != NOT_KNOWN for judged in judgements(rows))


def judgements(rows: list[Row]) -> list[Judgement]:
    """Half of the records should be there within a quarter of a second."""
    found = {(row.what, row.side): row for row in rows}
    return [within(found[P50, AT_LEAST_ONCE.name], limit_ms=P50_MS_MAX)]


def _turn(stage: Stage, side: Side, *, records: int) -> Arrivals:
    source, target = stage.topic(1), stage.topic(1)
    # What is set for the reader is not known to the writer, and the other way round.
    reader, writer = (side, side._replace(options={})) if side.format == "kafka" else (side._replace(options={}), side)
    frame = stage.stream(reader, source, startingOffsets="latest").select("key", "value")
    writing = frame.writeStream.format(side.format).options(**stage.options(writer, topic=target))
    query = writing.option("checkpointLocation", stage.checkpoint()).start()
    try:
        with stage.client.consumer(isolation="read_committed") as consumer, _sending(stage, source):
            consumer.assign([(target, 0)])
            came = consumer.records(idle_ms=int(START_S_MAX * 1000))
            for _ in range(WARM_UP_RECORDS):
                next(came)
            meters, start_s = stage.meters(), monotonic()
            latencies_ms = [_age_ms(next(came).value) for _ in range(records)]
            took_s = monotonic() - start_s
            spark_cpu_s, broker_cpu_s = (meter.seconds() / took_s for meter in meters)
    finally:
        query.stop()
    return Arrivals(latencies_ms, spark_cpu_s, broker_cpu_s)


def _age_ms(due_ns: bytes | None) -> float:
    assert due_ns is not None
    return (perf_counter_ns() - int(due_ns)) / 1_000_000


@contextmanager
def _sending(stage: Stage, topic: str) -> Iterator[None]:
    """A record every period for as long as the block runs; its value is when it was due."""
    ended = Event()

    def send() -> None:
        with stage.client.producer() as producer:
            due_ns = perf_counter_ns()
            while not ended.wait(max(0, due_ns - perf_counter_ns()) / 1_000_000_000):
                producer.send(topic, b"%d" % due_ns)
                due_ns += PERIOD_MS * 1_000_000

    thread = Thread(target=send, name="sending", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(ARRIVAL_S_MAX)
