"""A streaming query from topic to topic is exactly-once under `kill -9` of its driver, its tasks and the broker.

The driver is killed between the first write and the commit of a batch, or right after its commit, before Spark has
noted it; sometimes with all its workers, sometimes its workers find out by themselves. Tasks fail at random, by an
error or as processes that are killed. The broker is killed at random moments and started again. A read_committed
reader follows the copy all the time and must never see a record twice, too early or out of order. In a second test the
driver is not killed but frozen, and goes on when another has its place.

SPARK_KILL_RECORDS says how many records there are (default 12,000) and SPARK_KILL_BATCHES in how many batches (default
6), SPARK_DRIVER_KILLS how often the driver is killed in one of those two moments (default 2), SPARK_BROKER_KILLS how
often the broker is killed (default 1), and SPARK_FROZEN_RECORDS how many records the driver copies that is frozen
(default 6,000, in batches of the same size).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.client.values import NewRecord
from tests.clients.transactions import kill_files, kill_reader
from tests.report import Report
from tests.spark.brokers import Broker
from tests.spark.kills.follower import Follower, key_of, value_of
from tests.spark.kills.killed_copy import KilledCopy, Moment
from tests.spark.kills.streaming_copy import Errand
from tests.spark.kills.watch import Watch

RECORDS = int(os.environ.get("SPARK_KILL_RECORDS", "12000"))
FROZEN_RECORDS = int(os.environ.get("SPARK_FROZEN_RECORDS", "6000"))
DRIVER_KILLS = int(os.environ.get("SPARK_DRIVER_KILLS", "2"))
BROKER_KILLS = int(os.environ.get("SPARK_BROKER_KILLS", "1"))
SEED = int(os.environ.get("SPARK_KILL_SEED", "1"))
BATCHES = int(os.environ.get("SPARK_KILL_BATCHES", "6"))
PARTITIONS = 4
FAILURE_CHANCE = 0.3
PROOF_MIN = min(3, DRIVER_KILLS // 2)
"""How many replays must have been skipped, and how many attempts fenced or aborted, for a run to prove something."""
BROKER_MOMENTS = (Moment.WRITING, Moment.STARTING, Moment.WRITING, Moment.COMMITTED)
"""Taken in turn."""
SOURCE, TARGET = "source", "target"
SECTION = "Spark, exactly once under kill -9"
SKIPPED = re.compile(r"batch (\d+) of query \S+ is committed already: skipped")
GIVEN_UP = re.compile(r"Query .* terminated with error")
"""No kill of the broker, and no task that fails, may end a query."""
TOO_SLOW = re.compile(r"Python worker failed to connect back")
"""Spark's own limit of ten seconds, which says only that this machine is busy."""
FENCED = re.compile(
    r"batch (\d+) of query \S+: an earlier attempt had left a transaction open in slot \S+/(\d+): fenced"
)


class Copying(NamedTuple):
    """A copy, and what can be seen of it."""

    copy: KilledCopy
    watch: Watch
    follower: Follower
    stumbles: Path


