"""What Spark does for a table: rows into Parquet files and out of them. Runs on the driver, inside a batch.

Rows are brought into the table's own shape first (its columns, its types, its order), so that every file of a version
looks alike. Knows files by their names only, and nothing of commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.pipelines.tables import schemas
from ottla.pipelines.tables.commits import HOME, DataFile, State
from ottla.pipelines.tables.contract import Shape
from ottla.pipelines.tables.upserts import CHANGE_COLUMNS, changes_of, merged_rows, paths_holding, quoted
from ottla.pipelines.tables.writing import FILES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CHANGE_FILES_MAX = 4
"""The changes of one batch are few as a rule, and each file that waits makes reading slower."""
FILE_BYTES = 128 * 1024 * 1024
"""About so big are the files that a rewrite leaves."""
_TIME_SETTING = "spark.sql.parquet.outputTimestampType"


class SparkRows:
    """The rows of one table, in a Spark session."""

    def __init__(self, root: str, spark: SparkSession | None = None) -> None:
        self._root = root
        self._spark = spark

    def _session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        found = self._spark or SparkSession.getActiveSession()
        assert found is not None, "rows are written in a session"
        return found

    def schema(self, frame: DataFrame) -> dict[str, Any]:
        self._spark = frame.sparkSession
        found = json.loads(frame.schema.json())
        assert isinstance(found, dict), "a frame is a struct"
        return found

    def drain(self, frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def write(self, frame: DataFrame, shape: Shape, directory: str) -> None:
        self._save(shaped(frame, shape), shape, directory)

    def write_changes(self, frame: DataFrame, shape: Shape, directory: str, *, sequence: int) -> None:
        changes = changes_of(frame, shape.keys, order=shape.order, deleted=shape.deleted, sequence=sequence)
        rows = shaped(changes, shape, also=CHANGE_COLUMNS).coalesce(CHANGE_FILES_MAX)
        rows.write.mode("overwrite").parquet(f"{self._root}/{directory}")

    def holding(self, changes: Sequence[str], files: Sequence[DataFile], shape: Shape) -> Sequence[DataFile]:
        if not files:
            return ()
        table = read_files(self._session(), self._root, files, shape.schema)
        paths = paths_holding(table, read_changes(self._session(), self._root, changes, shape.schema), shape.keys)
        # Spark gives the path as a URL; the name alone is unique, and the same in every file system.
        names = {path.rpartition("/")[2] for path in paths}
        return [one for one in files if one.path.rpartition("/")[2] in names]

    def write_merged(self, changes: Sequence[str], files: Sequence[DataFile], shape: Shape, directory: str) -> None:
        table = read_files(self._session(), self._root, files, shape.schema)
        new = read_changes(self._session(), self._root, changes, shape.schema)
        rows = merged_rows(table, new, shape.keys, order=shape.order)
        self._save(self._gathered(rows.select(*_quoted(schemas.names(shape.schema))), files, shape), shape, directory)

    def write_again(self, files: Sequence[DataFile], shape: Shape, directory: str) -> None:
        rows = read_files(self._session(), self._root, files, shape.schema)
        # Without partitions there is one group of files, and whoever chose them has bounded what comes of it.
        self._save(self._gathered(rows, files, shape) if shape.partition_by else rows.coalesce(1), shape, directory)

    def rows(self, path: str) -> int:
        import pyarrow.parquet

        found: int = pyarrow.parquet.read_metadata(f"{self._root}/{path}").num_rows
        return found

    def _gathered(self, rows: DataFrame, files: Sequence[DataFile], shape: Shape) -> DataFrame:
        """Rows in as few tasks as make files of a good size, those of one partition together."""
        tasks = 1 + sum(one.bytes for one in files) // FILE_BYTES
        columns = [column.name for column in shape.partitions]
        return rows.repartition(tasks, *_quoted(columns)) if columns else rows.coalesce(tasks)

    def _save(self, rows: DataFrame, shape: Shape, directory: str) -> None:
        writer = rows.write.mode("overwrite")
        columns = [column.name for column in shape.partitions]
        if columns:
            writer = writer.partitionBy(*columns)
        with _times_for_all_readers(rows.sparkSession):
            writer.parquet(f"{self._root}/{directory}")


@contextmanager
def _times_for_all_readers(spark: SparkSession) -> Iterator[None]:
    """Spark's own format for times has been given up, and others read it in nanoseconds, which end in the year 2262."""
    before = spark.conf.get(_TIME_SETTING, None)
    spark.conf.set(_TIME_SETTING, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_TIME_SETTING)
        else:
            spark.conf.set(_TIME_SETTING, before)


