"""Tables as Spark writes and reads them: what is committed is what read_table and plain readers of Parquet see."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines.tables import NoTable, TableRefused, open_table, read_table
from ottla.pipelines.tables.contract import TableSettings
from ottla.pipelines.tables.files import LocalFiles
from ottla.pipelines.tables.merging import MERGED_ALWAYS_BYTES
from ottla.pipelines.tables.parquet import SparkRows
from ottla.pipelines.tables.table import LoggedTable
from tests.pipelines.tables.plain_rows import TickingClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def _plain(path: Path) -> int:
    import pyarrow.dataset

    found: int = pyarrow.dataset.dataset(str(path), partitioning="hive").count_rows()
    return found


def test_a_batch_is_written_once_and_divided_by_its_day(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(str(tmp_path / "t"), partition_by=("date(at)", "country"))
    first = "(1, TIMESTAMP '2026-11-16 01:00:00', '007'), (2, TIMESTAMP '2026-11-17 01:00:00', 'a/b=c d')"
    second = "(3, TIMESTAMP '2026-11-16 23:59:59', '007')"
    for number, values in ((0, first), (1, second), (0, first), (1, second)):
        frame = spark.sql(f"SELECT * FROM VALUES {values} AS rows(id, at, country)")
        table.write_batch(frame, application="q", batch_id=number)

    found = read_table(spark, str(tmp_path / "t"))

    days = [datetime.date(2026, 11, 16), datetime.date(2026, 11, 16), datetime.date(2026, 11, 17)]
    assert _rows(found.select("id", "date", "country")) == [
        (1, days[0], "007"),
        (2, days[2], "a/b=c d"),
        (3, days[1], "007"),
    ]
    assert (tmp_path / "t" / "date=2026-11-16").is_dir()
    assert _plain(tmp_path / "t") == 3
    assert spark.read.parquet(str(tmp_path / "t")).count() == 3


def test_times_far_away_are_what_they_are_for_plain_readers_too(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow.dataset

    table = open_table(str(tmp_path / "t"), partition_by=("date(at)",))
    times = [datetime.datetime(1066, 10, 14), datetime.datetime(1969, 12, 31, 23, 59), datetime.datetime(9999, 12, 31)]
    values = ", ".join(f"(TIMESTAMP '{time} UTC')" for time in times)
    table.write_batch(spark.sql(f"SELECT *, 1 AS n FROM VALUES {values} AS rows(at)"), application="q", batch_id=0)

    found = pyarrow.dataset.dataset(str(tmp_path / "t")).to_table(columns=["at"]).column("at").to_pylist()

    assert sorted(time.replace(tzinfo=None) for time in found) == times


def test_new_columns_wider_types_and_missing_columns_are_taken_up(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(str(tmp_path / "t"))
    batches = [
        "SELECT 1 AS id, FLOAT(1.5) AS amount, named_struct('a', 1) AS inner, CAST(1.5 AS DECIMAL(5,2)) AS price",
        "SELECT 5000000000 AS id, 2.5D AS amount, named_struct('b', 'x') AS inner, CAST(2.5 AS DECIMAL(9,4)) AS price",
        "SELECT 3 AS ID, 'new' AS word, NULL AS price",
    ]
    for number, sql in enumerate(batches):
        table.write_batch(spark.sql(sql), application="q", batch_id=number)

    found = read_table(spark, str(tmp_path / "t"))

    assert found.schema.simpleString() == (
        "struct<id:bigint,amount:double,inner:struct<a:int,b:string>,price:decimal(9,4),word:string>"
    )
    assert [
        (row.id, row.amount, row.inner and tuple(row.inner), row.word) for row in found.orderBy("id").collect()
    ] == [
        (1, 1.5, (1, None), None),
        (3, None, None, "new"),
        (5_000_000_000, 2.5, (None, "x"), None),
    ]


def test_a_changed_type_is_refused_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(str(tmp_path / "t"))
    table.write_batch(spark.sql("SELECT 1 AS id, 'a' AS name"), application="q", batch_id=0)

    with pytest.raises(TableRefused, match="name is string in the table and int in the rows"):
        table.write_batch(spark.sql("SELECT 2 AS id, 5 AS name"), application="q", batch_id=1)

    assert _rows(read_table(spark, str(tmp_path / "t"))) == [(1, "a")]


def test_a_plain_directory_of_parquet_is_read_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "plain"))

    assert read_table(spark, str(tmp_path / "plain")).count() == 3


def test_where_no_table_is_reading_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoTable, match="no table here yet"):
        read_table(spark, str(tmp_path / "none"))


def test_small_files_are_put_together_and_the_old_ones_vacuumed(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(str(tmp_path / "t"), partition_by=("part",))
    for number in range(4):
        frame = spark.sql(f"SELECT {number} AS id, CAST(id % 2 AS INT) AS part FROM range(4)")
        table.write_batch(frame.coalesce(1), application="q", batch_id=number)
    old = read_table(spark, str(tmp_path / "t"))

    table.compact()

    assert len(table.state.live) == 2
    assert spark.read.parquet(str(tmp_path / "t")).count() == 16
    assert old.count() == 16, "a frame that was opened before keeps its files"
    table.vacuum(grace_ms=0)
    assert len(list((tmp_path / "t" / "_ottla" / "files").rglob("*.parquet"))) == 2
    assert read_table(spark, str(tmp_path / "t")).count() == 16


@pytest.mark.parametrize("merged_always_bytes", [0, MERGED_ALWAYS_BYTES], ids=["waiting", "merged"])
def test_a_table_with_keys_is_what_a_dict_would_be(
    spark: SparkSession, tmp_path: Path, merged_always_bytes: int
) -> None:
    chance = Random(8)
    table = _keyed(tmp_path / "t", merged_always_bytes)
    model: dict[int | None, tuple[Any, ...]] = {}
    for number in range(6):
        batch = [
            (chance.choice([None, 1, 2, 3, 4, 5]), f"p{chance.randrange(2)}", number * 10 + n, chance.random() < 0.2)
            for n in range(5)
        ]
        frame = spark.createDataFrame(batch, "id INT, part STRING, n INT, gone BOOLEAN").coalesce(1)
        for _ in range(chance.choice([1, 2])):
            table.write_batch(frame, application="q", batch_id=number)
        for row in batch:
            model.pop(row[0], None)
            if not row[3]:
                model[row[0]] = row

        assert _rows(read_table(spark, str(tmp_path / "t"))) == sorted(model.values(), key=repr), number

    assert (len(table.state.changes) > 0) == (merged_always_bytes == 0)
    table.compact()
    assert _plain(tmp_path / "t") == len(model)


def _keyed(path: Path, merged_always_bytes: int) -> LoggedTable[DataFrame]:
    numbers = iter(range(1000))

    def unique() -> str:
        return f"u{next(numbers)}"

    settings = TableSettings(path=str(path), keys=("id",), deleted="gone", partition_by=("part",))
    files = LocalFiles(path, unique=unique)
    return LoggedTable(
        settings, files, SparkRows(files.root), TickingClock(), unique=unique, merged_always_bytes=merged_always_bytes
    )


def test_of_rows_with_one_key_the_greatest_by_order_counts_whenever_it_came(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = open_table(str(tmp_path / "t"), keys=("id",), order="version")
    batches = ["(1, 'b', 2), (1, 'a', 1), (2, 'x', CAST(NULL AS INT))", "(1, 'late', 1), (2, 'y', 0)", "(2, 'z', NULL)"]
    for number, values in enumerate(batches):
        frame = spark.sql(f"SELECT * FROM VALUES {values} AS rows(id, name, version)")
        table.write_batch(
            frame.selectExpr("id", "name", "CAST(version AS INT) AS version"), application="q", batch_id=number
        )

    assert _rows(read_table(spark, str(tmp_path / "t"))) == [(1, "b", 2), (2, "y", 0)]


def test_a_query_that_is_run_again_writes_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    spark.range(10).write.json(str(tmp_path / "in" / "one"))
    written: list[int] = []

    def run(fail: Callable[[int], bool]) -> None:
        table = open_table(str(tmp_path / "t"))

        def batch(frame: DataFrame, batch_id: int) -> None:
            table.write_batch(frame, application="q", batch_id=batch_id)
            written.append(batch_id)
            if fail(batch_id):
                raise RuntimeError("after the commit")

        stream = spark.readStream.schema("id BIGINT").json(str(tmp_path / "in" / "*"))
        totals = stream.groupBy((stream.id % 2).alias("rest")).count()
        query = totals.writeStream.outputMode("update").foreachBatch(batch)
        query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="after the commit"):
        run(lambda batch_id: True)
    run(lambda batch_id: False)

    assert written == [0, 0]
    assert _rows(read_table(spark, str(tmp_path / "t"))) == [(0, 5), (1, 5)]
