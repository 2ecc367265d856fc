"""Records of a topic as columns, by their format; and rows as the keys and values of records.

What comes out of `opened` has, besides the columns that users see, some whose names begin with `__ottla_`: the
record as it was, and what is wrong with it. Knows Spark's columns; not what becomes of records that are wrong.

A value is either of its format, whole, or it is bad: Spark would read `{"amount": "x"}` as a row without an amount, and
pass over text behind an object.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.spec import Avro, Csv, Format, Json, Raw

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

ADDED_COLUMNS = {
    "_key": "key",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}
"""What every parsed source has besides the columns of its schema, and where it comes from."""
HIDDEN = "__ottla_"
"""How the names of columns begin that no user sees."""
PROBLEM = HIDDEN + "problem"
"""What is wrong with a record; null: it is as it should be."""
_CARRIED = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_PARSED = HIDDEN + "parsed"
_CORRUPT = HIDDEN + "corrupt"
_END = "ottla: the end"

ISO_UTC = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How times are written; with Spark's own format their microseconds would be lost."""


def hidden(name: str) -> str:
    """The column that carries a part of the record as it was."""
    return HIDDEN + name


def public_columns(frame: DataFrame) -> list[str]:
    """The columns that users see, ready to be selected."""
    return [quoted(name) for name in frame.columns if not name.startswith(HIDDEN)]


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def evaluated_once(column: Column) -> Column:
    """The same value, which Spark neither computes twice nor moves elsewhere in its plan.

    Spark pushes a filter below the projection that it looks at, by putting the projected expression in its place: each
    mention of a parsed column is then one more parsing. It leaves alone what depends on the task it runs in.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(F.spark_partition_id() >= 0, column)


def opened(records: DataFrame, form: Format, *, directory: Path) -> DataFrame:
    """The columns of a source, and the hidden ones; `directory` is where the path of a schema begins."""
    from pyspark.sql import functions as F  # noqa: N812

    carried = [F.col(name).alias(hidden(name)) for name in _CARRIED if name in records.columns]
    if isinstance(form, Raw):
        return records.select("*", *carried, F.lit(None).cast("string").alias(PROBLEM))
    with_origin = records.select(*(F.col(column).alias(name) for name, column in ADDED_COLUMNS.items()), *carried)
    if isinstance(form, Json):
        parsed, row, problem, schema = _json(with_origin, form)
    elif isinstance(form, Csv):
        parsed, row, problem, schema = _csv(with_origin, form)
    else:
        parsed, row, problem, schema = _avro(with_origin, form, directory)
    missing = [
        F.when(row.getField(field.name).isNull(), F.lit(f"{field.name} is missing or null"))
        for field in schema.fields
        if not field.nullable
    ]
    return parsed.select(
        *(row.getField(field.name).alias(field.name) for field in schema.fields),
        *with_origin.columns,
        # Asked by several checks, and as large as the schema is long.
        evaluated_once(F.coalesce(problem, *missing)).alias(PROBLEM),
    )


def schema_of(ddl: str) -> StructType:
    """A schema in Spark's DDL. Needs a session."""
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType), "names with types are a struct"
    return found


def _json(records: DataFrame, form: Json) -> tuple[DataFrame, Column, Column, StructType]:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    schema = schema_of(form.schema)
    text = F.col(hidden("value")).cast("string")
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "allowSingleQuotes": "false",
        # NaN and the like are no JSON, and Spark would take them in quotes too.
        "allowNonNumericNumbers": "false",
        "timeZone": "UTC",
    }
    columns = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    parsed = records.withColumn(_PARSED, evaluated_once(F.from_json(text, columns, options)))
    row = F.col(_PARSED)
    whole = row.isNotNull() & row.getField(_CORRUPT).isNull() & _is_one_object(text)
    return parsed, row, _text_problem(text, whole, "the value is no JSON object of the schema"), schema


def _is_one_object(text: Column) -> Column:
    """Whether a text that begins as an object has nothing behind it: Spark reads one value and looks no further.

    Most objects have no other one inside, and there it is enough to see where the first brace is closed. The others are
    read once more, in a list with something behind them that no text can have foreseen.
    """
    from pyspark.sql import functions as F  # noqa: N812

    mark = F.xxhash64(text)
    listed = F.concat(F.lit("["), text, F.lit(f',{{"{_END}":'), mark.cast("string"), F.lit("}]"))
    items = F.from_json(listed, f"ARRAY<STRUCT<`{_END}`: BIGINT>>", {"allowSingleQuotes": "false"})
    is_alone = (F.size(items) == 2) & (F.get(items, F.lit(1)).getField(_END) == mark)
    # By patterns: functions that count characters, as `locate` does, take several times as long.
    ends_first = text.rlike(r"^[^}]*\}[ \t\r\n]*\z")
    return F.when(ends_first, F.lit(True)).otherwise(text.rlike(r"\}[ \t\r\n]*\z") & is_alone)


