"""Patterns of topic names, as Java's expressions write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.spark.errors import InvalidOption

_JAVA_GROUP_NAME = re.compile(r"\(\?<(?=[A-Za-z])")


def topic_expression(pattern: str) -> re.Pattern[str]:
    """The expression to hold against names.

    Python's expressions have all that patterns of topic names use, look-arounds included, which RE2 has not. Only the
    names of groups are spelt otherwise.
    """
    try:
        return re.compile(_JAVA_GROUP_NAME.sub("(?P<", pattern))
    except re.error as e:
        raise InvalidOption("subscribePattern", f"{pattern!r} is not a regular expression: {e}") from e


def matching(expression: re.Pattern[str], names: Iterable[str]) -> list[str]:
    """The names in which the expression is found anywhere, as Spark's own connector looks for it."""
    return sorted(name for name in names if expression.search(name))
