"""Tables of Parquet files that batches are written to exactly once. FORMAT.md says how they lie on the disk.

    table = open_table("tables/orders", partition_by=("date(event_time)",))
    table.write_batch(frame, application=query_id, batch_id=batch_id)       # in foreachBatch
    read_table(spark, "tables/orders")

Knows nothing of pipelines: a path, a frame and the number of a batch are all it needs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from ottla.clock import Clock, SystemClock
from ottla.pipelines.tables.commit_log import CommitLog
from ottla.pipelines.tables.commits import HOME
from ottla.pipelines.tables.contract import Table, TableFormat, TableSettings
from ottla.pipelines.tables.errors import NoTable, TableError, TableRefused
from ottla.pipelines.tables.files import LocalFiles, TableFiles
from ottla.pipelines.tables.parquet import SparkRows, read_state
from ottla.pipelines.tables.table import GRACE_MS, LoggedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "NoTable",
    "ParquetTables",
    "Table",
    "TableError",
    "TableFormat",
    "TableRefused",
    "open_log",
    "open_table",
    "read_table",
]


def open_table(
    path: str,
    *,
    partition_by: Sequence[str] = (),
    keys: Sequence[str] = (),
    deleted: str | None = None,
    order: str | None = None,
    file_bytes_min: int = 32 * 1024 * 1024,
    grace_ms: int = GRACE_MS,
    clock: Clock | None = None,
) -> LoggedTable[DataFrame]:
    """A table for writing; its first batch makes it."""
    settings = TableSettings(
        path=path,
        partition_by=tuple(partition_by),
        keys=tuple(keys),
        deleted=deleted,
        order=order,
        file_bytes_min=file_bytes_min,
    )
    files = table_files(path)
    rows = SparkRows(files.root)
    return LoggedTable(settings, files, rows, clock or SystemClock(), unique=_unique, grace_ms=grace_ms)


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """What is committed in a table now; the frame stays with it. A directory of Parquet files is read as it is."""
    files = table_files(path)
    state = CommitLog(files).refresh()
    if state.schema is not None:
        return read_state(spark, files.root, state)
    names = files.names("")
    if HOME in names or not names:
        raise NoTable(path, "there is no table here yet; the first batch of a pipeline that writes to it makes it")
    return spark.read.parquet(files.root)


def open_log(path: str) -> CommitLog:
    """The commits of a table."""
    log = CommitLog(table_files(path))
    if not log.refresh().exists:
        raise NoTable(path, f"there is no table here: {HOME} holds no commit")
    return log


class ParquetTables:
    """The kind of table that is here, behind the contract that others can be put behind."""

    def open(self, settings: TableSettings) -> Table:
        return open_table(
            settings.path,
            partition_by=settings.partition_by,
            keys=settings.keys,
            deleted=settings.deleted,
            order=settings.order,
            file_bytes_min=settings.file_bytes_min,
        )

    def read(self, spark: SparkSession, path: str) -> DataFrame:
        return read_table(spark, path)


def table_files(path: str, *, unique: Callable[[], str] | None = None) -> TableFiles:
    """The files of a table, wherever its path leads."""
    url = urlparse(path)
    if url.scheme == "file":
        path = unquote(url.path)
    elif "://" in path:
        raise TableRefused(path, f"tables on {url.scheme} are not there yet; give a directory that is mounted here")
    return LocalFiles(Path(path), unique=unique or _unique)


def _unique() -> str:
    return secrets.token_hex(6)
