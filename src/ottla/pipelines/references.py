"""Which tables a query in Spark's SQL reads, found without Spark. Pure.

Knows how far texts, comments and names reach, where relations stand, and how far the names of WITH reach. It judges
no query: of one that Spark would refuse, it finds what it can and Spark says the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ottla.errors import OttlaError

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--(?:\\\n|[^\n])*)
    | (?P<comment>/\*)
    | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>[^\W\d]\w*)
    | (?P<number>\d\w*)
    | (?P<sign>\|>|=>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")

_QUERY_STARTS = frozenset({"select", "with", "from", "values", "table", "map", "reduce"})
_SET_OPERATIONS = frozenset({"union", "except", "minus", "intersect"})
_CLAUSES = frozenset({"select", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit"})
_LIST_ENDS = _CLAUSES | _SET_OPERATIONS | {"offset", "window", "qualify"}
"""After these words a comma no longer separates relations."""
_AFTER_VALUES = frozenset({"as", "join", "on", "inner", "left", "right", "full", "cross", "natural"}) | _LIST_ENDS


DEPTH_MAX = 150
"""Of brackets in brackets; Spark's own parser has such a limit too, and ends badly there."""


class TooDeep(OttlaError):
    """A query with more brackets in brackets than anybody reads."""

    def __init__(self, line: int) -> None:
        super().__init__(f"brackets are nested more than {DEPTH_MAX} deep")
        self.line = line


class Reference(NamedTuple):
    """A table that a query reads, by the name that stands there, and the line of the query where it first does."""

    name: str
    line: int


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


@dataclass(slots=True)
class _Group:
    """What stands between two brackets, or the whole query."""

    items: list[_Token | _Group] = field(default_factory=list)


def tables_in(sql: str) -> tuple[str, ...]:
    """The names of the tables that the query reads, each once, in the order of their first use.

    A name in several parts comes with its dots, quotes removed. Names that WITH defines are no tables.
    """
    return tuple(reference.name for reference in references_in(sql))


def references_in(sql: str) -> tuple[Reference, ...]:
    """The same with lines, counted from 1. Names that differ only in case are one, as they are to Spark.

    Raises TooDeep.
    """
    found: dict[str, Reference] = {}
    for reference in _Search().query(_grouped(_tokens(sql)), frozenset()):
        found.setdefault(reference.name.lower(), reference)
    return tuple(found.values())


def statement_in(sql: str) -> str:
    """The query without the `;`, the comments and the space behind it, so that it can be put into brackets."""
    position = end = 0
    for kind, text in _pieces(sql):
        position += len(text)
        is_kept = kind not in ("space", "comment") and text != ";"
        if is_kept or (kind == "comment" and not text.endswith("*/")):
            # A comment that is never closed is Spark's to refuse.
            end = position
    return sql[:end]


def has_subquery(expression: str) -> bool:
    """Whether an expression asks a query of its own."""
    tokens = list(_tokens(expression))
    return any(
        bracket.text == "(" and inner.kind == "word" and inner.text.lower() in ("select", "with")
        for bracket, inner in pairwise(tokens)
    )


# --- tokens and brackets ------------------------------------------------------------------------------


def _tokens(sql: str) -> Iterator[_Token]:
    line = 1
    for kind, text in _pieces(sql):
        if kind not in ("space", "comment"):
            yield _Token(kind, text, line)
        line += text.count("\n")


def _pieces(sql: str) -> Iterator[tuple[str, str]]:
    """The whole text in pieces, each with its kind."""
    position = 0
    while position < len(sql):
        match = _TOKEN.match(sql, position)
        assert match is not None, "every character is at least a sign"
        kind, text = str(match.lastgroup), match[0]
        if kind == "comment":
            text = sql[position : _comment_end(sql, position)]
        yield kind, text
        position += len(text)


