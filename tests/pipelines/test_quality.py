"""Rules: what passes, what is sent away and what ends a query; each row to exactly one place."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines import quality
from ottla.pipelines.spec import Place, Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Place("pipeline.yaml", 7)


def dropping(where: str) -> Rule:
    return Rule(f"drop {where}", HERE, where, "drop")


def routing(where: str, topic: str) -> Rule:
    return Rule(f"route {where}", HERE, where, "route", topic)


def failing(where: str) -> Rule:
    return Rule("must", HERE, where, "fail")


def checks(rules: list[Rule]) -> list[quality.Check]:
    from pyspark.sql import functions as F  # noqa: N812

    return quality.rule_checks(rules, node="orders", origin=F.lit("orders"), row=F.to_json(F.struct("n")))


def numbers(spark: SparkSession) -> DataFrame:
    """0 to 9, and two rows without a number."""
    return spark.sql("SELECT CAST(id AS INT) AS n FROM range(10) UNION ALL SELECT CAST(NULL AS INT) FROM range(2)")


def away(frame: DataFrame, rules: list[Rule]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    key, value = F.lit(None).cast("binary"), F.col("n").cast("string")
    return quality.sent_away(frame, checks(rules), key=key, value=value, headers=None)


def test_every_row_goes_to_the_place_of_the_first_rule_that_it_breaks_and_to_no_other(spark: SparkSession) -> None:
    rules = [routing("n >= 3", "low"), dropping("n <> 5"), routing("n < 8", "high"), dropping("n <> 8")]
    frame = numbers(spark)
    passed = [row["n"] for row in quality.passing(frame, checks(rules)).collect()]
    sent = Counter(row["topic"] for row in away(frame, rules).collect())
    assert sorted(passed) == [3, 4, 6, 7]
    # A row without a number breaks the first rule: what is unknown does not hold.
    assert sent == {"low": 3 + 2, "high": 2}


def test_what_is_sent_away_names_the_rule_and_where_it_comes_from(spark: SparkSession) -> None:
    (row,) = away(numbers(spark).where("n = 1"), [routing("n > 2", "low")]).collect()
    headers = [(header["key"], bytes(header["value"])) for header in row["headers"]]
    assert headers == [("ottla.rule", b"route n > 2"), ("ottla.source", b"orders")]
    assert (row["value"], row["topic"]) == ("1", "low")


def test_a_row_that_must_not_be_ends_the_query_with_the_rule_and_the_row(spark: SparkSession) -> None:
    frame = quality.passing(numbers(spark).where("n IS NOT NULL"), checks([failing("n < 9")]))
    with pytest.raises(
        Exception, match=r"pipeline\.yaml:7: a row of `orders` does not fulfil the rule `must`.*\"n\":9"
    ):
        frame.collect()


def test_a_later_filter_does_not_hide_a_row_that_must_not_be(spark: SparkSession) -> None:
    frame = quality.passing(numbers(spark), checks([failing("n IS NOT NULL")]))
    # Spark would ask this first if it were free to, and both rows without a number would be gone.
    with pytest.raises(Exception, match="does not fulfil the rule"):
        frame.where("n < 5").collect()


def test_a_row_that_is_dropped_first_does_not_end_the_query(spark: SparkSession) -> None:
    frame = quality.passing(numbers(spark), checks([dropping("n < 5"), failing("n < 9")]))
    assert frame.count() == 5


def test_the_rows_that_must_not_be_end_the_query_of_what_is_sent_away_too(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="does not fulfil the rule"):
        away(numbers(spark), [routing("n > 2", "low"), failing("n < 9")]).collect()


def test_without_rules_every_row_passes(spark: SparkSession) -> None:
    assert quality.passing(numbers(spark), []).count() == 12


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ("event_time > current_timestamp() - INTERVAL 1 HOUR", "current_timestamp"),
        ("day = CURRENT_DATE", "CURRENT_DATE"),
        ("at < now()", "now"),
        ("rand() < 0.5", "rand"),
        ("unix_timestamp() > at", "unix_timestamp"),
    ],
)
def test_a_predicate_that_depends_on_more_than_the_row_is_noticed(where: str, word: str) -> None:
    assert quality.unsteady(where) == word


@pytest.mark.parametrize(
    "where", ["amount > 0", "note = 'now()'", "`rand` > 1", "unix_timestamp(at) > 5", "nowhere(a)"]
)
def test_a_predicate_that_depends_on_the_row_alone_is_left_alone(where: str) -> None:
    assert quality.unsteady(where) is None
