"""Parquet files into a topic, each row once: an export of ours, step by step, or any table with a value.

A step is written under the name of the import and its number, and the broker remembers that: an import that was
interrupted goes on after the last step that was committed. Knows nothing of how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ottla.pipelines.transfer import exporting, frames
from ottla.pipelines.transfer.documents import Directory, literal
from ottla.pipelines.transfer.errors import TotalsDiffer, TransferRefused
from ottla.pipelines.transfer.manifest import MANIFEST, PARTIAL, Export, decoded, new_id
from ottla.pipelines.transfer.steps import total
from ottla.pipelines.transfer.topics import Topic
from ottla.spark.sink_columns import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ottla.client.blocking.admin import Admin

Routing = Literal["keep", "key"]
JSON = "json"
"""What `value` says for all columns, as one JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Which columns of a table become what of a record; None: the column of that name, if there is one."""

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    order: str | None = None
    """Records with the same key are written in the order of this column."""


class Imported(NamedTuple):
    """What an import has come to."""

    rows: int
    """Written now."""
    rows_before: int
    """Written by earlier runs of the same import."""


# --- an export of ours ------------------------------------------------------------------------------------


def export_in(directory: Directory, *, force: bool) -> Export | None:
    """The export that a directory holds; None: there is none, and it may hold any table.

    One that is not whole is refused, or cut down to the steps that are done (`force`).
    """
    whole = directory.read(MANIFEST)
    if whole is not None:
        return decoded(whole, place=f"{directory}/{MANIFEST}")
    begun = directory.read(PARTIAL)
    if begun is None:
        return None
    export = decoded(begun, place=f"{directory}/{PARTIAL}")
    if not force:
        raise TransferRefused(
            f"{directory}: the export of topic {export.topic!r} is not whole: {export.done} of {len(export.steps)} "
            "steps are done. Run the same `ottla export` again to finish it, or import what there is with --force"
        )
    return msgspec.structs.replace(export, steps=export.steps[: export.done])


def verify(spark: SparkSession, export: Export, directory: Directory) -> None:
    """Raise unless the files hold what the manifest says. Before anything is written."""
    found = {each.partition: each for each in exporting.partition_totals(exporting.rows_of(spark, directory))}
    if export.partitions is None:
        return
    for told in export.partitions:
        if found.pop(told.partition, None) != told:
            raise TotalsDiffer(
                f"{directory}: partition {told.partition} does not hold what the manifest says: files were changed, "
                "damaged or lost. Nothing was imported. Export the topic again, or take another copy"
            )
    if found:
        raise TotalsDiffer(
            f"{directory}: there are files of partitions {sorted(found)}, of which the manifest says nothing. Nothing "
            "was imported. Take them away"
        )


def refuse_misfit(export: Export, topic: Topic, *, routing: Routing) -> None:
    """Raise if the records cannot keep their partitions."""
    highest = max((span.partition for span in export.spans), default=-1)
    if routing == "keep" and highest >= topic.partition_count:
        raise TransferRefused(
            f"topic {topic.name!r} has {topic.partition_count} partitions, and the export has records of partition "
            f"{highest}. Add partitions, let --create make a topic like the one that was exported, or give "
            "--route key: records go where their keys belong"
        )


def application(export: Export, topic: Topic, *, routing: Routing, keeps_time: bool, name: str) -> str:
    """What an import is known by: the same export into the same topic in the same way is the same import.

    A topic that was deleted and made anew is another one. `name` tells apart what shall be done more than once.
    """
    return f"import-{new_id(export.id, topic.topic_id, routing, keeps_time, name)}"


def import_export(
    spark: SparkSession,
    bootstrap: str,
    admin: Admin,
    export: Export,
    directory: Directory,
    topic: Topic,
    *,
    routing: Routing,
    keeps_time: bool,
    name: str,
    advance: Callable[[int], None],
) -> Imported:
    """Take the steps that are left."""
    known_as = application(export, topic, routing=routing, keeps_time=keeps_time, name=name)
    done = frames.steps_committed(admin, topic.name, known_as)
    advance(sum(total(step.spans) for step in export.steps[:done]))
    rows = exporting.rows_of(spark, directory)
    written = 0
    for number, step in enumerate(export.steps[done:], done):
        options = frames.sink(bootstrap, topic.name, application=known_as, step=number)
        share = frames.by_task(rows.where(f"step = {number}"), "partition", values=len(step.spans))
        watched, watching = frames.observed(share.sortWithinPartitions("partition", "offset"))
        chosen = ["key", "value", "headers", *(["partition"] if routing == "keep" else [])]
        times = [f"timestamp AS {TIMESTAMP}"] if keeps_time else []
        watched.selectExpr(*chosen, *times).write.format("ottla").options(**options).mode("append").save()
        passed = frames.tally(watching)
        if passed != (step.rows, step.checksum):
            raise TotalsDiffer(
                f"{directory}: step {number} has {passed.rows} rows, and the manifest says {step.rows} (or their "
                f"checksums differ). What was written of it is in topic {topic.name!r}: the files were changed while "
                "they were imported. Delete the topic, export again, and import into a new one"
            )
        written += passed.rows
        advance(total(step.spans))
    return Imported(written, sum(step.rows or 0 for step in export.steps[:done]))


# --- any table --------------------------------------------------------------------------------------------


def import_table(
    spark: SparkSession,
    bootstrap: str,
    admin: Admin,
    directory: Directory,
    topic: Topic,
    mapping: Mapping,
    *,
    name: str,
) -> Imported:
    """Write a table of somebody else's, in one go: all of it counts, or nothing."""
    table = spark.read.parquet(literal(directory.url))
    records = as_records(table, mapping)
    count = records.count()
    known_as = f"import-{new_id(_identity(table), topic.topic_id, mapping, name)}"
    if frames.steps_committed(admin, topic.name, known_as):
        return Imported(0, count)
    from pyspark.sql import Observation
    from pyspark.sql import functions as fn

    watching = Observation()
    options = frames.sink(bootstrap, topic.name, application=known_as, step=0)
    watched = records.observe(watching, fn.count(fn.lit(1)).alias("rows"))
    watched.write.format("ottla").options(**options).mode("append").save()
    passed = int(watching.get["rows"])
    if passed != count:
        raise TotalsDiffer(
            f"{directory}: there were {count} rows, and {passed} were written to topic {topic.name!r}: the files were "
            "changed meanwhile. Delete the topic and import again"
        )
    return Imported(passed, 0)


