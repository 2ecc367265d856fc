"""Exactly-once writing in foreachBatch, for update mode."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.errors import InvalidOption
from ottla.spark.foreach_batch import ExactlyOnceBatches, exactly_once_batches
from tests.spark.brokers import Broker
from tests.spark.queries import QUERY_SECONDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def count_words(spark: SparkSession, broker: Broker, source: str, each: ExactlyOnceBatches, checkpoint: Path) -> None:
    """Count what is in a topic now, in update mode: each batch tells the counts that have changed."""
    reading = broker.options(subscribe=source, startingOffsets="earliest")
    words = spark.readStream.format("ottla").options(**reading).load().selectExpr("cast(value as string) word")
    counts = words.groupBy("word").count().selectExpr("word as key", "to_json(struct(word, count)) as value")
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(each)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_SECONDS_MAX)


def counts_in(broker: Broker, topic: str) -> list[tuple[str, int]]:
    found = [json.loads(value or b"") for value in broker.values(topic)]
    return sorted((each["word"], each["count"]) for each in found)


def test_changed_counts_are_written_once_though_a_batch_is_repeated(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    source, topic = broker.topic(1), broker.topic(2)
    each = exactly_once_batches(f"words {topic}", broker.options(topic=topic))
    checkpoint = tmp_path / "checkpoint"
    broker.produce(source, ["a", "b", "a"])
    count_words(spark, broker, source, each, checkpoint)
    broker.produce(source, ["a"])
    count_words(spark, broker, source, each, checkpoint)
    assert counts_in(broker, topic) == [("a", 2), ("a", 3), ("b", 1)]
    # As if the driver had died before it noted that the last batch was done.
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    count_words(spark, broker, source, each, checkpoint)
    assert counts_in(broker, topic) == [("a", 2), ("a", 3), ("b", 1)]


def test_a_new_checkpoint_under_an_old_name_is_refused_and_nothing_is_lost_in_silence(
    spark: SparkSession, ottla_broker_process: Broker
) -> None:
    broker = ottla_broker_process
    topic = broker.topic(1)
    each = exactly_once_batches(f"again {topic}", broker.options(topic=topic))
    frame = spark.range(3).selectExpr("cast(id as string) value")
    for batch_id in range(2):
        each(frame, batch_id)
    with pytest.raises(ValueError, match="another application id"):
        each(frame, 0)
    assert len(broker.values(topic)) == 6


def test_one_batch_may_go_to_several_topics(spark: SparkSession, ottla_broker_process: Broker) -> None:
    broker = ottla_broker_process
    topics = [broker.topic(1), broker.topic(1)]
    frame = spark.range(3).selectExpr("cast(id as string) value")
    for topic in topics:
        exactly_once_batches("several", broker.options(topic=topic))(frame, 0)
    assert [len(broker.values(topic)) for topic in topics] == [3, 3]


def test_a_foreign_broker_gets_every_batch_at_least_once(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(1)
    each = exactly_once_batches(f"foreign {topic}", broker.options(topic=topic))
    each(spark.range(3).selectExpr("cast(id as string) value"), 0)
    assert sorted(broker.values(topic)) == [b"0", b"1", b"2"]  # type: ignore[type-var]


class Speculating:
    """As much of a frame as is looked at before it is written, in a session with speculation."""

    @property
    def sparkSession(self) -> Speculating:  # noqa: N802
        return self

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.speculation": "true"}


def test_speculative_tasks_are_refused() -> None:
    each = exactly_once_batches("speculative", {"kafka.bootstrap.servers": "127.0.0.1:1"}, topic="t")
    with pytest.raises(InvalidOption, match=r"spark\.speculation"):
        each(Speculating(), 0)  # type: ignore[arg-type]


def test_a_mistake_shows_before_the_query_starts() -> None:
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers"):
        exactly_once_batches("words", topic="t")


def test_it_can_be_sent_to_where_it_runs() -> None:
    each = exactly_once_batches("words", {"kafka.bootstrap.servers": "127.0.0.1:1"}, topic="t")
    assert vars(pickle.loads(pickle.dumps(each))) == vars(each)
