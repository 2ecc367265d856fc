"""The columns that the sink writes: which there must be, and of which types. Knows Spark's types only."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.spark.errors import InvalidSchema

TIMESTAMP = "recordTimestamp"
"""The time of a record; null, or no such column: the time of writing. Not named `timestamp`, which every frame that was
read from a topic has: Spark's own connector passes that over, and a copy would begin to age with its original."""
WRITTEN = ("key", "value", "headers", TIMESTAMP)
"""What of a row becomes part of its record; `topic` and `partition` say where it goes. Others are passed over."""
_CAST = "Cast it in the query: CAST({name} AS STRING)"


def check_columns(schema: StructType, *, topic: str | None) -> None:
    """Refuse what cannot be written: a column that is missing, is there twice, or is of another type."""
    types: dict[str, DataType] = {}
    for field in schema.fields:
        if field.name in types and field.name in (*WRITTEN, "topic", "partition"):
            raise InvalidSchema(f"there are two columns named {field.name}. Drop or rename one of them")
        types[field.name] = field.dataType
    if topic is None and "topic" not in types:
        raise InvalidSchema("nothing says which topic to write to. Set the option topic, or add a column named topic")
    if "value" not in types:
        raise InvalidSchema(
            f"there is no column named value among {list(types)}. Name the column that holds the records value, for "
            "example SELECT to_json(struct(*)) AS value"
        )
    if topic is None and not isinstance(types["topic"], StringType):
        raise _wrong("topic", types["topic"], "string")
    for name in ("key", "value"):
        if name in types and not isinstance(types[name], StringType | BinaryType):
            raise _wrong(name, types[name], "string or binary")
    if "partition" in types and not isinstance(types["partition"], IntegerType):
        raise _wrong("partition", types["partition"], "int", fix="CAST(partition AS INT)")
    if TIMESTAMP in types and not isinstance(types[TIMESTAMP], TimestampType):
        raise _wrong(TIMESTAMP, types[TIMESTAMP], "timestamp", fix=f"CAST({TIMESTAMP} AS TIMESTAMP)")
    if "headers" in types and not _is_headers(types["headers"]):
        raise _wrong("headers", types["headers"], "array<struct<key: string, value: binary>>", fix="")


def _is_headers(kind: DataType) -> bool:
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


def _wrong(name: str, kind: DataType, wanted: str, *, fix: str | None = None) -> InvalidSchema:
    cast = _CAST.format(name=name) if fix is None else f"Cast it in the query: {fix}" if fix else ""
    return InvalidSchema(f"the column {name} is {kind.simpleString()} and must be {wanted}. {cast}".rstrip())