def _fill(broker: Broker, record_count: int) -> None:
    """Make the topics and write the source."""
    for topic in (SOURCE, TARGET):
        broker.client.admin().create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        records = [
            NewRecord(value_of(partition, number), key_of(partition, number))
            for number in range(record_count // PARTITIONS)
        ]
        broker.produce(SOURCE, records, partition=partition)


def _play(copy: KilledCopy) -> None:
    """All blows, then the rest of the copy."""
    broker_kills = 0
    while True:
        copy.start()
        hits = copy.hits.total()
        if broker_kills < BROKER_KILLS and hits >= (broker_kills + 0.5) * (DRIVER_KILLS + 1) / BROKER_KILLS - 0.5:
            copy.kill_broker(BROKER_MOMENTS[broker_kills % len(BROKER_MOMENTS)])
            broker_kills += 1
        if hits >= DRIVER_KILLS:
            break
        # First those that come after the commit: each takes a batch, and there are not many.
        is_behind = copy.hits[Moment.COMMITTED] <= copy.hits[Moment.WRITING]
        copy.kill_driver(Moment.COMMITTED if is_behind else Moment.WRITING, whole=hits % 3 != 1)
    copy.finish()


def _check(broker: Broker, record_count: int) -> None:
    """The copy equals the source, for our own reader and for a foreign one."""
    each = record_count // PARTITIONS
    expected = {partition: [value_of(partition, number) for number in range(each)] for partition in range(PARTITIONS)}
    assert broker.server is not None
    assert kill_reader.committed(broker.server, TARGET, partitions=PARTITIONS, at_least=record_count) == expected
    found = [(record.partition, record.key, record.value) for record in broker.records(TARGET)]
    assert found == [
        (partition, key_of(partition, number), value)
        for partition, values in expected.items()
        for number, value in enumerate(values)
    ]


@contextmanager
def _copying(broker: Broker, directory: Path, record_count: int) -> Iterator[Copying]:
    """A filled source, a copy that has not been started, and those who watch it; all is gone after the block."""
    assert broker.server is not None
    _fill(broker, record_count)
    checkpoint, stumbles = directory / "checkpoint", directory / "stumbles"
    stumbles.touch()
    errand = Errand(
        address=broker.bootstrap,
        source=SOURCE,
        target=TARGET,
        checkpoint=str(checkpoint),
        scratch=str(directory / "scratch"),
        stumbles=str(stumbles),
        batch_records=RECORDS // BATCHES,
        task_count=PARTITIONS,
        seed=SEED,
        failure_chance=FAILURE_CHANCE,
    )
    watch = Watch(broker.client, TARGET, partitions=PARTITIONS, checkpoint=checkpoint)
    with Follower(broker.bootstrap, TARGET, partitions=PARTITIONS) as follower:
        copy = KilledCopy(errand, broker.server, watch, follower, directory, seed=SEED)
        try:
            yield Copying(copy, watch, follower, stumbles)
        finally:
            copy.end()


def test_a_streaming_copy_is_complete_once_and_in_order_whoever_is_killed(
    own_ottla: Broker, spark_java: Path, tmp_path: Path, report_lines: Report
) -> None:
    assert own_ottla.server is not None
    with _copying(own_ottla, tmp_path, RECORDS) as (copy, watch, follower, stumbles):
        _play(copy)
        _check(own_ottla, RECORDS)
    assert follower.seen.wrong == []
    assert follower.seen.count == RECORDS
    own_ottla.server.terminate()

    told, skips = kill_files.tally(own_ottla.server.data, f"{watch.query_id}/"), copy.said(SKIPPED)
    failures = stumbles.read_text(encoding="utf-8").splitlines()
    report_lines.say(
        SECTION,
        f"{RECORDS} records in {watch.logged() + 1} batches, {len(copy.lives)} lives of the driver, "
        f"{len(failures)} tasks failed on purpose, {len(skips)} replays skipped by their key, {told.aborts} "
        f"transactions aborted, {len(copy.said(FENCED))} attempts fenced by the next one (seed {SEED})",
    )
    hits = {f"driver killed {moment.value}": count for moment, count in copy.hits.items()}
    report_lines.say(SECTION, ", ".join(f"{count} {what}" for what, count in {**hits, **copy.counts}.items()))
    assert {life for life, _ in copy.said(GIVEN_UP)} <= {life for life, _ in copy.said(TOO_SLOW)}
    assert copy.hits.total() >= DRIVER_KILLS
    assert copy.counts["kills of the broker"] == BROKER_KILLS
    assert failures
    assert len(skips) >= PROOF_MIN
    assert told.aborts >= PROOF_MIN
    assert watch.logged() + 1 == BATCHES


def test_a_driver_that_was_frozen_and_replaced_adds_nothing_when_it_goes_on(
    own_ottla: Broker, spark_java: Path, tmp_path: Path, report_lines: Report
) -> None:
    with _copying(own_ottla, tmp_path, FROZEN_RECORDS) as (copy, _, follower, _):
        copy.start()
        copy.replace_frozen_driver(Moment.WRITING)
        copy.finish()
        _check(own_ottla, FROZEN_RECORDS)
    assert follower.seen.wrong == []
    assert copy.counts["transactions open when the driver was frozen"] > 0
    report_lines.say(SECTION, ", ".join(f"{count} {what}" for what, count in copy.counts.items()))