def as_records(table: DataFrame, mapping: Mapping) -> DataFrame:
    """A table's rows as records."""
    from pyspark.sql import functions as fn

    def column(name: str, what: str) -> Column:
        if name not in table.columns:
            raise TransferRefused(f"{what}: there is no column {name!r}. There are {', '.join(table.columns)}")
        return fn.col(f"`{name.replace('`', '``')}`")

    def text(name: str, what: str) -> Column:
        is_text = dict(table.dtypes).get(name) in ("binary", "string")
        return column(name, what) if is_text else column(name, what).cast("string")

    if mapping.value is None and "value" not in table.columns:
        raise TransferRefused(
            f"there is no column named value among {', '.join(table.columns)}. Name the one that holds the records "
            "with --value, or write all columns as JSON objects with --value json"
        )
    is_json = mapping.value == JSON and JSON not in table.columns
    value = fn.to_json(fn.struct("*")) if is_json else text(mapping.value or "value", "--value")
    chosen = [value.alias("value")]
    key = mapping.key or ("key" if "key" in table.columns else None)
    if key is not None:
        chosen.append(text(key, "--key").alias("key"))
    if "headers" in table.columns and not is_json:
        chosen.append(fn.col("headers"))
    if mapping.timestamp is not None:
        chosen.append(column(mapping.timestamp, "--timestamp").cast("timestamp").alias(TIMESTAMP))
    if mapping.order is None:
        return table.select(*chosen)
    rows = table.select(*chosen, column(mapping.order, "--order").alias("_order"))
    # One task has all records of a key; those without one are in order as a whole.
    spread = rows.repartition(fn.col("key")) if key is not None else rows.coalesce(1)
    return spread.sortWithinPartitions("_order").drop("_order")


def _identity(table: DataFrame) -> str:
    """What tells these files apart from others, and from what they were before they were changed."""
    files = table.selectExpr(
        "_metadata.file_path AS path", "_metadata.file_size AS size", "_metadata.file_modification_time AS time"
    ).distinct()
    return new_id(*sorted(tuple(map(str, row)) for row in files.collect()))
