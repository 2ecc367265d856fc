"""One broker and one Spark, in which our source and sink and those of Spark's own connector are both at hand.

Both formats run in the same JVM against the same server process, so that a difference between them is theirs. What they
compute is read off the process trees; Spark's is the JVM with all its Python workers, not the program that measures.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

import ottla
from bench.network import start_process
from bench.spark_cpu import Meter
from ottla.client.blocking.client import Client
from ottla.client.values import NewRecord, OffsetSpec
from ottla.spark import session
from tests.peers import spark_connector

KEY_BYTES, VALUE_BYTES = 8, 192
KEYS = 10_000
BATCH_RECORDS = 75
"""In one record batch of what is read: about 16 KB, which is where Kafka's own producer ends one."""
SETTLE_S_MAX = 30.0
LOOK_AGAIN_S = 0.02
CORES = 2

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    # A query that is stopped in the middle of a batch makes Spark report an error.
    "spark.log.level": "FATAL",
}


class Side(NamedTuple):
    """A connector with its settings."""

    name: str
    format: str
    options: Mapping[str, str] = {}


class Taken(NamedTuple):
    """What a piece of work took."""

    wall_s: float
    spark_cpu_s: float
    broker_cpu_s: float


@dataclass(frozen=True, slots=True)
class Stage:
    """What the measurements run on."""

    spark: SparkSession
    client: Client
    bootstrap: str
    directory: Path
    spark_process: int
    broker_process: int
    numbers: Iterator[int]

    def batch(self, side: Side, topic: str) -> DataFrame:
        """A topic as a table."""
        return self.spark.read.format(side.format).options(**self.options(side, subscribe=topic)).load()

    def stream(self, side: Side, topic: str, **more: str) -> DataFrame:
        """A topic as a stream."""
        return self.spark.readStream.format(side.format).options(**self.options(side, subscribe=topic, **more)).load()

    def options(self, side: Side, **more: str) -> dict[str, str]:
        """Where the broker is, what the side wants, and `more`."""
        return {"kafka.bootstrap.servers": self.bootstrap, **side.options, **more}

    def checkpoint(self) -> str:
        """A place that no other query has used."""
        return str(self.directory / f"checkpoint-{next(self.numbers)}")

    def topic(self, partitions: int, *, records: int = 0) -> str:
        """A new topic, with this many records spread evenly over its partitions, in batches of the usual size."""
        name = f"topic-{next(self.numbers)}"
        self.client.admin().create_topic(name, partitions=partitions)
        if records:
            with self.client.producer() as producer:
                for first in range(0, records, BATCH_RECORDS * partitions):
                    numbers = range(first, min(first + BATCH_RECORDS * partitions, records))
                    producer.send_batch(name, [_record(number, number % partitions) for number in numbers])
        return name

    def committed(self, topic: str, *, partitions: int, at_least: int) -> int:
        """How far a reader of committed records can read, over all partitions, as soon as it is `at_least` this far.

        The markers of a transaction come after it is committed, so it can take a moment.
        """
        wanted: dict[tuple[str, int], int] = {(topic, number): OffsetSpec.LATEST for number in range(partitions)}
        until_s = monotonic() + SETTLE_S_MAX
        while True:
            found = self.client.admin().list_offsets(wanted, isolation="read_committed")
            total = sum(end.offset for end in found.values() if end is not None)
            if total >= at_least:
                return total
            if monotonic() > until_s:
                raise RuntimeError(f"{topic} should have {at_least:,} records, and {total:,} can be read")
            sleep(LOOK_AGAIN_S)

    def timed(self, work: Callable[[], object]) -> Taken:
        """Run it, with the garbage of whoever was before collected first."""
        # The door to the JVM has no types.
        self.spark._jvm.System.gc()  # type: ignore[union-attr]
        meters = self.meters()
        start_s = perf_counter()
        work()
        return Taken(perf_counter() - start_s, *(meter.seconds() for meter in meters))

    def meters(self) -> tuple[Meter, Meter]:
        """What Spark and the broker compute from now on."""
        return Meter(self.spark_process), Meter(self.broker_process)


def _record(number: int, partition: int) -> NewRecord:
    return NewRecord(value_of(number), key_of(number), partition=partition)


def key_of(number: int) -> bytes:
    """One of the keys, in turn."""
    return b"%0*d" % (KEY_BYTES, number % KEYS)


def value_of(number: int) -> bytes:
    """A text that is another one for each number."""
    return (b"%d/" % number * VALUE_BYTES)[:VALUE_BYTES]


@contextmanager
def stage(directory: Path) -> Iterator[Stage]:
    """A server with its data in `directory`, and a session with both connectors."""
    jars = spark_connector.spark_jars(spark_connector.jars(lambda line: print(line, file=sys.stderr)))
    sources = str(Path(ottla.__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (sources, os.environ.get("PYTHONPATH"))))
    serve = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0"]
    with ExitStack() as stack:
        process, bootstrap = start_process(stack, serve)
        client = stack.enter_context(ottla.connect(bootstrap))
        local = {"spark.local.dir": str(directory / "local"), "spark.sql.warehouse.dir": str(directory / "warehouse")}
        spark = session("bench", master=f"local[{CORES}]", config={**SETTINGS, **local, "spark.jars": jars})
        stack.callback(spark.stop)
        java: int = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
        yield Stage(spark, client, bootstrap, directory, java, process.pid, count())
