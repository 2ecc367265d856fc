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
from ottla.pipelines.tables import open_table
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


UNFIT = """\
pipeline: unfit
sources:
  orders:
    topic: orders
    format: json
    schema: id BIGINT, at TIMESTAMP, item STRUCT<kind:STRING>
    watermark: at 1 minute
  misspelt: {files: in, format: jsn, schema: id BIGINT, stream: true}
  absent: {files: in, format: json, schema: id BIGINT, stream: true}
steps:
  counted:
    sql: SELECT id, count(*) AS n FROM orders GROUP BY id
    expect: {few: {where: n < 5, otherwise: {route: many}}}
  minutes:
    sql: SELECT window.start AS minute, count(*) AS n FROM orders GROUP BY window(at, '1 minute')
    expect: {few: {where: n < 5, otherwise: {route: many}}}
  after_minutes: SELECT * FROM minutes
  twice: SELECT id, at AS ID FROM orders
  no_stream: {python: "unfit_steps:numbers", from: [orders]}
sinks:
  counted: {from: counted, topic: t, mode: update}
  minutes: {from: after_minutes, topic: t, mode: update}
  finished: {from: after_minutes, topic: t}
  table_twice: {from: twice, table: tables/twice}
  files_twice: {from: twice, format: parquet, options: {path: out/twice}}
  parqet: {from: orders, format: parqet}
  jdbc: {from: orders, format: jdbc}
  nested: {from: orders, format: csv, options: {path: out/nested}}
  greatest: {from: orders, table: tables/greatest, keys: [id], order: max(at)}
  other_keys: {from: orders, table: tables/there}
  no_key: {from: orders, table: tables/no_key, keys: ["`order id`"]}
  far: {from: orders, table: "s3://far/away"}
  fine: {from: orders, format: json, options: {path: out/fine}}
"""


def test_what_would_fail_when_it_runs_is_told_before(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "unfit.yaml"
    path.write_text(UNFIT)
    (tmp_path / "unfit_steps.py").write_text("def numbers(orders):\n    return orders.sparkSession.range(3)\n")
    there = open_table(str(tmp_path / "tables" / "there"), keys=("order id",))
    there.write_batch(spark.sql("SELECT 1 AS `order id`, 'a' AS at"), application="q", batch_id=0)
    found = problems_of(path, spark)
    expected = {
        8: ["source `misspelt`: Spark has no format `jsn`"],
        9: ["source `absent`: Path does not exist: "],
        11: ["what `counted` sends away: "],
        19: ["step `no_stream` reads a stream and gives rows that are none"],
        22: ["sink `minutes` has the mode update, and a rule of the step `minutes`, which groups, routes rows"],
        24: ["sink `table_twice`: its rows have the column `id` more than once"],
        25: ["sink `files_twice`: its rows have the column `id` more than once"],
        26: ["sink `parqet`: Spark has no format `parqet`"],
        27: ["sink `jdbc`: Spark cannot write a stream to `jdbc`"],
        28: ["sink `nested`: files of csv cannot hold the column `item`"],
        29: ["sink `greatest`: "],
        30: [
            "sink `other_keys`: the column at is string in the table and timestamp in the rows",
            "sink `other_keys`: the table is there, and its `keys` is `order id` and not nothing",
        ],
        31: ["sink `no_key`: A column, variable, or function parameter with name `order id` cannot be resolved"],
        32: ["sink `far`: s3://far/away: tables on s3 are not there yet"],
    }
    assert {line: len(said) for line, said in found.items()} == {line: len(said) for line, said in expected.items()}
    for line, beginnings in expected.items():
        for told, beginning in zip(found[line], beginnings, strict=True):
            assert told.startswith(beginning)


def test_settings_that_spark_does_not_take_are_a_mistake_of_the_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "pipeline: p\nspark: {spark.sql.session.timeZone: Mars/North}\n"
        "sources: {a: {topic: a}}\nsinks: {b: {from: a, topic: b}}\n"
    )
    assert "'Mars/North'" in problems_of(path, spark)[1][0]


def test_a_step_in_python_may_be_made_from_tables_alone(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "looked_up.yaml"
    path.write_text(
        "pipeline: p\nsources:\n  orders: {topic: o}\n  prices: {topic: p, read: latest}\n"
        'steps:\n  dear: {python: "looked_up_steps:dear", from: prices}\n'
        "  both: SELECT orders.* FROM orders JOIN dear USING (key)\nsinks: {out: {from: both, topic: t}}\n"
    )
    (tmp_path / "looked_up_steps.py").write_text("def dear(prices):\n    return prices.where('offset > 1')\n")
    pipeline = load(path)

    analysed(pipeline, graph(pipeline), spark)


def test_the_plan_behind_a_message_of_spark_is_left_out() -> None:
    assert message_of(ValueError("Sorting is not supported on streams;\n~Sort [id#1]\n+- ~Project")) == (
        "Sorting is not supported on streams"
    )


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