def _comment_end(sql: str, start: int) -> int:
    """Comments in brackets hold others; one that is never closed reaches to the end."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(sql, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(sql)


def _grouped(tokens: Iterator[_Token]) -> _Group:
    """The tokens by brackets. A bracket without its partner is passed over, or closes at the end."""
    open_groups = [_Group()]
    for token in tokens:
        if token.kind == "sign" and token.text == "(":
            inner = _Group()
            open_groups[-1].items.append(inner)
            open_groups.append(inner)
            if len(open_groups) > DEPTH_MAX:
                raise TooDeep(token.line)
        elif token.kind == "sign" and token.text == ")":
            if len(open_groups) > 1:
                open_groups.pop()
        else:
            open_groups[-1].items.append(token)
    return open_groups[0]


# --- relations ----------------------------------------------------------------------------------------

_Names = frozenset[str]
"""What WITH defines and is visible here, in lower case."""


class _Search:
    """Walks through a query and gives what stands where a relation is expected."""

    def query(self, group: _Group, defined: _Names, *, begins_with_relation: bool = False) -> Iterator[Reference]:
        """A query, or, where a relation stands first, what brackets around relations hold."""
        items = group.items
        position = 0
        if _word(items, 0) == "with":
            position, defined, bodies = self._with(items, defined)
            yield from bodies
        in_list = begins_with_relation
        if begins_with_relation:
            position, found = self._relation(items, position, defined)
            yield from found
        while position < len(items):
            word = _word(items, position)
            starts_relation = (
                (word == "from" and not _is_comparison(items, position))
                or word == "join"
                or (in_list and _is_sign(items, position, ","))
            )
            if starts_relation:
                in_list = True
                position, found = self._relation(items, position + 1, defined)
                yield from found
                continue
            if word in _LIST_ENDS or _is_sign(items, position, "|>"):
                in_list = False
            elif word == "lateral" and _word(items, position + 1) == "view":
                # Commas that follow stand between the columns that the view makes.
                in_list = False
            elif word == "table" and self._stands_for_a_query(items, position):
                position, found = self._relation(items, position + 1, defined)
                yield from found
                continue
            item = items[position]
            if isinstance(item, _Group):
                yield from self._nested(item, defined)
            position += 1

    def _with(self, items: list[_Token | _Group], defined: _Names) -> tuple[int, _Names, list[Reference]]:
        """Past the definitions of WITH; each sees the ones before it, and itself only where it is recursive."""
        found: list[Reference] = []
        position = 1
        recursive = _word(items, position) == "recursive"
        position += 1 if recursive else 0
        while (name := _name(items, position)) is not None:
            position += 1
            while position < len(items) and _word(items, position) != "as":
                position += 1
            body = items[position + 1] if position + 1 < len(items) else None
            if not isinstance(body, _Group):
                return len(items), defined, found
            inside = defined | {name.lower()} if recursive else defined
            found.extend(self.query(body, inside))
            defined = defined | {name.lower()}
            position += 2
            if not _is_sign(items, position, ","):
                break
            position += 1
        return position, defined, found

    def _relation(self, items: list[_Token | _Group], position: int, defined: _Names) -> tuple[int, list[Reference]]:
        """What stands at a relation's place, and where it ends."""
        if _word(items, position) == "lateral":
            position += 1
        if _word(items, position) in ("stream", "table") and position + 1 < len(items):
            following = items[position + 1]
            if isinstance(following, _Group):
                inner = self._dotted(following.items, 0)
                if inner is not None and inner[0] == len(following.items):
                    return position + 2, self._unless_defined(inner[1], defined)
                return position + 2, list(self._nested(following, defined))
            if _name(items, position + 1) is not None:
                position += 1
        if _word(items, position) == "values":
            return self._values(items, position + 1, defined)
        item = items[position] if position < len(items) else None
        if isinstance(item, _Group):
            starts_query = _word(item.items, 0) in _QUERY_STARTS
            return position + 1, list(self.query(item, defined, begins_with_relation=not starts_query))
        dotted = self._dotted(items, position)
        if dotted is None:
            return position, []
        end, reference = dotted
        arguments = items[end] if end < len(items) else None
        if isinstance(arguments, _Group):
            # A function that gives a table, such as `range(10)`.
            return end + 1, list(self._nested(arguments, defined))
        return end, self._unless_defined(reference, defined)

    def _values(self, items: list[_Token | _Group], position: int, defined: _Names) -> tuple[int, list[Reference]]:
        """Past the rows of VALUES, whose commas separate no relations."""
        found: list[Reference] = []
        while position < len(items):
            item = items[position]
            if isinstance(item, _Group):
                found.extend(self._nested(item, defined))
                position += 1
            else:
                while position < len(items) and not _is_sign(items, position, ","):
                    if _word(items, position) in _AFTER_VALUES:
                        return position, found
                    position += 1
            if not _is_sign(items, position, ","):
                break
            position += 1
        return position, found

    def _nested(self, group: _Group, defined: _Names) -> Iterator[Reference]:
        """Brackets in an expression: a query of their own, or more of the expression."""
        first = _word(group.items, 0)
        if first in _QUERY_STARTS:
            yield from self.query(group, defined)
            return
        for position, item in enumerate(group.items):
            if isinstance(item, _Group):
                yield from self._nested(item, defined)
            elif _word(group.items, position) == "table" and self._stands_for_a_query(group.items, position):
                yield from self._relation(group.items, position, defined)[1]

    def _stands_for_a_query(self, items: list[_Token | _Group], position: int) -> bool:
        """Whether TABLE is the short form of a query, or hands a table to a function; it may also be an alias."""
        if position == 0:
            return True
        before = _word(items, position - 1)
        if before in ("all", "distinct"):
            before = _word(items, position - 2)
        return before in _SET_OPERATIONS or (
            isinstance(items[position + 1] if position + 1 < len(items) else None, _Group)
            and (_is_sign(items, position - 1, ",") or _is_sign(items, position - 1, "=>"))
        )

    def _dotted(self, items: list[_Token | _Group], position: int) -> tuple[int, Reference] | None:
        """A name in one or more parts, and where it ends."""
        name = _name(items, position)
        if name is None:
            return None
        token = items[position]
        assert isinstance(token, _Token)
        position += 1
        while _is_sign(items, position, ".") and (part := _name(items, position + 1)) is not None:
            name += f".{part}"
            position += 2
        return position, Reference(name, token.line)

    def _unless_defined(self, reference: Reference, defined: _Names) -> list[Reference]:
        return [] if reference.name.lower() in defined else [reference]


def _word(items: list[_Token | _Group], position: int) -> str:
    """The word there, in lower case; empty for anything else, and for the part of a name that follows a dot."""
    if not 0 <= position < len(items):
        return ""
    item = items[position]
    if isinstance(item, _Group) or item.kind != "word" or (position > 0 and _is_sign(items, position - 1, ".")):
        return ""
    return item.text.lower()


def _name(items: list[_Token | _Group], position: int) -> str | None:
    """The name there, without its quotes."""
    if position >= len(items):
        return None
    item = items[position]
    if isinstance(item, _Group):
        return None
    if item.kind == "quoted":
        return item.text[1:-1].replace("``", "`")
    return item.text if item.kind == "word" else None


def _is_sign(items: list[_Token | _Group], position: int, sign: str) -> bool:
    if not 0 <= position < len(items):
        return False
    item = items[position]
    return isinstance(item, _Token) and item.kind == "sign" and item.text == sign


def _is_comparison(items: list[_Token | _Group], position: int) -> bool:
    """Whether FROM belongs to `IS [NOT] DISTINCT FROM`."""
    return _word(items, position - 1) == "distinct" and _word(items, position - 2) in ("is", "not")
