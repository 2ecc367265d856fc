"""What Spark says about a query that it does not take, as a problem with its place in the pipeline's file.

Knows how Spark's messages are built: what follows the first sentences (the plan, the error class) helps nobody.
"""

from __future__ import annotations

import re

from ottla.pipelines.errors import Problem
from ottla.pipelines.spec import Place

MESSAGE_CHARACTERS_MAX = 400
_CLASS = re.compile(r"^\s*\[(?P<name>[A-Z0-9_.]+)\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_POSITION = re.compile(r"\bline (?P<line>\d+),? pos (?P<column>\d+)")
_SEARCH_PATH = re.compile(r" on search path \[[^\]]*\]")
_PLAN = re.compile(r";\s*\n.*", re.DOTALL)
"""What a stream cannot do is told with the plan behind it."""
_DOCUMENTATION = re.compile(r" Please, refer to '[^']*' for a fix\.?")

_FIXES = {
    "UNRESOLVED_COLUMN": "Name a column that is there",
    "TABLE_OR_VIEW_NOT_FOUND": "Name a source or a step of this file",
    "UNRESOLVED_ROUTINE": "Name a function that Spark has",
    "PARSE_SYNTAX_ERROR": "Correct the SQL there",
    "PARSE_EMPTY_STATEMENT": "Write a query",
    "MISSING_AGGREGATION": "Group by it, or aggregate it",
    "DATATYPE_MISMATCH": "Cast one of them",
    "AMBIGUOUS_REFERENCE": "Say which of them is meant, as in `o.id`",
    "NESTED_AGGREGATE_FUNCTION": "Put the inner one into a step of its own",
    "UNSUPPORTED_DATATYPE": "Use a type that Spark has, such as BIGINT, DOUBLE, STRING or TIMESTAMP",
    "PATH_NOT_FOUND": "Correct the path, which begins where the pipeline's file is",
    "WRONG_NUM_ARGS": "Look the function up in Spark's documentation",
}


def problem_of(error: Exception, place: Place, *, what: str, lines_before: int = 0, in_text: bool = True) -> Problem:
    """The problem at the line of a text that begins at `place`.

    `lines_before` are lines that we put before the text; `in_text`: Spark's lines are those of the text.
    """
    said = str(error)
    line = place.line
    if in_text and (found := _POSITION.search(said)):
        line += max(0, int(found["line"]) - 1 - lines_before)
    return Problem(Place(place.file, line), f"{what}: {message_of(error)}", fix_of(error))


def message_of(error: Exception) -> str:
    """What helps of a message of Spark's, as one line without its full stop."""
    text = _CLASS.sub("", str(error).strip())
    text = _PLAN.sub("", _STATE.sub("", text).split("\n== SQL")[0])
    text = _DOCUMENTATION.sub("", _SEARCH_PATH.sub("", text))
    if condition_of(error).startswith("TABLE_OR_VIEW_NOT_FOUND"):
        # What follows is advice for catalogs.
        text = text.split(". Verify")[0]
    text = " ".join(text.split())
    if len(text) > MESSAGE_CHARACTERS_MAX:
        text = text[:MESSAGE_CHARACTERS_MAX] + "..."
    return text.rstrip(".;: ") or type(error).__name__


def condition_of(error: Exception) -> str:
    """Spark's name for the kind of error; empty where there is none."""
    found = _CLASS.match(str(error))
    return found["name"] if found else ""


def fix_of(error: Exception) -> str:
    """What to do about it."""
    return _FIXES.get(condition_of(error).split(".")[0], "Change it so that Spark takes it")
