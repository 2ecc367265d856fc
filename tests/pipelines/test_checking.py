"""What Spark does not take in a pipeline, told with file and line before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.checking import analysed, missing_topics
from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.graph import graph
from ottla.pipelines.reading import load
from ottla.pipelines.spark_errors import message_of
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKEN = """\
pipeline: broken
sources:
  orders:
    topic: orders
    format: json
    schema: id BIGINT, amount DOUBLE, at TIMESTAMP
    expect:
      positive: amount > 0
      known: customer IS NOT NULL
      early: at < current_timestamp()
      whole: amount
  typed: {topic: typed, format: json, schema: id BIGINTEGER}
  clicks: {topic: clicks}
steps:
  misspelt: |
    SELECT
      key,
      vlaue
    FROM clicks
  unfinished: SELECT key, FROM clicks WHERE
  dropping: DROP TABLE clicks
  grouped: {sql: "SELECT value FROM clicks GROUP BY key"}
  behind: SELECT * FROM misspelt
  missing: {python: "nowhere_to_be_found:step", from: [clicks]}
  counted: {sql: "SELECT key, count(*) AS n FROM clicks GROUP BY key"}
sinks:
  a: {from: behind, topic: t}
  b: {from: clicks, topic: t, key: customer}
  c: {from: counted, topic: t, mode: append}
  d: {from: clicks, table: tables/d, keys: [id]}
  e: {from: counted, topic: t, mode: update}
"""


def problems_of(path: Path, spark: SparkSession) -> dict[int, list[str]]:
    pipeline = load(path)
    with pytest.raises(PipelineInvalid) as caught:
        analysed(pipeline, graph(pipeline), spark)
    found: dict[int, list[str]] = {}
    for problem in caught.value.problems:
        found.setdefault(problem.place.line, []).append(problem.what)
    return found


def test_everything_that_spark_does_not_take_is_told_at_once_with_its_line(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    found = problems_of(path, spark)
    expected = {
        9: "the rule `known` of `orders`: A column, variable, or function parameter with name `customer`",
        10: "the rule `early` of `orders` depends on more than the row: current_timestamp",
        11: "the rule `whole` of `orders` is no predicate but double",
        12: "source `typed`: ",
        18: "step `misspelt`: A column, variable, or function parameter with name `vlaue` cannot be resolved",
        20: "step `unfinished`: Syntax error at or near end of input",
        21: "step `dropping` is a statement but no query",
        22: "step `grouped`: ",
        24: "step `missing`: there is no module nowhere_to_be_found",
        28: "sink `b`: A column, variable, or function parameter with name `customer`",
        29: "sink `c`: ",
        30: "sink `d`: A column, variable, or function parameter with name `id`",
    }
    assert {line: len(said) for line, said in found.items()} == dict.fromkeys(expected, 1)
    for line, beginning in expected.items():
        assert found[line][0].startswith(beginning)


def test_messages_of_spark_are_cut_to_what_helps() -> None:
    said = ValueError(
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. Did you mean one of the "
        "following? [`a`, `b`]. SQLSTATE: 42703; line 3 pos 2;\n'Project [a#35, 'x]\n+- SubqueryAlias t"
    )
    assert message_of(said) == (
        "A column with name `x` cannot be resolved. Did you mean one of the following? [`a`, `b`]"
    )


def test_topics_that_are_not_there_are_told_with_the_first_place_that_names_them(
    ottla_broker_process: Broker, tmp_path: Path
) -> None:
    there = ottla_broker_process.topic()
    path = tmp_path / "topics.yaml"
    path.write_text(
        f"""\
pipeline: topics
sources:
  here: {{topic: {there}}}
  gone:
    topic: not-there
    format: json
    schema: id BIGINT
    bad: not-there.bad
    expect:
      known:
        where: id > 0
        otherwise: {{route: not-there.unknown}}
sinks:
  first: {{from: here, topic: not-there.out}}
  second: {{from: gone, topic: not-there.out}}
"""
    )
    found = missing_topics(load(path), ottla_broker_process.client)
    assert [(problem.place.line, problem.what) for problem in found] == [
        (4, "there is no topic `not-there`"),
        (4, "there is no topic `not-there.bad`"),
        (10, "there is no topic `not-there.unknown`"),
        (14, "there is no topic `not-there.out`"),
    ]
    assert found[0].fix == "Create it: ottla topics create not-there"
