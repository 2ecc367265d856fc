"""Small files that lie with the checkpoints of a pipeline, read by Spark itself.

Checkpoints may lie wherever Spark can write, and Spark Connect shows none of its file systems; so a file is read as any
other data is. Knows what Spark and we keep in such files, and nothing of queries that run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ottla.pipelines.spark_errors import condition_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = "metadata"
"""Where Spark keeps a query's id: in its checkpoint, before the first batch."""
_NOT_THERE = "PATH_NOT_FOUND"
_OF_PATTERNS = "*?[]{}\\"


class _Metadata(msgspec.Struct):
    id: str


def query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of the query that has this checkpoint; None: there is none, or it cannot be made out."""
    text = text_of(spark, f"{checkpoint}/{METADATA}")
    return None if text is None else id_in(text)


def id_in(metadata: str) -> str | None:
    """The id that Spark has written down; None: it is not what Spark writes."""
    try:
        return msgspec.json.decode(metadata, type=_Metadata).id.strip() or None
    except msgspec.DecodeError:
        return None


def text_of(spark: SparkSession, path: str) -> str | None:
    """All of a small file; None where there is none."""
    from pyspark.errors import PySparkException

    try:
        rows = spark.read.text(_literally(path), wholetext=True).collect()
    except PySparkException as error:
        if condition_of(error).startswith(_NOT_THERE):
            return None
        raise
    return "".join(row[0] for row in rows)


def _literally(path: str) -> str:
    """A path without the meaning that Spark sees in brackets and stars."""
    return "".join(f"\\{letter}" if letter in _OF_PATTERNS else letter for letter in path)
