"""Which formats Spark has, and which rows they can hold, told before a query is started.

Asks Spark's Java side, since its Python side tells only when something runs. Spark Connect has no such side: there
nothing is found, and the query tells when it starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_SPARK_ITSELF = frozenset({"memory"})
"""Formats that are no data sources to Spark."""
_FILES = "org.apache.spark.sql.execution.datasources.FileFormat"
_FILES_V2 = "org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2"
_WRITABLE = (
    _FILES,
    "org.apache.spark.sql.sources.StreamSinkProvider",
    "org.apache.spark.sql.connector.catalog.TableProvider",
)
"""What a format is that a stream can be written to; of the last kind, not all can."""


class FormatProblem(NamedTuple):
    """What is wrong, and what to do about it."""

    what: str
    fix: str


def unknown_format(spark: SparkSession, name: str, *, read: bool) -> FormatProblem | None:
    """What keeps Spark from reading files of the format, or from writing a stream to it."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    java = getattr(spark, "_jvm", None)
    if java is None or name.lower() in _OF_SPARK_ITSELF:
        return None
    try:
        found = _looked_up(spark, name)
    except (PySparkException, Py4JJavaError):
        fix = "Write it as Spark calls it, such as parquet, json or csv; some come in a jar of their own"
        return FormatProblem(f"Spark has no format `{name}`", fix)
    if not read and not any(_is_a(java, found, kind) for kind in _WRITABLE):
        return FormatProblem(f"Spark cannot write a stream to `{name}`", "Use another format, or a table, or a topic")
    return None


def unfit_column(frame: DataFrame, name: str) -> FormatProblem | None:
    """The first column that files of the format cannot hold."""
    spark = frame.sparkSession
    java, plan = getattr(spark, "_jvm", None), getattr(frame, "_jdf", None)
    if java is None or plan is None or name.lower() in _OF_SPARK_ITSELF:
        return None
    found = _looked_up(spark, name)
    if _is_a(java, found, _FILES_V2):
        found = _made(spark, found).fallbackFileFormat()
    if not _is_a(java, found, _FILES):
        return None
    files = _made(spark, found)
    for field in plan.schema().fields():
        if not files.supportDataType(field.dataType()):
            what = f"files of {name} cannot hold the column `{field.name()}`, which is {field.dataType().sql()}"
            return FormatProblem(what, "Cast it, or take it apart in a step, or use another format")
    return None


def _looked_up(spark: SparkSession, name: str) -> Any:
    java: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().conf()
    return java.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(name, conf)


def _is_a(java: Any, found: Any, kind: str) -> bool:
    return bool(java.java.lang.Class.forName(kind).isAssignableFrom(found))


def _made(spark: SparkSession, found: Any) -> Any:
    java: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    no_types, no_values = gateway.new_array(java.java.lang.Class, 0), gateway.new_array(java.java.lang.Object, 0)
    return found.getDeclaredConstructor(no_types).newInstance(no_values)
