"""What a kind of table has to offer, and what the kind that is here leaves to Spark.

`TableFormat` is what Iceberg or Delta would stand behind. `RowWork` is how the table of Parquet files gets its rows
written and read: Spark does it in a pipeline, and something smaller can in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.pipelines.tables import schemas
from ottla.pipelines.tables.commits import DataFile
from ottla.pipelines.tables.partitions import PartitionColumn, partition_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame = TypeVar("Frame")
FrameIn = TypeVar("FrameIn", contravariant=True)

Progress = Callable[[int], None]
"""Told how many files more are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """What a sink says about its table."""

    path: str
    partition_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    deleted: str | None = None
    order: str | None = None
    file_bytes_min: int = 32 * 1024 * 1024


class Table(Protocol):
    """A table that a query writes to."""

    def write_batch(self, frame: DataFrame, *, application: str, batch_id: int) -> None:
        """Write a batch whole, or not at all; and once, however often it is given."""
        ...


class TableFormat(Protocol):
    """A kind of table."""

    def open(self, settings: TableSettings) -> Table:
        """A table for writing. It is made by its first batch."""
        ...

    def read(self, spark: SparkSession, path: str) -> DataFrame:
        """What is committed now; the frame stays with it, whatever is written later."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What rows must look like in the files of one version."""

    schema: dict[str, Any]
    """All columns of the table, those of the partitions too."""
    partition_by: tuple[str, ...]
    keys: tuple[str, ...] = ()
    deleted: str | None = None
    order: str | None = None

    @property
    def partitions(self) -> tuple[PartitionColumn, ...]:
        """By the names that the columns have in the schema, whose case may be another: directories are called so."""
        names = {name.lower(): name for name in schemas.names(self.schema)}
        columns = map(partition_column, self.partition_by)
        return tuple(replace(column, name=names.get(column.name.lower(), column.name)) for column in columns)


class RowWork(Protocol[FrameIn]):
    """Rows in and out of Parquet files. Directories and files are named from the table's directory on."""

    def schema(self, frame: FrameIn) -> dict[str, Any]:
        """The schema of the rows, in Spark's JSON, without the columns that are made for partitions."""
        ...

    def drain(self, frame: FrameIn) -> None:
        """Go through the rows and drop them: Spark keeps its state only for batches that were gone through."""
        ...

    def write(self, frame: FrameIn, shape: Shape, directory: str) -> None:
        """Write all rows as files, in a directory for each partition."""
        ...

    def write_changes(self, frame: FrameIn, shape: Shape, directory: str, *, sequence: int) -> None:
        """Write the last row of each key, whether it stays or deletes; a higher sequence comes after a lower one."""
        ...

    def holding(self, changes: Sequence[str], files: Sequence[DataFile], shape: Shape) -> Sequence[DataFile]:
        """Those of the files that hold a key of the changes, which are files or directories of them."""
        ...

    def write_merged(self, changes: Sequence[str], files: Sequence[DataFile], shape: Shape, directory: str) -> None:
        """Write the rows of the files as the changes leave them, and the rows that the changes bring."""
        ...

    def write_again(self, files: Sequence[DataFile], shape: Shape, directory: str) -> None:
        """Write the rows of files into few files, in a directory for each partition."""
        ...

    def rows(self, path: str) -> int:
        """How many rows a file has."""
        ...
