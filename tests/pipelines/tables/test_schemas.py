"""How a table's schema grows, and what it refuses to become."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.pipelines.tables.contract import Shape
from ottla.pipelines.tables.partitions import PartitionColumn, partition_column, partition_problems
from ottla.pipelines.tables.schemas import Mismatch, merged, names, type_of


def _schema(**columns: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": False, "metadata": {"a": 1}} for name, kind in columns.items()]
    return {"type": "struct", "fields": fields}


def test_a_new_column_comes_after_those_that_are_there() -> None:
    schema, problems = merged(_schema(b="string", a="long"), _schema(c="date", a="long"))

    assert (names(schema), problems) == (["b", "a", "c"], [])


def test_every_column_may_be_null() -> None:
    schema, _ = merged(None, _schema(a={"type": "array", "elementType": "long", "containsNull": False}))

    assert schema["fields"][0] == {
        "name": "a",
        "type": {"type": "array", "elementType": "long", "containsNull": True},
        "nullable": True,
        "metadata": {},
    }


@pytest.mark.parametrize(
    ("was", "comes", "becomes"),
    [
        ("integer", "long", "long"),
        ("long", "integer", "long"),
        ("byte", "short", "short"),
        ("float", "double", "double"),
        ("decimal(5,2)", "decimal(9,4)", "decimal(9,4)"),
        ("decimal(9,2)", "decimal(5,2)", "decimal(9,2)"),
    ],
)
def test_of_two_types_of_a_kind_the_wider_one_is_taken(was: str, comes: str, becomes: str) -> None:
    schema, problems = merged(_schema(a=was), _schema(A=comes))

    assert (names(schema), type_of(schema, "a"), problems) == (["a"], becomes, [])


@pytest.mark.parametrize(
    ("was", "comes"),
    [
        ("string", "integer"),
        ("integer", "string"),
        ("long", "double"),
        ("integer", "float"),
        ("timestamp", "date"),
        ("decimal(9,2)", "decimal(9,4)"),
        ("string", {"type": "struct", "fields": []}),
    ],
)
def test_any_other_change_of_a_type_is_a_mismatch(was: Any, comes: Any) -> None:
    schema, problems = merged(_schema(a=was), _schema(a=comes))

    assert [problem.column for problem in problems] == ["a"]
    assert type_of(schema, "a") == was


def test_all_mismatches_are_told_with_the_names_that_people_use() -> None:
    inner = {"type": "struct", "fields": _schema(x="long")["fields"]}
    other = {"type": "struct", "fields": _schema(x="string", y="long")["fields"]}

    schema, problems = merged(_schema(a="long", s=inner), _schema(a="string", s=other))

    assert problems == [Mismatch("a", "bigint", "string"), Mismatch("s.x", "bigint", "string")]
    assert names(type_of(schema, "s") or {}) == ["x", "y"]


def test_a_column_without_a_type_waits_until_it_has_one() -> None:
    assert names(merged(_schema(a="long"), _schema(b="void"))[0]) == ["a"]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("country", PartitionColumn("country")),
        ("`a b`", PartitionColumn("a b")),
        ("date(event_time)", PartitionColumn("date", date_of="event_time")),
        ("DATE( `event time` )", PartitionColumn("date", date_of="event time")),
        ("date(at) AS day", PartitionColumn("day", date_of="at")),
    ],
)
def test_a_partition_is_a_column_or_the_day_of_one(text: str, column: PartitionColumn) -> None:
    assert partition_column(text) == column


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date(at)", "a column 'date' of their own"),
        ("date(none) AS day", "no column 'none'"),
        ("date(amount) AS day", "amount is double"),
        ("amount", "amount is double, and"),
        ("_key", "rename _key in a step"),
        ("none", "no column 'none' to partition by"),
    ],
)
def test_rows_that_cannot_be_divided_are_refused_with_the_reason(text: str, message: str) -> None:
    schema = _schema(at="timestamp", date="string", amount="double", _key="string")

    (problem,) = partition_problems([partition_column(text)], schema)

    assert message in problem


def test_a_table_needs_a_column_that_is_no_partition() -> None:
    problems = partition_problems([partition_column("a")], _schema(a="string"))

    assert problems == ["every column is in partition_by, and nothing is left for the files; leave one out"]


def test_a_partition_is_called_as_its_column_is_whatever_case_was_declared() -> None:
    """A directory by another name would be another column for readers who tell cases apart."""
    shape = Shape(schema=_schema(id="long", country="string", date="date"), partition_by=("Country", "date(At)"))

    assert [column.name for column in shape.partitions] == ["country", "date"]
