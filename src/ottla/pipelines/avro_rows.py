"""Avro data as rows, decoded in Python by fastavro, column by column of Arrow: Spark alone cannot read Avro.

An Avro schema has its counterpart among Spark's types where it is a record of primitive types, enums, arrays, maps,
records and unions of one of them with null; what has none is refused when the pipeline is checked. Knows no topics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.errors import OttlaError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

Converter = Callable[[Any], Any]
"""What fastavro gives, as Arrow takes it; fastavro's values are what the schema says."""

_NOT_A_DATUM = "the value is no datum of the Avro schema"
_DECIMAL_DIGITS_MAX = 38
_UUID_BYTES = 16
_LOGICAL_OF = {
    "bytes": ("decimal",),
    "fixed": ("decimal", "uuid"),
    "int": ("date", "time-millis"),
    "long": (
        "local-timestamp-micros",
        "local-timestamp-millis",
        "time-micros",
        "timestamp-micros",
        "timestamp-millis",
    ),
    "string": ("uuid",),
}
"""What a logical type may be of. Of anything else it means nothing, and the type below it counts: so Avro has it."""


class AvroUnsupported(OttlaError):
    """A schema that is none of Avro, or has a part that has no counterpart in Spark."""


class AvroSchema:
    """An Avro schema of a record, with the Spark schema of the rows that it gives. Travels to where it is used."""

    def __init__(self, text: str) -> None:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType

        self.text = text
        try:
            self.parsed: Any = parse_schema(json.loads(text), named_schemas={})
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as e:
            raise AvroUnsupported(f"this is not an Avro schema: {e}") from e
        if not isinstance(self.parsed, dict) or self.parsed.get("type") != "record":
            raise AvroUnsupported("the Avro schema is not that of a record")
        self.spark: StructType = _Types().record(self.parsed)

    def __reduce__(self) -> tuple[object, ...]:
        return (AvroSchema, (self.text,))

    def rows(self, values: Sequence[bytes | None]) -> tuple[list[dict[str, Any] | None], list[str | None]]:
        """Each value as a row that Arrow takes, or what is wrong with it."""
        from fastavro import schemaless_reader

        converted = _Converters().record(self.parsed)
        rows: list[dict[str, Any] | None] = []
        problems: list[str | None] = []
        for value in values:
            row, problem = None, None
            if value is None:
                problem = "the value is null"
            else:
                stream = BytesIO(value)
                try:
                    row = converted(schemaless_reader(stream, self.parsed, None))
                except Exception as e:
                    # Whatever bytes are handed in, fastavro raises whatever its reading of them runs into.
                    problem = f"{_NOT_A_DATUM} ({type(e).__name__})"
                else:
                    if stream.tell() != len(value):
                        row, problem = None, f"{_NOT_A_DATUM}: it ends after {stream.tell()} of {len(value)} bytes"
            rows.append(row)
            problems.append(problem)
        return rows, problems


def decoder(schema: AvroSchema) -> Callable[[Column], Column]:
    """A function of Spark that turns values into a struct: the row, and what is wrong with it."""
    import pyarrow as pa
    from pyspark.sql.pandas import functions as vectorised
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, StructField, StructType

    answer = StructType([StructField("row", schema.spark), StructField("problem", StringType())])

    def decode(values: pa.Array) -> pa.Array:
        rows, problems = schema.rows(values.to_pylist())
        kind: Any = to_arrow_type(answer, timezone="UTC")
        columns = [_column(rows, problems, kind.field("row").type), pa.array(problems, type=pa.string())]
        return pa.StructArray.from_arrays(columns, fields=[kind.field("row"), kind.field("problem")])

    # Spark tells by the annotations what kind of function this is, and in this module they are texts.
    decode.__annotations__ = {"values": pa.Array, "return": pa.Array}
    arrow_udf: Any = vectorised.arrow_udf
    function = arrow_udf(decode, answer)
    # Decoding twice costs more than anything else: Spark copies what always gives the same.
    made: Callable[[Column], Column] = function.asNondeterministic()
    return made


