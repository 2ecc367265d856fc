"""What Avro's logical types become: those that fastavro reads have their counterpart, and the others mean nothing."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from ottla.pipelines.avro_rows import AvroSchema, AvroUnsupported


def schema_of(kind: Any) -> AvroSchema:
    return AvroSchema(json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}))


def fixed(size: int, logical: str) -> dict[str, Any]:
    return {"type": "fixed", "name": "f", "size": size, "logicalType": logical}


def test_a_uuid_in_sixteen_bytes_is_its_text() -> None:
    schema = schema_of(fixed(16, "uuid"))

    rows, problems = schema.rows([bytes(range(16))])

    assert (rows, problems) == ([{"x": str(UUID(bytes=bytes(range(16))))}], [None])
    assert schema.spark.simpleString() == "struct<x:string>"


@pytest.mark.parametrize(
    ("kind", "counterpart"),
    [
        ({"type": "string", "logicalType": "date"}, "string"),
        ({"type": "string", "logicalType": "timestamp-millis"}, "string"),
        ({"type": "string", "logicalType": "decimal", "precision": 4}, "string"),
        ({"type": "string", "logicalType": "time-millis"}, "string"),
        ({"type": "int", "logicalType": "timestamp-millis"}, "int"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint"),
        (fixed(8, "uuid"), "binary"),
        (fixed(12, "duration"), "binary"),
    ],
)
def test_a_logical_type_of_another_type_means_nothing(kind: dict[str, Any], counterpart: str) -> None:
    assert schema_of(kind).spark.simpleString() == f"struct<x:{counterpart}>"


def test_a_text_with_a_logical_type_that_texts_do_not_have_is_that_text() -> None:
    rows, _ = schema_of({"type": "string", "logicalType": "date"}).rows([b"\x08abcd"])

    assert rows == [{"x": "abcd"}]


def test_a_decimal_that_does_not_say_its_precision_is_refused() -> None:
    with pytest.raises(AvroUnsupported, match="does not say its precision"):
        schema_of({"type": "bytes", "logicalType": "decimal"})
