"""The columns that a schema in Spark's DDL names. Pure, and as exact as a first look needs; Spark has the last word.

Knows where one column ends and the next begins; what types there are, it does not know.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_COLUMN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s`:]+)\s*:?\s*(.*)", re.DOTALL)
_OPENING, _CLOSING = "<(", ">)"


class Column(NamedTuple):
    """A column at the top of a schema; `type` is all that stands behind its name, empty when nothing does."""

    name: str
    type: str


def columns_in(schema: str) -> tuple[Column, ...]:
    """In order; a piece of the schema with nothing in it is a column without a name."""
    found = []
    for piece in _pieces(schema):
        parts = _COLUMN.fullmatch(piece)
        if parts is None:
            found.append(Column("", ""))
            continue
        name = parts[1]
        bare = name[1:-1].replace("``", "`") if name.startswith("`") else name
        found.append(Column(bare, parts[2].strip()))
    return tuple(found)


def _pieces(schema: str) -> list[str]:
    pieces = [""]
    depth = 0
    quote = ""
    for character in schema:
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            pieces.append("")
            continue
        pieces[-1] += character
    return pieces
