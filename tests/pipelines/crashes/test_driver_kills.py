"""A whole pipeline is exactly-once under `kill -9` of `ottla pipeline run`.

A topic with bad records among the good ones, a rule that routes, a topic that is appended to, one that windows are
written to in update mode, a table that is appended to, and one by keys. The command is killed, with its JVM and its
workers, while it starts, after a batch has begun, and right after a sink has written, while records are produced all
the time. What it has made in the end is held against what was acknowledged to the producer.

PIPELINE_DRIVER_KILLS says how often it is killed (default 2), PIPELINE_KILL_SEED at which moments.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.client.values import Record
from tests.pipelines.crashes import accounts, orders
from tests.pipelines.crashes.checkpoints import Checkpoints
from tests.pipelines.crashes.generator import Generator
from tests.pipelines.crashes.killed_pipeline import CUT_OFF, IN_TABLES, KilledPipeline, Moment
from tests.pipelines.crashes.orders import Acknowledged, Kind, Spot, Window
from tests.pipelines.crashes.written import origin, rows
from tests.report import Report
from tests.spark.brokers import Broker

KILLS = int(os.environ.get("PIPELINE_DRIVER_KILLS", "2"))
SEED = int(os.environ.get("PIPELINE_KILL_SEED", "1"))
MOMENTS = (Moment.BATCH, Moment.WRITTEN, Moment.STARTING)
"""Taken in turn."""
PROOF_MIN = max(1, KILLS // 3)
"""So many kills must have hit a batch between its beginning and its end for a run to prove something.

Where chance has missed them, there are more kills.
"""
REPLAYS_MIN = KILLS // 5
"""So many batches must have been repeated although a sink had them; few kills may miss that short while."""
OLD_RECORDS = 600
"""There before the first start, so that there are batches from the beginning on."""
SECTION = "pipelines, exactly once under kill -9 of the driver"

TEXT = f"""
pipeline: killed
spark:
  spark.ui.enabled: false
  spark.driver.memory: 600m
  # Each life is short: a JVM that compiles little is up sooner.
  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

sources:
  orders:
    topic: orders
    format: json
    schema: {orders.SCHEMA}
    bad: bad
    watermark: event_time 1 hour
    expect:
      positive: {{where: amount > 0, otherwise: {{route: refused}}}}
    options: {{maxOffsetsPerTrigger: 2000}}

steps:
  placed: SELECT number, customer, leaves, event_time, _partition, _offset FROM orders
  per_minute: |
    SELECT window.start AS minute, count(*) AS orders, sum(amount) AS amount
    FROM orders GROUP BY window(event_time, '1 minute')

sinks:
  copies: {{from: placed, topic: copies, key: customer, value: "concat_ws(' ', number, _partition, _offset)"}}
  minutes: {{from: per_minute, topic: minutes, key: minute, mode: update}}
  appended: {{from: placed, table: appended, partition_by: date(event_time)}}
  customers: {{from: placed, table: customers, keys: [customer], deleted: leaves}}
"""
TOPICS = {"orders": orders.PARTITIONS, "bad": 1, "refused": 2, "copies": 2, "minutes": 2}
TABLES = ("appended", "customers")


class Killing(NamedTuple):
    """A pipeline that is to be killed, and who produces for it."""

    pipeline: KilledPipeline
    generator: Generator


@contextmanager
def _killing(broker: Broker, directory: Path) -> Iterator[Killing]:
    """A pipeline that has not been started, with its topics; all that runs is gone after the block."""
    for topic, partitions in TOPICS.items():
        broker.client.admin().create_topic(topic, partitions=partitions)
    file = directory / "killed.yaml"
    file.write_text(TEXT, encoding="utf-8")
    generator = Generator(broker.bootstrap, "orders")
    generator.fill(OLD_RECORDS)
    pipeline = KilledPipeline(
        broker,
        file,
        Checkpoints(directory / ".ottla" / "killed"),
        topics=[topic for topic in TOPICS if topic != "orders"],
        tables=[directory / table for table in TABLES],
        seed=SEED,
    )
    try:
        with generator:
            yield Killing(pipeline, generator)
    finally:
        pipeline.end()


def test_every_record_is_in_one_place_once_however_often_the_driver_is_killed(
    own_ottla: Broker, spark_java: Path, tmp_path: Path, report_lines: Report
) -> None:
    with _killing(own_ottla, tmp_path) as (pipeline, generator):
        for number in range(KILLS * 3):
            if number >= KILLS and pipeline.hits[CUT_OFF] >= PROOF_MIN:
                break
            pipeline.start()
            pipeline.kill(MOMENTS[number % len(MOMENTS)])
        generator.end()
        pipeline.start("--once")
        pipeline.finish()
    wrong = _wrong(own_ottla, tmp_path, generator.acknowledged)

    report_lines.say(SECTION, f"{generator.count} records (seed {SEED}), {pipeline.skips()} replays skipped by topics")
    report_lines.say(SECTION, ", ".join(f"{count} {what}" for what, count in pipeline.hits.items()))
    assert wrong == []
    assert pipeline.hits[CUT_OFF] >= PROOF_MIN
    assert pipeline.hits[IN_TABLES] + pipeline.skips() >= REPLAYS_MIN


def _wrong(broker: Broker, directory: Path, acknowledged: Acknowledged) -> list[str]:
    """All that is not as it should be in what the pipeline has written."""
    good = orders.of_kind(acknowledged, Kind.GOOD)
    copies = [(record.partition, *_copied(record)) for record in broker.records("copies")]
    appended = [(row["number"], Spot(row["_partition"], row["_offset"])) for row in rows(directory / "appended")]
    customers = rows(directory / "customers")
    updates = [_update(record) for record in broker.records("minutes")]
    return [
        *accounts.once_each("copies", (number for _, number, _ in copies), good),
        *accounts.in_place("copies", ((number, spot) for _, number, spot in copies), acknowledged),
        *accounts.in_order("copies", ((partition, spot) for partition, _, spot in copies)),
        *_sent_away(broker, "bad", Kind.BAD, acknowledged),
        *_sent_away(broker, "refused", Kind.REFUSED, acknowledged),
        *accounts.once_each("appended", (number for number, _ in appended), good),
        *accounts.in_place("appended", appended, acknowledged),
        *accounts.once_each("customers", (row["customer"] for row in customers), orders.customers(acknowledged)),
        *accounts.same(
            "customers", {row["customer"]: row["number"] for row in customers}, orders.customers(acknowledged)
        ),
        *accounts.growing("minutes", updates, orders.windows(acknowledged)),
    ]


def _copied(record: Record) -> tuple[int, Spot]:
    number, partition, offset = (int(word) for word in (record.value or b"").split())
    return number, Spot(partition, offset)


def _update(record: Record) -> tuple[str, Window]:
    update = json.loads(record.value or b"")
    assert (record.key or b"").decode() == update["minute"]
    return update["minute"], Window(update["orders"], update["amount"])


def _sent_away(broker: Broker, topic: str, kind: Kind, acknowledged: Acknowledged) -> list[str]:
    """A side topic: each record is there as it was, once, and says where it comes from."""
    by_spot = {spot: number for number, spot in acknowledged.items()}
    found = [(origin(record), record) for record in broker.records(topic)]
    changed = [spot for spot, record in found if spot in by_spot and record.value != orders.value_of(by_spot[spot])]
    said = [f"{topic}: other values than those at {changed}"] if changed else []
    numbers = (by_spot.get(spot, -1) for spot, _ in found)
    return said + accounts.once_each(topic, numbers, orders.of_kind(acknowledged, kind))
