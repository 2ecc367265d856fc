"""The columns of a topic: their types, and what a user's own schema may say of them."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from ottla.spark.errors import InvalidOption, InvalidSchema
from ottla.spark.schema import ALL_COLUMNS, DEFAULT_COLUMNS, agreed_columns, columns_of, spark_schema

CONNECTOR_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


def schema_of(*columns: tuple[str, types.DataType], nullable: bool = True) -> types.StructType:
    return types.StructType([types.StructField(name, kind, nullable) for name, kind in columns])


def test_the_columns_are_those_of_the_connector_and_may_all_be_null() -> None:
    schema = spark_schema(columns=ALL_COLUMNS)
    headers = schema["headers"].dataType

    assert {field.name: field.dataType.simpleString() for field in schema.fields} == CONNECTOR_COLUMNS
    assert all(field.nullable for field in schema.fields)
    assert isinstance(headers, types.ArrayType)
    assert headers.containsNull
    assert isinstance(headers.elementType, types.StructType)
    assert all(field.nullable for field in headers.elementType.fields)


def test_headers_are_left_out_by_default() -> None:
    assert tuple(spark_schema(columns=DEFAULT_COLUMNS).fieldNames()) == tuple(CONNECTOR_COLUMNS)[:-1]


def test_a_schema_of_the_user_may_leave_columns_out_and_change_their_order() -> None:
    schema = schema_of(("offset", types.LongType()), ("key", types.BinaryType()))

    assert columns_of(schema) == ("offset", "key")


@pytest.mark.parametrize("columns", [ALL_COLUMNS, DEFAULT_COLUMNS, ("headers", "value")])
def test_our_own_schema_is_accepted_back(columns: tuple[str, ...]) -> None:
    assert columns_of(spark_schema(columns=columns)) == columns


def test_notes_on_a_column_do_not_matter() -> None:
    schema = types.StructType([types.StructField("offset", types.LongType(), True, {"comment": "where"})])

    assert columns_of(schema) == ("offset",)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (schema_of(), "has no column"),
        (schema_of(("price", types.LongType())), "'price' that a topic does not have. A topic has key, value"),
        (schema_of(("Offset", types.LongType())), "'Offset' that a topic does not have. Write offset"),
        (schema_of(("value", types.StringType())), r"value as string, but it is binary.*CAST\(value AS STRING\)"),
        (schema_of(("offset", types.IntegerType())), "offset as int, but it is bigint"),
        (schema_of(("timestamp", types.TimestampNTZType())), "timestamp as timestamp_ntz, but it is timestamp"),
        (schema_of(("offset", types.LongType()), nullable=False), "offset is never null. Leave NOT NULL out"),
        (schema_of(("offset", types.LongType()), ("offset", types.LongType())), "offset twice"),
        (
            schema_of(
                (
                    "headers",
                    types.ArrayType(
                        schema_of(("key", types.StringType()), ("value", types.BinaryType())), containsNull=False
                    ),
                )
            ),
            "parts of column headers are never null",
        ),
    ],
)
def test_a_schema_that_a_topic_does_not_have_is_refused(schema: types.StructType, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        columns_of(schema)


def test_a_schema_and_columns_that_say_the_same_agree() -> None:
    assert agreed_columns(spark_schema(columns=("value", "offset")), ("value", "offset")) == ("value", "offset")


def test_a_schema_alone_says_what_is_read() -> None:
    assert agreed_columns(spark_schema(columns=("value",)), None) == ("value",)


@pytest.mark.parametrize("columns", [("value",), ("offset", "value"), ("key", "value")])
def test_a_schema_and_columns_that_differ_are_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidOption, match=r"columns: it says .*, and the schema says value,offset"):
        agreed_columns(spark_schema(columns=("value", "offset")), columns)
