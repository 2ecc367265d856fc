"""What must hold for rows, and what becomes of those for which it does not: dropped, sent away, or the query's end.

A row belongs to the first check that it fails, in the order of the file, and to no other: what comes in is what passes,
is dropped and is sent away, exactly. Two queries ask the same checks about the same rows, one for those that pass and
one for those that are sent away, so that a check may depend on nothing but the row. Knows no sources and no sinks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ottla.pipelines.formats import evaluated_once
from ottla.pipelines.spec import Rule

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Otherwise = Literal["drop", "fail", "route"]

RULE_HEADER = "ottla.rule"
REASON_HEADER = "ottla.reason"
SOURCE_HEADER = "ottla.source"
ROW_CHARACTERS_MAX = 500
"""Of a row that is shown in a message."""

_UNSTEADY = re.compile(
    r"\b(?:(?P<bare>current_timestamp|current_date|localtimestamp|current_time)\b"
    r"|(?P<call>now|curdate|rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id"
    r"|spark_partition_id|unix_timestamp(?=\s*\(\s*\)))\s*\()",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")


@dataclass(frozen=True, slots=True)
class Check:
    """A check as Spark asks it."""

    failed: Column
    """Never null."""
    otherwise: Otherwise
    message: Column
    """For the one who reads why the query has ended."""
    topic: str | None = None
    headers: tuple[tuple[str, Column], ...] = ()
    """What a record that is sent away gets besides its own headers."""


def unsteady(where: str) -> str | None:
    """What in a predicate gives another answer at another time, or each time; None: nothing that we know of."""
    found = _UNSTEADY.search(_QUOTED.sub("''", where))
    return None if found is None else (found["bare"] or found["call"])


def rule_checks(rules: Sequence[Rule], *, node: str, origin: Column, row: Column) -> list[Check]:
    """Checks for rules; `origin` says where a row comes from, and `row` is all of it as a text."""
    from pyspark.sql import functions as F  # noqa: N812

    shown = F.substring(row, 1, ROW_CHARACTERS_MAX)
    return [
        Check(
            failed=~F.coalesce(F.expr(rule.where), F.lit(False)),
            otherwise=rule.otherwise,
            message=F.concat(
                F.lit(f"{rule.place}: a row of `{node}` does not fulfil the rule `{rule.name}` ({rule.where}): "),
                origin,
                F.lit(" "),
                shown,
            ),
            topic=rule.topic,
            headers=((RULE_HEADER, F.lit(rule.name)), (SOURCE_HEADER, origin)),
        )
        for rule in rules
    ]


def passing(frame: DataFrame, checks: Sequence[Check]) -> DataFrame:
    """The rows that fail no check. A row whose first failed check says so ends the query."""
    from pyspark.sql import functions as F  # noqa: N812

    if not checks:
        return frame
    return frame.where(_verdict(checks, of_failed={"drop": False, "route": False}, of_passed=F.lit(True)))


def sent_away(
    frame: DataFrame, checks: Sequence[Check], *, key: Column, value: Column, headers: Column | None
) -> DataFrame:
    """The rows whose first failed check names a topic, as records for it: key, value, headers, topic."""
    from pyspark.sql import functions as F  # noqa: N812

    none = _headers(())
    own = none if headers is None else F.coalesce(headers.cast(HEADERS), none)
    topic, more = F.lit(None).cast("string"), none
    for check in reversed(checks):
        # From the last to the first, so that the first that a row fails is the one that counts.
        topic = F.when(check.failed, F.lit(check.topic)).otherwise(topic)
        more = F.when(check.failed, _headers(check.headers)).otherwise(more)
    kept = frame.where(_verdict(checks, of_failed={"drop": False, "route": True}, of_passed=F.lit(False)))
    return kept.select(
        key.alias("key"),
        value.alias("value"),
        F.concat(own, more).alias("headers"),
        topic.alias("topic"),
    )


HEADERS = "array<struct<key:string,value:binary>>"
"""As the source gives them and the sink takes them."""


def _headers(headers: Sequence[tuple[str, Column]]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    pairs = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in headers]
    return F.array(*pairs).cast(HEADERS)


def _verdict(checks: Sequence[Check], *, of_failed: dict[Otherwise, bool], of_passed: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    verdict = of_passed
    for check in reversed(checks):
        if check.otherwise == "fail":
            decided = F.raise_error(check.message).cast("boolean")
        else:
            decided = F.lit(of_failed[check.otherwise])
        verdict = F.when(check.failed, decided).otherwise(verdict)
    if any(check.otherwise == "fail" for check in checks):
        # Spark would put filters of later steps before this one, and rows that should end the query would be gone.
        return evaluated_once(verdict)
    return verdict