def read_state(spark: SparkSession, root: str, state: State) -> DataFrame:
    """The rows of a table at one version."""
    assert state.schema is not None, "the table was written"
    table = read_files(spark, root, tuple(state.live.values()), state.schema)
    if not state.changes:
        return table
    changes = read_changes(spark, root, [one.place for one in state.changes.values()], state.schema)
    return merged_rows(table, changes, state.keys, order=state.order).select(*_quoted(schemas.names(state.schema)))


def read_files(spark: SparkSession, root: str, files: Sequence[DataFile], schema: Mapping[str, Any]) -> DataFrame:
    """The rows of these files, with all columns of the schema; those that a file lacks are null."""
    struct = _type(schema)
    if not files:
        return spark.createDataFrame([], struct)
    home = f"{root}/{HOME}/{FILES}"
    reader = spark.read.schema(struct).option("basePath", home)
    return reader.parquet(*(_escaped(f"{root}/{one.place}") for one in files)).select(*_quoted(schemas.names(schema)))


def read_changes(spark: SparkSession, root: str, places: Sequence[str], schema: Mapping[str, Any]) -> DataFrame:
    """The changes in these files, or directories of them."""
    more = zip(CHANGE_COLUMNS, ("boolean", "long"), strict=True)
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in more]
    struct = _type({"type": "struct", "fields": [*schema["fields"], *fields]})
    return spark.read.schema(struct).parquet(*(_escaped(f"{root}/{place}") for place in places))


def shaped(frame: DataFrame, shape: Shape, *, also: Sequence[str] = ()) -> DataFrame:
    """A frame with the table's columns: those that it lacks are null, types are widened, days are taken."""
    from pyspark.sql import functions as f

    made = {column.name: column.date_of for column in shape.partitions if column.date_of is not None}
    present = {name.lower(): name for name in frame.columns}
    own = json.loads(frame.schema.json())
    columns = []
    for field in shape.schema["fields"]:
        name = field["name"]
        if name in made:
            column = f.to_date(f.col(quoted(present[str(made[name]).lower()])))
        elif name.lower() in present and schemas.type_of(own, name) != "void":
            column = _cast(f.col(quoted(present[name.lower()])), schemas.type_of(own, name), field["type"])
        else:
            column = f.lit(None).cast(_type(field["type"]))
        columns.append(column.alias(name))
    return frame.select(*columns, *_quoted(also))


def _cast(column: Column, has: Any, wants: Any) -> Column:
    """A column as the table has it; structs by the names of their fields, which a plain cast does not look at."""
    from pyspark.sql import functions as f

    if not isinstance(wants, dict) or wants["type"] != "struct" or not isinstance(has, dict):
        return column.cast(_type(wants))
    present = {field["name"].lower(): field for field in has["fields"]}
    fields = []
    for field in wants["fields"]:
        found = present.get(field["name"].lower())
        if found is None or found["type"] == "void":
            inner = f.lit(None).cast(_type(field["type"]))
        else:
            inner = _cast(column.getField(found["name"]), found["type"], field["type"])
        fields.append(inner.alias(field["name"]))
    return f.when(column.isNotNull(), f.struct(*fields))


def _type(type_: Any) -> Any:
    from pyspark.sql.types import StructField

    return StructField.fromJson({"name": "it", "type": type_, "nullable": True, "metadata": {}}).dataType


def _quoted(names: Sequence[str]) -> list[str]:
    return [quoted(name) for name in names]


def _escaped(path: str) -> str:
    """A path that Spark takes literally: it would read brackets and stars as a pattern."""
    return "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in path)
