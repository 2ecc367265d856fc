"""Which names and intervals a declaration may use: for pipelines, sources and steps, sinks, rules and topics. Pure."""

from __future__ import annotations

import re

from ottla.storage.layout import is_topic_name

_DIRECTORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLUMN = re.compile(r"[^\W\d]\w*|`[^`]+`")
_COLUMN_PATH = rf"(?:{_COLUMN.pattern})(?:\.(?:{_COLUMN.pattern}))*"
_WATERMARK = re.compile(rf"({_COLUMN_PATH})\s+(\S.*)")
_PARTITION = re.compile(rf"(?:{_COLUMN.pattern})|(?i:date)\(\s*(?:{_COLUMN.pattern})\s*\)(?:\s+(?i:as)\s+\w+)?")
# Of all units only seconds have fractions: so Spark has it.
_SPAN = r"(?:[0-9]+(?:\.[0-9]+)?\s+seconds?|[0-9]+\s+(?:microsecond|millisecond|minute|hour|day|week)s?)"
_INTERVAL = re.compile(rf"(?:interval\s+)?{_SPAN}(?:\s+{_SPAN})*", re.IGNORECASE)
_FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")

KEPT_PREFIX = "_ottla"
SIDE_ENDING = ".side"
"""Of queries that write what a source or a step routes away."""
_SQL = (
    "all and anti as by case cross distinct except exists explain false filter for from full group "
    "having in inner intersect is join lateral left like limit minus natural not null offset on or "
    "order outer pivot qualify recursive right select semi set stream table tablesample then true "
    "union unnest unpivot using values when where window with "
)
SQL_WORDS = frozenset(_SQL.split())
"""Words that a query uses for itself after FROM or JOIN, so that a name among them could not be told apart."""
NAME_BYTES_MAX = 200
"""Names become names of directories and of topics' keys."""


def why_not_pipeline(name: str) -> str | None:
    """Why a pipeline cannot have this name; None when it can."""
    if _DIRECTORY.fullmatch(name) is None or len(name) > NAME_BYTES_MAX:
        return "is made of letters, digits, `-`, `_` and `.`, and begins with a letter or a digit"
    return None


def why_not_node(name: str) -> str | None:
    """The same for a source or a step, which SQL calls by its name."""
    if name.endswith(SIDE_ENDING):
        return f"does not end in `{SIDE_ENDING}`, which queries of our own have"
    if _VIEW.fullmatch(name) is None or len(name) > NAME_BYTES_MAX:
        return "is made of letters, digits and `_`, and begins with a letter, so that SQL can use it"
    if name.lower().startswith(KEPT_PREFIX):
        return f"does not begin with `{KEPT_PREFIX}`, which is kept for Ottla"
    if name.lower() in SQL_WORDS:
        return "is not a word of SQL"
    return None


def why_not_sink(name: str) -> str | None:
    """The same for a sink, whose name its query and its directory of checkpoints have."""
    if name.endswith(SIDE_ENDING):
        return f"does not end in `{SIDE_ENDING}`, which queries of our own have"
    if name.lower().startswith(KEPT_PREFIX):
        return f"does not begin with `{KEPT_PREFIX}`, which is kept for Ottla"
    return why_not_pipeline(name)


def is_topic(name: str) -> bool:
    """Whether a topic can have this name."""
    return is_topic_name(name)


def is_internal_topic(name: str) -> bool:
    """Whether the name is of the kind that Kafka and Ottla keep for themselves."""
    return name.startswith("__")


def is_interval(text: str) -> bool:
    """Whether Spark reads the text as a span of time of fixed length: `5 seconds`, `1 hour 30 minutes`."""
    return _INTERVAL.fullmatch(text) is not None


def watermark_parts(text: str) -> tuple[str, str] | None:
    """Column and delay of `event_time 2 minutes`; None when it is not of that form."""
    parts = _WATERMARK.fullmatch(text)
    if parts is None or not is_interval(parts[2]):
        return None
    return parts[1], parts[2]


def is_column(text: str) -> bool:
    """Whether the text names a column, and nothing more."""
    return _COLUMN.fullmatch(text) is not None


def column_name(text: str) -> str:
    """The name of a column that may stand in backquotes."""
    return text[1:-1] if text.startswith("`") else text


def is_partitioning(text: str) -> bool:
    """Whether the text is a column, `date(column)` or `date(column) AS name`."""
    return _PARTITION.fullmatch(text) is not None


def is_function(text: str) -> bool:
    """Whether the text is of the form `module:function`."""
    return _FUNCTION.fullmatch(text) is not None and ".py:" not in text
