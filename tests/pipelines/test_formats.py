"""Records as columns: what is of a format and what is not, and rows as keys and values."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pytest

from ottla.pipelines import formats
from ottla.pipelines.avro_rows import AvroSchema, AvroUnsupported
from ottla.pipelines.spec import Avro, Csv, Format, Json, Raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

RECORDS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
SCHEMA = "a BIGINT, b STRING, t TIMESTAMP, d DOUBLE, n STRUCT<x: INT>, l ARRAY<INT>"
NOT_JSON = "the value is no JSON object of the schema"
NOT_CSV = "the value is no line of the schema's columns"


def records(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    """Values as a topic would give them, their offsets from 0 on."""
    then = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    return spark.createDataFrame([(b"k", value, "t", 3, n, then, 0) for n, value in enumerate(values)], RECORDS)


def rows_of(spark: SparkSession, values: list[bytes | None], form: Format, directory: Path = Path()) -> list[Row]:
    frame = formats.opened(records(spark, values), form, directory=directory)
    return frame.orderBy("__ottla_offset").collect()


def problems(spark: SparkSession, values: list[bytes | None], form: Format) -> dict[bytes | None, str | None]:
    found = rows_of(spark, values, form)
    return {value: row["__ottla_problem"] for value, row in zip(values, found, strict=True)}


# --- JSON ---------------------------------------------------------------------------------------------

BAD_JSON: dict[bytes | None, str] = {
    None: "the value is null",
    b"": NOT_JSON,
    b" ": NOT_JSON,
    b"null": NOT_JSON,
    b"[]": NOT_JSON,
    b"5": NOT_JSON,
    b'"text"': NOT_JSON,
    b'[{"a":1}]': NOT_JSON,
    b'{"a":"1"}': NOT_JSON,
    b'{"a":1.5}': NOT_JSON,
    b'{"a":true}': NOT_JSON,
    b'{"a":99999999999999999999}': NOT_JSON,
    b'{"t":"yesterday"}': NOT_JSON,
    b'{"d":"1.5"}': NOT_JSON,
    b'{"n":{"x":"q"}}': NOT_JSON,
    b'{"n":[]}': NOT_JSON,
    b'{"l":[1,"q"]}': NOT_JSON,
    b'{"d":NaN}': NOT_JSON,
    b'{"d":"NaN"}': NOT_JSON,
    b'{"d":-Infinity}': NOT_JSON,
    b'{"a":1': NOT_JSON,
    b'{"a":1,}': NOT_JSON,
    b"{'a':1}": NOT_JSON,
    b"{a:1}": NOT_JSON,
    b'{"a":1} trailing': NOT_JSON,
    b'{"a":1}{"a":2}': NOT_JSON,
    b'{"a":1},{"a":2}': NOT_JSON,
    b'{"a":1},': NOT_JSON,
    b'{"a":1}}': NOT_JSON,
    b'{"a":1}]}': NOT_JSON,
    b'{"a":1}]} junk': NOT_JSON,
    b'{"a":1}\n{"a":2}\n': NOT_JSON,
    b'{"a":1},"b":{}': NOT_JSON,
    b'{"n":{}}}': NOT_JSON,
    b'{"n":{}}{}': NOT_JSON,
    b'{"n":{}}] [{}': NOT_JSON,
    b'{"n":{}},{"ottla: the end":1}] {}': NOT_JSON,
    b'[{"n":{}}]': NOT_JSON,
    b'[{"n":{}},{}': NOT_JSON,
    b'\xff{"a":1}': "the value is not UTF-8",
    b'{"b":"\xff"}': "the value is not UTF-8",
}


def test_a_value_that_is_not_wholly_of_the_schema_is_bad(spark: SparkSession) -> None:
    assert problems(spark, list(BAD_JSON), Json(SCHEMA)) == BAD_JSON


def test_objects_of_the_schema_are_read_and_what_they_lack_is_null(spark: SparkSession) -> None:
    values: list[bytes | None] = [
        b'{"a": 1, "b": "x", "t": "2024-01-01T00:00:00.123456+02:00", "d": 2, "n": {"x": 3}, "l": [4, null]}',
        b'{"unknown": 5}\n',
        b'{"a": null}',
    ]
    found = rows_of(spark, values, Json(SCHEMA))
    assert [row["__ottla_problem"] for row in found] == [None, None, None]
    first = found[0].asDict(recursive=True)
    assert {name: first[name] for name in "abdnl"} == {"a": 1, "b": "x", "d": 2.0, "n": {"x": 3}, "l": [4, None]}
    assert first["t"] == datetime.datetime(2023, 12, 31, 22, 0, 0, 123456)
    assert [row["a"] for row in found[1:]] == [None, None]


def test_objects_with_braces_anywhere_inside_are_whole(spark: SparkSession) -> None:
    values: list[bytes | None] = [
        b'{"b":"}"}',
        b'{"b":"{"} \r\n\t',
        b'{"n":{"x":1},"b":"}{"}',
        b'{"other":[{"deep":{}}],"b":"\xc3\xa4"}',
        b'{"b":"\xe2\x82\xac"}',
    ]
    assert [row["__ottla_problem"] for row in rows_of(spark, values, Json(SCHEMA))] == [None] * len(values)


def test_a_parsed_record_knows_where_it_comes_from(spark: SparkSession) -> None:
    (row,) = rows_of(spark, [b"{}"], Json("a INT"))
    assert (row["_key"], row["_topic"], row["_partition"], row["_offset"]) == (b"k", "t", 3, 0)
    assert row["_timestamp"] == datetime.datetime(2026, 1, 2)
    assert row["__ottla_value"] == b"{}"


def test_a_column_that_may_not_be_null_makes_records_without_it_bad(spark: SparkSession) -> None:
    found = problems(spark, [b'{"a":1}', b'{"b":"x"}', b"[]"], Json("a BIGINT NOT NULL, b STRING"))
    assert found == {b'{"a":1}': None, b'{"b":"x"}': "a is missing or null", b"[]": NOT_JSON}


def test_a_value_is_parsed_once_however_often_its_columns_are_used(spark: SparkSession) -> None:
    frame = formats.opened(records(spark, [b"{}"]), Json("a INT, b STRING"), directory=Path())
    used = frame.where("__ottla_problem IS NULL").where("a > 1 AND b <> 'x'").selectExpr("a + 1", "upper(b)")
    plan = used._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json(StructField(a,") == 1


# --- CSV ----------------------------------------------------------------------------------------------


def test_lines_of_other_columns_than_the_schema_has_are_bad(spark: SparkSession) -> None:
    expected: dict[bytes | None, str | None] = {
        b"1,x,2.5": None,
        b"1,x,2.5\r\n": None,
        b'1,"x, ""y""\nz",2.5': None,
        b",,": None,
        None: "the value is null",
        b"": NOT_CSV,
        b"\n": NOT_CSV,
        b"1,x": NOT_CSV,
        b"1,x,2.5,more": NOT_CSV,
        b"q,x,2.5": NOT_CSV,
        b"1.5,x,2.5": NOT_CSV,
        b"1;x;2.5": NOT_CSV,
        b'1,"x,2.5': NOT_CSV,
        b"1,x\n2,2.5": NOT_CSV,
        b"1,\xff,2.5": "the value is not UTF-8",
    }
    assert problems(spark, list(expected), Csv("a BIGINT, b STRING, d DOUBLE")) == expected


def test_quotes_in_a_line_are_doubled_and_separators_may_be_others(spark: SparkSession) -> None:
    (row,) = rows_of(spark, [b'1;"x, ""y""\nz";2.5'], Csv("a BIGINT, b STRING, d DOUBLE", ";"))
    assert (row["a"], row["b"], row["d"]) == (1, 'x, "y"\nz', 2.5)


# --- raw ----------------------------------------------------------------------------------------------


def test_raw_records_are_never_bad_and_keep_sparks_columns(spark: SparkSession) -> None:
    frame = formats.opened(records(spark, [None, b"\xff"]), Raw(), directory=Path())
    public = [name.strip("`") for name in formats.public_columns(frame)]
    assert public == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert [row["__ottla_problem"] for row in frame.collect()] == [None, None]


# --- Avro ---------------------------------------------------------------------------------------------

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": ["null", "boolean"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "int"]}},
        {
            "name": "item",
            "type": {
                "type": "record",
                "name": "Item",
                "fields": [
                    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["BOOK", "TOY"]}},
                    {
                        "name": "price",
                        "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                    },
                ],
            },
        },
        {"name": "others", "type": {"type": "array", "items": "Item"}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
AN_ORDER: dict[str, Any] = {
    "id": 5,
    "paid": None,
    "at": datetime.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
    "day": datetime.date(2024, 2, 3),
    "tags": {"a": 1, "b": None},
    "item": {"kind": "TOY", "price": Decimal("1.25")},
    "others": [{"kind": "BOOK", "price": Decimal("2.00")}],
    "uid": UUID(int=7),
}


def datum(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def record_schema(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})


def test_avro_records_are_rows_of_sparks_types(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    good = datum(ORDER, AN_ORDER)
    values: list[bytes | None] = [good, good + b"x", good[:-2], b"", None]
    found = rows_of(spark, values, Avro("order.avsc"), tmp_path)
    row = found[0].asDict(recursive=True)
    at = AN_ORDER["at"].replace(tzinfo=None)
    assert {name: row[name] for name in AN_ORDER} == {**AN_ORDER, "at": at, "uid": str(UUID(int=7))}
    assert row["__ottla_problem"] is None
    assert all(bad["__ottla_problem"] for bad in found[1:])


def test_an_avro_schema_has_a_schema_of_spark() -> None:
    assert AvroSchema(json.dumps(ORDER)).spark.simpleString() == (
        "struct<id:bigint,paid:boolean,at:timestamp,day:date,tags:map<string,int>,"
        "item:struct<kind:string,price:decimal(9,2)>,others:array<struct<kind:string,price:decimal(9,2)>>,uid:string>"
    )


def test_bytes_that_are_no_datum_are_told_from_those_that_are() -> None:
    schema = AvroSchema(record_schema("string"))
    rows, told = schema.rows([datum(json.loads(schema.text), {"x": "y"}), b"\x02\xff", b"\x02yy", None])
    assert rows == [{"x": "y"}, None, None, None]
    assert told == [
        None,
        "the value is no datum of the Avro schema (UnicodeDecodeError)",
        "the value is no datum of the Avro schema: it ends after 2 of 3 bytes",
        "the value is null",
    ]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (["int", "string"], "a union of 2 types"),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis has no counterpart"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "a decimal of 39 digits"),
        (["null", "R"], "holds itself"),
        ("nothing", "not an Avro schema"),
    ],
)
def test_an_avro_schema_without_counterpart_is_refused(kind: Any, message: str) -> None:
    with pytest.raises(AvroUnsupported, match=message):
        AvroSchema(record_schema(kind))


def test_an_avro_schema_can_be_sent_to_workers() -> None:
    schema = AvroSchema(json.dumps(ORDER))
    assert pickle.loads(pickle.dumps(schema)).spark == schema.spark


# --- rows as records ----------------------------------------------------------------------------------


def test_rows_are_written_as_json_with_nulls_and_times_in_utc(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS a, CAST(NULL AS STRING) AS b, TIMESTAMP'2024-01-01 00:00:00.5+02:00' AS t")
    (row,) = frame.select(formats.as_json(frame.columns).alias("value")).collect()
    assert json.loads(row["value"]) == {"a": 1, "b": None, "t": "2023-12-31T22:00:00.500000Z"}


def test_keys_are_texts_or_the_bytes_that_they_were(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 7 AS n, X'ff00' AS bytes, TIMESTAMP'2024-01-01 00:00:00Z' AS t, struct(1 AS x) AS s")
    wanted = ["n", "bytes", "t", "s", "concat('order-', n)"]
    (row,) = frame.select(*(formats.as_text(frame, each) for each in wanted)).collect()
    assert list(row) == ["7", b"\xff\x00", "2024-01-01T00:00:00.000000Z", '{"x":1}', "order-7"]
