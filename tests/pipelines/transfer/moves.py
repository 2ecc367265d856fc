"""Topics to be moved, and short ways to move them; for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.values import NewRecord, Record
from ottla.clock import SystemClock
from ottla.pipelines.transfer import exporting, importing, topics
from ottla.pipelines.transfer.documents import LocalDirectory
from ottla.pipelines.transfer.exporting import Advance, Wanted
from ottla.pipelines.transfer.importing import Imported
from ottla.pipelines.transfer.manifest import Export
from ottla.pipelines.transfer.steps import between
from tests.clients.transactions.kill_producer import pause
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP_RECORDS = 70


class Died(Exception):
    """As if the process had been killed."""


class MortalDirectory(LocalDirectory):
    """A directory whose owner dies before so many documents have been written."""

    writes_left = 1_000

    def write(self, name: str, document: bytes) -> None:
        if not self.writes_left:
            raise Died
        self.writes_left -= 1
        super().write(name, document)


def nothing(count: int) -> None:
    """Told how far it is; nobody wants to know."""


def dying(after: int) -> Advance:
    """Dies when it is told how far it is, after so many times."""
    told = 0

    def advance(count: int) -> None:
        nonlocal told
        told += 1
        if told > after:
            raise Died

    return advance


def wait(seconds: float) -> None:
    pause(seconds)


def content(record: Record) -> tuple[object, ...]:
    """All that a record is but its place."""
    return record.key, record.value, record.headers, record.timestamp_ms


def placed(record: Record) -> tuple[object, ...]:
    """The same with its partition."""
    return record.partition, *content(record)


def fill(broker: Broker) -> str:
    """A topic with all that a topic can have."""
    now_ms = SystemClock().now_ms()
    topic = broker.topic(3, configs={"retention.ms": "604800000"})
    plain = [NewRecord(f"v{n}".encode(), f"k{n}".encode(), timestamp_ms=now_ms - n * 1000) for n in range(60)]
    odd = [
        NewRecord(None, b"tombstone"),
        NewRecord(b"", b""),
        NewRecord(b"no key", None),
        NewRecord(None, None),
        NewRecord(b"v", b"k", [("a", b"1"), ("a", b"2"), ("", b""), ("none", None)], timestamp_ms=now_ms - 5),
        NewRecord(bytes(range(256)) * 40, bytes(range(256))),
    ]
    broker.produce(topic, plain)
    for partition, codec in enumerate(("gzip", "zstd", "snappy")):
        broker.produce(topic, [*odd, *plain[:20]], partition=partition, compression=codec)
    broker.produce_in_transaction(topic, [f"aborted {n}" for n in range(20)], commit=False)
    broker.produce_in_transaction(topic, [f"committed {n}" for n in range(20)], commit=True)
    return topic


def begin(broker: Broker, name: str, directory: LocalDirectory) -> Export:
    """Plan an export of all there is."""
    admin = broker.client.admin()
    topic = topics.existing(admin, name)
    ends = topics.ends(admin, name, topic.partitions, isolation="read_committed")
    spans = between(topics.starts(admin, name, topic.partitions), ends)
    wanted = Wanted(topic=topic, spans=spans, isolation="read_committed", asked={"from": None})
    return exporting.planned(admin, wanted, directory, records_per_step=STEP_RECORDS, clock=SystemClock())


def export(
    spark: SparkSession, broker: Broker, name: str, directory: LocalDirectory, *, advance: Advance = nothing
) -> Export:
    begun = begin(broker, name, directory)
    return exporting.exported(spark, broker.bootstrap, begun, directory, advance=advance)


def import_(
    spark: SparkSession,
    broker: Broker,
    export: Export,
    directory: LocalDirectory,
    name: str,
    *,
    advance: Advance = nothing,
) -> Imported:
    admin = broker.client.admin()
    return importing.import_export(
        spark,
        broker.bootstrap,
        admin,
        export,
        directory,
        topics.existing(admin, name),
        routing="keep",
        keeps_time=True,
        name="",
        advance=advance,
    )
