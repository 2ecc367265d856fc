"""The columns that a topic has as a table. Knows no records, only names and Spark's types.

Spark's types are imported when they are first asked for, so that reading options does not need them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.spark.errors import InvalidOption, InvalidSchema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

HEADERS = "headers"
ALL_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", HEADERS)
DEFAULT_COLUMNS = ALL_COLUMNS[:-1]
"""Headers are seldom wanted and cost a list for each record, so they come when asked for."""


def _types() -> dict[str, DataType]:
    from pyspark.sql import types

    header = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    return {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        HEADERS: types.ArrayType(header),
    }


def spark_schema(*, columns: Sequence[str]) -> StructType:
    """These columns as Spark's connector reports them: every one may be null."""
    from pyspark.sql.types import StructField, StructType

    column_types = _types()
    return StructType([StructField(name, column_types[name]) for name in columns])


def columns_named(names: Iterable[str], *, option: str) -> tuple[str, ...]:
    """The columns of these names, which may be in any case; at least one, and none twice."""
    by_lower = {column.lower(): column for column in ALL_COLUMNS}
    found: list[str] = []
    for name in names:
        column = by_lower.get(name.strip().lower())
        if column is None:
            raise InvalidOption(
                option, f"there is no column {name.strip()!r}", fix=f"There are {', '.join(ALL_COLUMNS)}"
            )
        if column in found:
            raise InvalidOption(option, f"{column} is there twice", fix="Name each column once")
        found.append(column)
    return tuple(found)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema that the user gave: it may leave some out and put them in another order."""
    column_types = _types()
    names = tuple(schema.fieldNames())
    if not names:
        raise InvalidSchema(f"the schema has no column. A topic has {', '.join(ALL_COLUMNS)}")
    for field in schema.fields:
        expected = column_types.get(field.name)
        if expected is None:
            near = next((column for column in ALL_COLUMNS if column.lower() == field.name.lower()), None)
            hint = f"Write {near}" if near else f"A topic has {', '.join(ALL_COLUMNS)}"
            raise InvalidSchema(f"the schema has a column {field.name!r} that a topic does not have. {hint}")
        if field.dataType != expected:
            told, wanted = field.dataType.simpleString(), expected.simpleString()
            raise InvalidSchema(
                f"the schema has column {field.name} as {told}, but it is {wanted}. "
                f"Leave it as {wanted} and cast it in the query: CAST({field.name} AS {told.upper()})"
                if told != wanted
                else f"the schema says that parts of column {field.name} are never null, but they may be"
            )
        if not field.nullable:
            raise InvalidSchema(f"the schema says that column {field.name} is never null. Leave NOT NULL out")
        if names.count(field.name) > 1:
            raise InvalidSchema(f"the schema has column {field.name} twice. Name each column once")
    return names


def agreed_columns(schema: StructType, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns to read: those of the schema, which must be those of the option `columns` where that is given."""
    names = columns_of(schema)
    if columns is not None and tuple(columns) != names:
        raise InvalidOption(
            "columns",
            f"it says {','.join(columns)}, and the schema says {','.join(names)}",
            fix="Give only one of the two, or the same columns in the same order",
        )
    return names
