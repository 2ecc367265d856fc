"""A table of ours, or a directory of Parquet files, that is read anew for each batch of a stream.

Spark lists the files of a table once, when the query starts. Here one task looks up the table's last version when it
runs, and reads its files, so that a batch sees one version and the next batch the next one. Changes that are not merged
yet come out as rows of their own, and the plan around it picks the last row of each key. Large tables are better read
as streams. Made for Spark to find and to pickle; writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME = "ottla_table_now"
BROADCAST_BYTES_MAX = 10 * 1024 * 1024
"""As much as Spark itself sends to every task for a join, of tables whose size it knows."""
MERGED = -1
"""The sequence of rows that are in the table's files: every change is later."""
TIME_ZONE = "spark.sql.session.timeZone"
_NULL = "__HIVE_DEFAULT_PARTITION__"


def read_now(spark: SparkSession, path: str) -> DataFrame:
    """A frame that gives the table as it is whenever it is computed; its columns are those of now."""
    from pyspark.sql import functions as F  # noqa: N812

    from ottla.pipelines.tables import read_table, table_files
    from ottla.pipelines.tables.commit_log import CommitLog
    from ottla.pipelines.tables.upserts import CHANGE_COLUMNS, DELETED, SEQUENCE, last_of_each_key

    schema = read_table(spark, path).schema
    state = CommitLog(table_files(path)).refresh()
    if state.keys:
        schema = schema.add(DELETED, "boolean").add(SEQUENCE, "long")
    spark.dataSource.register(TableNow)
    options = {"path": path, "columns": schema.json(), "zone": spark.conf.get(TIME_ZONE, "UTC") or "UTC"}
    rows = spark.read.format(NAME).options(**options).load()
    if state.keys:
        rows = last_of_each_key(rows, state.keys, order=state.order).where(~F.col(DELETED)).drop(*CHANGE_COLUMNS)
    small = state.schema is not None and state.bytes <= BROADCAST_BYTES_MAX
    return F.broadcast(rows) if small else rows


class TableNow(DataSource):
    """Takes the table's path, its columns as Spark writes schemas in JSON, and the zone of times in names."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.options["columns"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableNowReader(self.options["path"], self.schema(), zone=self.options["zone"])


class TableNowReader(DataSourceReader):
    """One task, so that all rows are of one version."""

    def __init__(self, path: str, schema: StructType, *, zone: str) -> None:
        self._path = path
        self._schema = schema
        self._zone = zone

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        from ottla.pipelines.tables import table_files
        from ottla.pipelines.tables.commit_log import CommitLog
        from ottla.pipelines.tables.upserts import DELETED, SEQUENCE

        wanted = to_arrow_schema(self._schema, timezone="UTC")
        files = table_files(self._path)
        state = CommitLog(files).refresh()
        if state.schema is None:
            root = Path(files.root)
            for file in plain_files(root):
                values = partition_values(file.relative_to(root).parts[:-1])
                yield from _batches(file, wanted, values, zone=self._zone)
            return
        merged = {DELETED: False, SEQUENCE: MERGED}
        for one in state.live.values():
            values = partition_values(one.partition.split("/")) | merged
            yield from _batches(Path(files.root, one.place), wanted, values, zone=self._zone)
        for one in state.changes.values():
            place = Path(files.root, one.place)
            for file in sorted(place.rglob("*.parquet")) if place.is_dir() else [place]:
                yield from _batches(file, wanted, {}, zone=self._zone)


def plain_files(root: Path) -> list[Path]:
    """The files of a directory that is no table of ours, as Spark picks them: by what their names do not begin with."""
    return [
        file
        for file in sorted(root.rglob("*"))
        if file.is_file() and not any(part.startswith(("_", ".")) for part in file.relative_to(root).parts)
    ]


def partition_values(directories: Sequence[str]) -> dict[str, Any]:
    """The values that are in the names of directories: `date=2026-11-16`."""
    pairs = [name.split("=", 1) for name in directories if "=" in name]
    return {unquote(name): None if text == _NULL else unquote(text) for name, text in pairs}


def _batches(file: Path, wanted: pa.Schema, values: dict[str, Any], *, zone: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file with all columns of the schema; those that it lacks are in `values`, or null."""
    import pyarrow as pa
    import pyarrow.parquet

    # Times as Spark writes them by default would overflow in nanoseconds.
    with pyarrow.parquet.ParquetFile(file, coerce_int96_timestamp_unit="us") as opened:
        for batch in opened.iter_batches(batch_size=8192):
            # Names differ by more than their case, here as in Spark.
            places = {name.lower(): place for place, name in enumerate(batch.schema.names)}
            columns = []
            for field in wanted:
                place = places.get(field.name.lower())
                if place is not None:
                    columns.append(as_type(batch.column(place), field.type))
                else:
                    one = scalar_of(values.get(field.name), field.type, zone=zone)
                    columns.append(pa.repeat(one, batch.num_rows))
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def scalar_of(value: Any, kind: Any, *, zone: str) -> Any:
    """What stands in the name of a directory, in its column's type; times there are those of a zone."""
    import pyarrow as pa
    import pyarrow.compute

    one = pa.scalar(value)
    if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is not None:
        return pyarrow.compute.assume_timezone(one.cast(pa.timestamp(kind.unit)), zone).cast(kind)
    return one.cast(kind)


def as_type(column: pa.Array, kind: Any) -> pa.Array:
    """A column in the type that the table has by now: wider numbers, and structs with more fields."""
    import pyarrow as pa
    import pyarrow.compute

    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        fields = [
            as_type(pyarrow.compute.struct_field(column, field.name), field.type)
            if column.type.get_field_index(field.name) >= 0
            else pa.nulls(len(column), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    return column.cast(kind)
