"""A topic to Parquet files, with a manifest that says what they hold.

The files of one step lie in directories of their own, below that of their partition: `partition=3/step=12`. A step that
was interrupted is taken again and replaces what it left behind. Knows nothing of how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

import msgspec

from ottla.client.settings import Isolation
from ottla.clock import Clock
from ottla.pipelines.transfer import frames, topics
from ottla.pipelines.transfer.documents import Directory, literal
from ottla.pipelines.transfer.errors import TotalsDiffer, TransferRefused
from ottla.pipelines.transfer.frames import Tally
from ottla.pipelines.transfer.manifest import MANIFEST, PARTIAL, Export, PartitionTotals, Step, decoded, encoded, new_id
from ottla.pipelines.transfer.steps import Span, cut, total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.client.blocking.admin import Admin

Advance = Callable[[int], None]
"""Told how many offsets more are done."""
RECORDS_PER_STEP = 1_000_000
COMPRESSION = "zstd"
SCHEMA = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, `offset` BIGINT, "
    "timestamp TIMESTAMP, timestampType INT, partition INT, step INT"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What shall be exported."""

    topic: topics.Topic
    spans: tuple[Span, ...]
    isolation: Isolation
    asked: Mapping[str, str | None]
    """The options that decided it, as they were given."""


def planned(admin: Admin, wanted: Wanted, directory: Directory, *, records_per_step: int, clock: Clock) -> Export:
    """The export that shall be in a directory: the one that was begun there, or a new one, noted as begun."""
    where = f"{directory}"
    if directory.read(MANIFEST) is not None:
        raise TransferRefused(
            f"{where}: there is an export already. Choose another directory, or remove that one first"
        )
    asked = {**wanted.asked, "isolation": wanted.isolation}
    begun = directory.read(PARTIAL)
    if begun is not None:
        export = decoded(begun, place=f"{where}/{PARTIAL}")
        if (export.topic, export.topic_id) != wanted.topic[:2] or dict(export.asked) != asked:
            raise TransferRefused(
                f"{where}: another export was begun here, of topic {export.topic!r} with {_told(export.asked)}. "
                "Give the same options to go on with it, or choose another directory"
            )
        return export
    if not directory.is_empty():
        raise TransferRefused(f"{where}: there is something in it. Choose a directory that is empty or not there yet")
    now_ms = clock.now_ms()
    export = Export(
        id=new_id(wanted.topic.topic_id, wanted.spans, now_ms, where),
        asked=asked,
        topic=wanted.topic.name,
        topic_id=wanted.topic.topic_id,
        configs=topics.own_configs(admin, wanted.topic.name),
        partition_count=wanted.topic.partition_count,
        created_ms=now_ms,
        steps=tuple(Step(spans) for spans in cut(wanted.spans, records_max=records_per_step)),
    )
    directory.write(PARTIAL, encoded(export))
    return export


def _told(asked: Mapping[str, str | None]) -> str:
    given = [f"{name}={value}" for name, value in sorted(asked.items()) if value is not None]
    return ", ".join(given) or "no options"


def exported(
    spark: SparkSession,
    bootstrap: str,
    export: Export,
    directory: Directory,
    *,
    advance: Advance,
    compression: str = COMPRESSION,
) -> Export:
    """Take the steps that are left, look at all that was written, and finish the manifest."""
    isolation: Isolation = "read_uncommitted" if export.asked["isolation"] == "read_uncommitted" else "read_committed"
    advance(sum(total(step.spans) for step in export.steps[: export.done]))
    for number in range(export.done, len(export.steps)):
        spans = export.steps[number].spans
        records = frames.of_topic(spark, bootstrap, export.topic, spans, isolation=isolation)
        passed = _write(records, number, directory, compression=compression)
        export = export.with_step(number, rows=passed.rows, checksum=passed.checksum)
        directory.write(PARTIAL, encoded(export))
        advance(total(spans))
    whole = msgspec.structs.replace(export, partitions=partition_totals(rows_of(spark, directory)))
    check(whole, directory)
    directory.write(MANIFEST, encoded(whole))
    directory.remove(PARTIAL)
    return whole


def _write(records: DataFrame, number: int, directory: Directory, *, compression: str) -> Tally:
    from pyspark.sql import functions as fn

    watched, watching = frames.observed(records)
    (
        watched.withColumn("step", fn.lit(number))
        # As the writer wants them, and in each file by offset, so that a reader finds offsets without reading all.
        .sortWithinPartitions("partition", "step", "offset")
        .write.partitionBy("partition", "step")
        .option("partitionOverwriteMode", "dynamic")
        .option("compression", compression)
        .mode("overwrite")
        .parquet(directory.url)
    )
    return frames.tally(watching)


def rows_of(spark: SparkSession, directory: Directory) -> DataFrame:
    """All rows of an export."""
    return spark.read.schema(SCHEMA).parquet(literal(directory.url))


def partition_totals(rows: DataFrame) -> tuple[PartitionTotals, ...]:
    """What there is of each partition."""
    from pyspark.sql import functions as fn

    size = fn.coalesce(fn.octet_length("key"), fn.lit(0)) + fn.coalesce(fn.octet_length("value"), fn.lit(0))
    counted = rows.groupBy("partition").agg(
        fn.count(fn.lit(1)).alias("rows"),
        fn.sum(size.cast("bigint")).alias("bytes"),
        frames.checksum().alias("checksum"),
        fn.unix_millis(fn.min("timestamp")).alias("first"),
        fn.unix_millis(fn.max("timestamp")).alias("last"),
    )
    return tuple(
        PartitionTotals(row["partition"], row["rows"], row["bytes"], row["checksum"], row["first"], row["last"])
        for row in sorted(counted.collect(), key=lambda row: int(row["partition"]))
    )


def check(export: Export, directory: Directory) -> None:
    """Raise unless what is in the files is what was read from the topic."""
    partitions = export.partitions or ()
    in_files = Tally(sum(each.rows for each in partitions), reduce(xor, (each.checksum for each in partitions), 0))
    read = Tally(export.rows, reduce(xor, (step.checksum or 0 for step in export.steps), 0))
    if in_files != read:
        raise TotalsDiffer(
            f"{directory}: {read.rows} records were read and {in_files.rows} are in the files"
            + ("" if in_files.rows != read.rows else ", but their checksums differ")
            + ". Remove the directory and export again; if it happens twice, look at the disk"
        )
