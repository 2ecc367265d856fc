"""How the schema of a table grows with what is written to it: columns are added, some types are widened, all else is
refused. On schemas as Spark writes them in JSON; pure, and knows no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Any
_WIDENING = (("byte", "short", "integer", "long"), ("float", "double"))
"""Each can be read as any that stands after it, from files that were written before."""
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
PARTITION_TYPES = frozenset({"string", "date", "boolean", "byte", "short", "integer", "long"})
"""What the name of a directory gives back as it was."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A column that cannot be what it was."""

    column: str
    was: str
    comes: str

    def __str__(self) -> str:
        return f"{self.column} is {self.was} in the table and {self.comes} in the rows"


def merged(table: Mapping[str, Json] | None, rows: Mapping[str, Json]) -> tuple[dict[str, Json], list[Mismatch]]:
    """The schema that holds both the table and the rows, in the table's order with new columns after it; and why not.

    Names differ by more than their case. A column that the rows lack stays; one without a type (`SELECT NULL`) waits
    until it has one.
    """
    problems: list[Mismatch] = []
    known = _struct(table) if table is not None else {"type": "struct", "fields": []}
    return _merged_structs(known, _struct(rows), above="", problems=problems), problems


def names(schema: Mapping[str, Json]) -> list[str]:
    """The columns of a schema."""
    return [str(field["name"]) for field in schema["fields"]]


def type_of(schema: Mapping[str, Json], column: str) -> Json | None:
    """The type of a column; None where there is none."""
    for field in schema["fields"]:
        if str(field["name"]).lower() == column.lower():
            return field["type"]
    return None


def text(type_: Json) -> str:
    """A type as people write it."""
    if isinstance(type_, str):
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(type_, type_)
    kind = type_["type"]
    if kind == "struct":
        inner = ", ".join(f"{field['name']}: {text(field['type'])}" for field in type_["fields"])
        return f"struct<{inner}>"
    if kind == "array":
        return f"array<{text(type_['elementType'])}>"
    if kind == "map":
        return f"map<{text(type_['keyType'])}, {text(type_['valueType'])}>"
    return str(kind)


def _struct(schema: Mapping[str, Json]) -> dict[str, Json]:
    """A schema in which everything may be null, without remarks on columns."""
    plain = _plain(dict(schema))
    assert isinstance(plain, dict), "a struct stays one"
    return plain


def _plain(type_: Json) -> Json:
    if isinstance(type_, str):
        return type_
    kind = type_["type"]
    if kind == "struct":
        fields = [
            {"name": field["name"], "type": _plain(field["type"]), "nullable": True, "metadata": {}}
            for field in type_["fields"]
            if field["type"] != "void"
        ]
        return {"type": "struct", "fields": fields}
    if kind == "array":
        return {"type": "array", "elementType": _plain(type_["elementType"]), "containsNull": True}
    if kind == "map":
        inner = {"keyType": _plain(type_["keyType"]), "valueType": _plain(type_["valueType"])}
        return {"type": "map", **inner, "valueContainsNull": True}
    return type_


def _merged_structs(
    table: dict[str, Json], rows: dict[str, Json], *, above: str, problems: list[Mismatch]
) -> dict[str, Json]:
    coming = {field["name"].lower(): field for field in rows["fields"]}
    fields = []
    for field in table["fields"]:
        other = coming.pop(field["name"].lower(), None)
        if other is not None:
            column = f"{above}{field['name']}"
            field = {**field, "type": _merged_types(field["type"], other["type"], column=column, problems=problems)}
        fields.append(field)
    return {"type": "struct", "fields": [*fields, *coming.values()]}


def _merged_types(was: Json, comes: Json, *, column: str, problems: list[Mismatch]) -> Json:
    if was == comes:
        return was
    if isinstance(was, dict) and isinstance(comes, dict) and was["type"] == comes["type"] == "struct":
        return _merged_structs(was, comes, above=f"{column}.", problems=problems)
    if isinstance(was, str) and isinstance(comes, str) and (wider := _wider(was, comes)) is not None:
        return wider
    problems.append(Mismatch(column, text(was), text(comes)))
    return was


def _wider(one: str, other: str) -> str | None:
    for types in _WIDENING:
        if one in types and other in types:
            return max(one, other, key=types.index)
    first, second = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if first and second:
        scale = max(int(first[2]), int(second[2]))
        whole = max(int(first[1]) - int(first[2]), int(second[1]) - int(second[2]))
        # The wider of the two only: a third type would make both of them change.
        wider = f"decimal({whole + scale},{scale})"
        return wider if wider in {one, other} else None
    return None