def _csv(records: DataFrame, form: Csv) -> tuple[DataFrame, Column, Column, StructType]:
    from pyspark.sql import functions as F  # noqa: N812

    text = F.rtrim(F.col(hidden("value")).cast("string"), F.lit("\r\n"))
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "sep": form.separator,
        "escape": '"',
        "timeZone": "UTC",
    }
    schema = schema_of(form.schema)
    columns = F.from_csv(text, f"{form.schema}, {_CORRUPT} STRING", options)
    parsed = records.withColumn(_PARSED, evaluated_once(columns))
    row = F.col(_PARSED)
    # Without what stands in quotes there may be neither a quote nor the end of a line: Spark would read on over both.
    unquoted = F.regexp_replace(text, '"[^"]*"', "")
    whole = row.isNotNull() & row.getField(_CORRUPT).isNull() & (text != "") & ~unquoted.rlike('["\r\n]')
    return parsed, row, _text_problem(text, whole, "the value is no line of the schema's columns"), schema


def _avro(records: DataFrame, form: Avro, directory: Path) -> tuple[DataFrame, Column, Column, StructType]:
    from pyspark.sql import functions as F  # noqa: N812

    from ottla.pipelines.avro_rows import AvroSchema, decoder

    text = (directory / form.schema_file).read_text(encoding="utf-8")
    if form.jar:
        return _avro_of_spark(records, text)
    value = F.col(hidden("value"))
    schema = AvroSchema(text)
    parsed = records.withColumn(_PARSED, decoder(schema)(value))
    found = F.col(_PARSED)
    return parsed, found.getField("row"), found.getField("problem"), schema.spark


def _avro_of_spark(records: DataFrame, schema: str) -> tuple[DataFrame, Column, Column, StructType]:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.types import StructField, StructType

    decoded = from_avro(F.col(hidden("value")), schema, {"mode": "PERMISSIVE"})
    parsed = records.withColumn(_PARSED, evaluated_once(decoded))
    row, kind = F.col(_PARSED), parsed.schema[_PARSED].dataType
    assert isinstance(kind, StructType), "the schema is that of a record"
    # Spark makes a row of nulls from what it cannot decode, so that a record of which nothing is there is bad too; and
    # for the same reason it calls every field nullable.
    empty = F.lit(True)
    for field in kind.fields:
        empty = empty & row.getField(field.name).isNull()
    problem = F.when(row.isNull() | empty, F.lit("the value is no datum of the Avro schema"))
    return parsed, row, problem, StructType([StructField(field.name, field.dataType) for field in kind.fields])


def _text_problem(text: Column, whole: Column, otherwise: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return (
        F.when(text.isNull(), F.lit("the value is null"))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
        .when(~F.coalesce(whole, F.lit(False)), F.lit(otherwise))
    )


# --- rows as records ----------------------------------------------------------------------------------


def as_json(columns: list[str]) -> Column:
    """The columns as a JSON object. What is null is there, as null; times are in UTC."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.to_json(F.struct(*columns), {**ISO_UTC, "ignoreNullFields": "false"})


def as_text(frame: DataFrame, expression: str) -> Column:
    """An expression as the bytes or the text that become a key or a value."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import BinaryType

    kind = _type_of(frame, expression)
    column = F.expr(expression)
    if isinstance(kind, BinaryType):
        return column
    if _is_written_as_json(kind):
        return F.to_json(column, {**ISO_UTC, "ignoreNullFields": "false"})
    if _is_time(kind):
        return F.get_json_object(F.to_json(F.struct(column.alias("time")), ISO_UTC), "$.time")
    return column.cast("string")


def _type_of(frame: DataFrame, expression: str) -> DataType:
    from pyspark.sql import functions as F  # noqa: N812

    return frame.select(F.expr(expression)).schema.fields[0].dataType


def _is_time(kind: DataType) -> bool:
    from pyspark.sql.types import TimestampNTZType, TimestampType

    return isinstance(kind, TimestampType | TimestampNTZType)


def _is_written_as_json(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    return isinstance(kind, ArrayType | MapType | StructType)
