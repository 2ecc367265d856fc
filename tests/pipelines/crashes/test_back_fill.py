"""A topic as a table, from the log's start on, while a producer goes on: no gap and no duplicate where old meets new.

The pipeline is that of `ottla table create`. It is stopped in the middle of the old records and started again; the
producer notices nothing of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.clock import SystemClock
from ottla.pipelines.run_loop import Outcome, Runner
from ottla.pipelines.runner import opened
from ottla.pipelines.spec import Pipeline, TopicSource
from ottla.pipelines.tables import NoTable, open_log
from ottla.pipelines.tables.from_topic import SOURCE, TopicTable, bad_topic, pipeline_of
from tests.pipelines.crashes import accounts, orders
from tests.pipelines.crashes.generator import Generator
from tests.pipelines.crashes.orders import Kind, Spot
from tests.pipelines.crashes.written import origin, rows
from tests.report import Report
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 300.0
"""Bounds what never takes so long, unless it never ends."""
LOOK_SECONDS = 0.05
OLD_RECORDS = 2_000
FIRST_BATCHES_RECORDS = 400
"""Small enough that the first run can be stopped among the old records."""
LATER_BATCHES_RECORDS = 2_000
LIVE_RECORDS_MIN = 30
"""So many of the records that were produced while the second run was there are in the table before it ends."""


def _pipeline(broker: Broker, topic: str, table: Path) -> Pipeline:
    """As `ottla table create` makes it, and with the topic that it makes for bad records."""
    wanted = TopicTable(
        topic=topic, path=str(table), format="json", schema=orders.SCHEMA, partition_by=("date(event_time)",)
    )
    made = pipeline_of(wanted, directory=table.parent)
    bad = bad_topic(made)
    assert bad is not None
    broker.client.admin().create_topic(bad)
    return made


def _in_batches_of(pipeline: Pipeline, *, records: int) -> Pipeline:
    """The same pipeline, which takes no more at once."""
    source = pipeline.sources[SOURCE]
    assert isinstance(source, TopicSource)
    return replace(pipeline, sources={SOURCE: replace(source, options={"maxOffsetsPerTrigger": str(records)})})


@contextmanager
def _running(pipeline: Pipeline, spark: SparkSession, broker: Broker) -> Iterator[tuple[Runner, Callable[[], Outcome]]]:
    """A run in a thread, and the way to stop it where its batches end."""
    outcomes: list[Outcome] = []
    with opened(pipeline, spark=spark, bootstrap=broker.bootstrap) as runner:
        thread = threading.Thread(target=lambda: outcomes.append(runner.run()))
        thread.start()

        def stop() -> Outcome:
            runner.stop()
            thread.join(WAIT_SECONDS)
            return outcomes[0]

        try:
            yield runner, stop
        finally:
            runner.stop(at_once=True)
            thread.join(WAIT_SECONDS)


def _wait_until(holds: Callable[[], bool]) -> None:
    clock, pause = SystemClock(), threading.Event()
    until_ms = clock.now_ms() + round(WAIT_SECONDS * 1_000)
    while not holds():
        assert clock.now_ms() < until_ms, "it did not come to pass"
        pause.wait(LOOK_SECONDS)


def _count(table: Path) -> int:
    try:
        return open_log(str(table)).state.rows
    except NoTable:
        return 0


def _rows_of(numbers: Iterable[int]) -> list[int]:
    """The records that become rows: there is no rule here that refuses any."""
    return [number for number in numbers if orders.kind_of(number) is not Kind.BAD]


def test_old_records_and_those_that_come_meanwhile_are_in_the_table_without_a_gap_and_once(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path, report_lines: Report
) -> None:
    broker, table = ottla_broker_process, tmp_path / "table"
    topic = broker.topic(orders.PARTITIONS, stem="filled")
    pipeline = _pipeline(broker, topic, table)
    generator = Generator(broker.bootstrap, topic)
    generator.fill(OLD_RECORDS)
    with generator:
        with _running(_in_batches_of(pipeline, records=FIRST_BATCHES_RECORDS), spark, broker) as (_, stop):
            _wait_until(lambda: _count(table) > 0)
            first = stop()
        stopped_at, produced_at = _count(table), generator.count
        with _running(_in_batches_of(pipeline, records=LATER_BATCHES_RECORDS), spark, broker) as (runner, stop):
            _wait_until(lambda: _count(table) > len(_rows_of(range(produced_at))) + LIVE_RECORDS_MIN)
            generator.end()
            _wait_until(runner.drained)
            second = stop()
    found = [(row["number"], Spot(row["_partition"], row["_offset"])) for row in rows(table)]
    bad = [origin(record) for record in broker.records(f"{topic}.bad")]
    acknowledged = generator.acknowledged
    spots = [*(spot for _, spot in found), *bad]

    report_lines.say(
        "pipelines, back-fill plus live",
        f"{generator.count} records, {OLD_RECORDS} of them old; stopped at {stopped_at} rows, {produced_at} produced",
    )
    assert (first.state, first.unfinished, second.state, second.unfinished) == ("stopped", (), "stopped", ())
    assert stopped_at < len(_rows_of(range(OLD_RECORDS))), "it is to be stopped among the old records"
    assert accounts.dense("table and bad records", spots, acknowledged) == []
    assert accounts.once_each("table", (number for number, _ in found), _rows_of(acknowledged)) == []
    assert accounts.in_place("table", found, acknowledged) == []
