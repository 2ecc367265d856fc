"""Tables that a stream looks up: read anew whenever the frame is computed, with changes that are not merged yet."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from ottla.pipelines.table_now import TableNowReader, as_type, partition_values, read_now, scalar_of
from ottla.pipelines.tables import open_table, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Computed from the plan, as each batch of a stream is: a frame that was collected keeps what it has shuffled."""
    return sorted(tuple(row) for row in frame.select("*").collect())


def test_a_table_by_keys_is_what_it_has_become_whenever_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "customers")
    table = open_table(path, keys=("id",), deleted="name IS NULL")
    table.write_batch(
        spark.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c') AS t(id, name)"), application="q", batch_id=0
    )
    found = read_now(spark, path)
    assert rows(found) == [(1, "a"), (2, "b"), (3, "c")]
    changes = "SELECT * FROM VALUES (2, 'B'), (3, NULL), (4, 'd') AS t(id, name)"
    table.write_batch(spark.sql(changes), application="q", batch_id=1)
    assert rows(found) == rows(read_table(spark, path)) == [(1, "a"), (2, "B"), (4, "d")]


def test_a_table_in_partitions_has_its_times_and_days_and_the_columns_that_later_rows_lack(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "orders")
    table = open_table(path, partition_by=("date(at)",))
    first = "SELECT 1 AS id, TIMESTAMP'2024-01-02 03:04:05.678901Z' AS at, struct(1 AS x) AS s"
    table.write_batch(spark.sql(first), application="q", batch_id=0)
    later = "SELECT 2L AS id, CAST(NULL AS TIMESTAMP) AS at, struct(2 AS x, 'y' AS y) AS s, array(1, 2) AS more"
    table.write_batch(spark.sql(later), application="q", batch_id=1)
    found = read_now(spark, path)
    assert found.schema.names == read_table(spark, path).schema.names
    assert [row.asDict(recursive=True) for row in found.orderBy("id").collect()] == [
        row.asDict(recursive=True) for row in read_table(spark, path).orderBy("id").collect()
    ]


def test_a_directory_of_parquet_files_is_a_table_too(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "countries")
    spark.sql("SELECT 'de' AS code, 49 AS prefix").write.partitionBy("prefix").parquet(path)
    found = read_now(spark, path)
    assert rows(found) == [("de", 49)]
    spark.sql("SELECT 'at' AS code, 43 AS prefix").write.mode("append").partitionBy("prefix").parquet(path)
    assert rows(found) == [("at", 43), ("de", 49)]


def test_times_in_the_names_of_directories_are_those_of_the_sessions_zone(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "shifts")
    spark.sql("SELECT 1 AS id, TIMESTAMP'2024-01-02 03:04:05' AS began").write.partitionBy("began").parquet(path)
    assert rows(read_now(spark, path)) == rows(read_table(spark, path)) != []


def read_plain(directory: Path, column: str) -> list[tuple[Any, ...]]:
    """The rows of a directory of Parquet files with a column of texts, as the task reads them."""
    reader = TableNowReader(str(directory), StructType([StructField(column, StringType())]), zone="UTC")
    return [tuple(row.values()) for batch in reader.read(InputPartition(None)) for row in batch.to_pylist()]


def test_files_of_a_directory_need_no_ending(tmp_path: Path) -> None:
    for name, code in (("a.parquet", "de"), ("b.pq", "at"), ("part-0", "ch"), ("_kept", "no"), (".b.pq.crc", "no")):
        pyarrow.parquet.write_table(pa.table({"code": [code]}), tmp_path / name)
    (tmp_path / "_temporary").mkdir()
    pyarrow.parquet.write_table(pa.table({"code": ["no"]}), tmp_path / "_temporary" / "c.parquet")

    assert read_plain(tmp_path, "code") == [("de",), ("at",), ("ch",)]


def test_columns_are_found_in_any_case_as_spark_finds_them(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"CODE": ["de"]}), tmp_path / "a.parquet")

    assert read_plain(tmp_path, "code") == [("de",)]


def test_a_time_in_a_name_is_of_a_zone_and_others_are_as_they_stand() -> None:
    moment = scalar_of("2024-01-02 03:04:05", pa.timestamp("us", tz="UTC"), zone="Europe/Berlin")

    assert moment.as_py() == datetime(2024, 1, 2, 2, 4, 5, tzinfo=UTC)
    assert scalar_of("2024-01-02", pa.date32(), zone="Europe/Berlin").as_py() == date(2024, 1, 2)
    assert scalar_of(None, pa.int32(), zone="UTC").as_py() is None


def test_values_are_in_the_names_of_directories() -> None:
    found = partition_values(
        ["files", "date=2026-11-16", "city=S%C3%A3o%20Paulo", "country=__HIVE_DEFAULT_PARTITION__"]
    )
    assert found == {"date": "2026-11-16", "city": "São Paulo", "country": None}


def test_structs_that_grew_are_filled_up_and_numbers_widened() -> None:
    old = pa.array([{"a": 1}, None], type=pa.struct([("a", pa.int32())]))
    new = as_type(old, pa.struct([("a", pa.int64()), ("b", pa.string())]))
    assert new.to_pylist() == [{"a": 1, "b": None}, None]