def _column(rows: list[dict[str, Any] | None], problems: list[str | None], kind: Any) -> pa.Array:
    """The rows as a column; what Arrow refuses becomes a problem: an `int` or a decimal can hold more than its type."""
    import pyarrow as pa

    try:
        return pa.array(rows, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
        for number, row in enumerate(rows):
            try:
                pa.array([row], type=kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
                rows[number], problems[number] = None, f"{_NOT_A_DATUM}: a number is too large"
        return pa.array(rows, type=kind)


def _logical(kind: str, part: Any) -> str | None:
    found = part.get("logicalType") if isinstance(part, Mapping) else None
    if found == "uuid" and kind == "fixed" and part["size"] != _UUID_BYTES:
        return None
    return found if found in _LOGICAL_OF.get(kind, ()) else None


class _Named:
    """A walk through a schema that keeps named parts, which may be mentioned again by their names alone."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def part(self, schema: Any) -> tuple[str, Any]:
        """The kind of a part, and the part itself."""
        if isinstance(schema, str):
            found = self._named.get(schema)
            if found is None:
                return schema, {"type": schema}
            if schema in self._open:
                raise AvroUnsupported(f"the record {schema} holds itself, and a row cannot")
            return found["type"], found
        if isinstance(schema, list):
            return "union", schema
        kind = schema["type"]
        if "name" in schema:
            self._named[schema["name"]] = schema
        return (kind, schema) if isinstance(kind, str) else self.part(kind)

    def entered(self, record: Any) -> list[Any]:
        """The fields of a record, which from here on is open."""
        name = record.get("name", "")
        self._named[name] = record
        self._open.append(name)
        fields: list[Any] = record["fields"]
        return fields

    def left(self) -> None:
        self._open.pop()


class _Types(_Named):
    """The Spark type of each part of a schema."""

    def record(self, schema: Any) -> StructType:
        from pyspark.sql.types import StructField, StructType

        fields = [StructField(field["name"], self.type_of(field["type"])) for field in self.entered(schema)]
        self.left()
        return StructType(fields)

    def type_of(self, schema: Any) -> DataType:
        from pyspark.sql import types as t

        kind, part = self.part(schema)
        if kind == "union":
            return self.type_of(_only(part))
        if kind in ("record", "error"):
            return self.record(part)
        if kind == "array":
            return t.ArrayType(self.type_of(part["items"]))
        if kind == "map":
            return t.MapType(t.StringType(), self.type_of(part["values"]))
        if (logical := _logical(kind, part)) is not None:
            return _logical_type(logical, part)
        plain: dict[str, DataType] = {
            "boolean": t.BooleanType(),
            "int": t.IntegerType(),
            "long": t.LongType(),
            "float": t.FloatType(),
            "double": t.DoubleType(),
            "bytes": t.BinaryType(),
            "fixed": t.BinaryType(),
            "string": t.StringType(),
            "enum": t.StringType(),
            "null": t.NullType(),
        }
        if kind not in plain:
            raise AvroUnsupported(f"{kind!r} is no type of Avro")
        return plain[kind]


def _logical_type(logical: str, part: Any) -> DataType:
    from pyspark.sql import types as t

    if logical == "decimal":
        return t.DecimalType(*_digits(part))
    if logical in ("time-millis", "time-micros"):
        raise AvroUnsupported(f"{logical} has no counterpart in Spark")
    special: dict[str, DataType] = {
        "date": t.DateType(),
        "timestamp-millis": t.TimestampType(),
        "timestamp-micros": t.TimestampType(),
        "local-timestamp-millis": t.TimestampNTZType(),
        "local-timestamp-micros": t.TimestampNTZType(),
        "uuid": t.StringType(),
    }
    return special[logical]


def _digits(decimal: Any) -> tuple[int, int]:
    """How many digits a decimal has, and how many of them are behind the point."""
    precision = decimal.get("precision")
    if not isinstance(precision, int):
        raise AvroUnsupported("a decimal that does not say its precision")
    if precision > _DECIMAL_DIGITS_MAX:
        raise AvroUnsupported(f"a decimal of {precision} digits; Spark has {_DECIMAL_DIGITS_MAX} at most")
    return precision, int(decimal.get("scale", 0))


def _only(union: Sequence[Any]) -> Any:
    """What a union is, besides null."""
    others = [each for each in union if each != "null" and not (isinstance(each, Mapping) and each["type"] == "null")]
    if len(others) != 1:
        raise AvroUnsupported(f"a union of {len(others)} types; only one type and null have a counterpart in Spark")
    return others[0]


class _Converters(_Named):
    """How what fastavro gives becomes what Arrow takes, for each part of a schema."""

    def record(self, schema: Any) -> Converter:
        fields = [(field["name"], self.converter(field["type"])) for field in self.entered(schema)]
        self.left()
        return lambda row: {name: None if row[name] is None else convert(row[name]) for name, convert in fields}

    def converter(self, schema: Any) -> Converter:
        kind, part = self.part(schema)
        if kind == "union":
            return self.converter(_only(part))
        if kind in ("record", "error"):
            return self.record(part)
        if kind == "array":
            item = self.converter(part["items"])
            return lambda items: [None if each is None else item(each) for each in items]
        if kind == "map":
            value = self.converter(part["values"])
            # A list of pairs is what Arrow knows as a map.
            return lambda pairs: [(key, None if each is None else value(each)) for key, each in pairs.items()]
        if _logical(kind, part) == "uuid":
            return str if kind == "string" else _uuid_text
        return _as_it_is


def _uuid_text(value: bytes) -> str:
    return str(UUID(bytes=value))


def _as_it_is(value: Any) -> Any:
    return value
