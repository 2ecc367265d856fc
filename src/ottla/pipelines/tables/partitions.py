"""How a table is divided into directories: by columns, or by the day of one. Pure text; knows no Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.pipelines.tables import schemas

_DATE = re.compile(r"date\(\s*(`[^`]+`|[^`()\s]+)\s*\)(?:\s+as\s+(\w+))?", re.IGNORECASE)
DATE_TYPES = frozenset({"date", "timestamp", "timestamp_ntz", "string"})


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column whose value is in the directory's name instead of the files."""

    name: str
    date_of: str | None = None
    """The column whose day it is; None: it is a column of the rows themselves."""


def partition_column(text: str) -> PartitionColumn:
    """`country`, `date(event_time)`, whose column is called `date`, or `date(event_time) AS day`."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return PartitionColumn(text.strip().strip("`"))
    return PartitionColumn(found[2] or "date", date_of=found[1].strip("`"))


def partition_problems(columns: Sequence[PartitionColumn], schema: schemas.Json) -> list[str]:
    """What keeps rows of this schema from being divided like that; the schema is that of the rows alone."""
    problems: list[str] = []
    for column in columns:
        if column.name.startswith(("_", ".")):
            problems.append(
                f"readers pass over directories that begin with {column.name[0]!r}; rename {column.name} in a step"
            )
        if column.date_of is None:
            problems += _plain_problems(column.name, schemas.type_of(schema, column.name))
            continue
        if schemas.type_of(schema, column.name) is not None:
            problems.append(
                f"the rows have a column {column.name!r} of their own; write "
                f"`date({column.date_of}) AS another_name`, or partition by {column.name}"
            )
        type_ = schemas.type_of(schema, column.date_of)
        if type_ is None:
            problems.append(f"there is no column {column.date_of!r} to take the date of; there are {_list(schema)}")
        elif not isinstance(type_, str) or type_ not in DATE_TYPES:
            problems.append(f"{column.date_of} is {schemas.text(type_)}; a date can be taken of a timestamp or a date")
    if not set(schemas.names(schema)) - {column.name for column in columns}:
        problems.append("every column is in partition_by, and nothing is left for the files; leave one out")
    return problems


def _plain_problems(name: str, type_: schemas.Json | None) -> list[str]:
    if type_ is None:
        return [f"there is no column {name!r} to partition by"]
    if not isinstance(type_, str) or type_ not in schemas.PARTITION_TYPES:
        known = ", ".join(sorted(map(schemas.text, schemas.PARTITION_TYPES)))
        return [
            f"{name} is {schemas.text(type_)}, and a directory can be named by {known}; cast it, or use date({name})"
        ]
    return []


def _list(schema: schemas.Json) -> str:
    return ", ".join(schemas.names(schema))
