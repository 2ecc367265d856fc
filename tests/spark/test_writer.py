"""The sink on a real Spark: what a frame holds is what the topic gets, in batches and in streams."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from ottla.client.routing import murmur2_partition
from ottla.client.values import OffsetSpec
from ottla.spark.errors import InvalidOption
from ottla.spark.options import write_options
from ottla.spark.writer import BatchWriter, application_key
from tests.spark.brokers import Broker
from tests.spark.queries import write_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 5_000


def numbers(spark: SparkSession, count: int = ROWS, *, tasks: int = 3) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("cast(id % 97 as string) key", "cast(id as string) value")


def save(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("ottla").options(**options).mode("append").save()


def test_a_table_becomes_records_each_where_its_key_belongs(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(4)
    save(numbers(spark), broker.options(topic=topic))
    records = broker.records(topic)
    assert sorted(int(each.value or b"") for each in records) == list(range(ROWS))
    assert all(each.key == b"%d" % (int(each.value or b"") % 97) for each in records)
    assert all(each.partition == murmur2_partition(each.key or b"", 4) for each in records)


def test_headers_nulls_topics_and_partitions_are_written_as_the_columns_say(
    spark: SparkSession, broker: Broker
) -> None:
    first, second = broker.topic(3), broker.topic(3)
    frame = spark.sql(
        f"""
        select * from values
          (binary('k'), binary('v'), '{first}', 2, array(named_struct('key', 'h', 'value', binary('1')),
                                                         named_struct('key', 'n', 'value', cast(null as binary)))),
          (null, null, '{second}', 0, null),
          (binary(''), binary(''), '{second}', 1, array())
        as t(key, value, topic, partition, headers)"""
    )
    save(frame, broker.options())
    written = [*broker.records(first), *broker.records(second)]
    assert [(each.topic, each.partition, each.key, each.value, each.headers) for each in written] == [
        (first, 2, b"k", b"v", (("h", b"1"), ("n", None))),
        (second, 0, None, None, ()),
        (second, 1, b"", b"", ()),
    ]


def test_a_stream_goes_on_from_its_checkpoint_without_losing_or_doubling(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    source, topic = broker.topic(2), broker.topic(3)
    reading = broker.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=700)
    for first in (0, 1_500):
        broker.produce(source, [b"%d" % number for number in range(first, first + 1_500)])
        frame = spark.readStream.format("ottla").options(**reading).load()
        write_now(frame.select("key", "value"), tmp_path / "checkpoint", broker.options(topic=topic))
    assert sorted(int(value or b"") for value in broker.values(topic)) == list(range(3_000))


def test_a_batch_that_fails_leaves_nothing_behind(spark: SparkSession, ottla_broker_process: Broker) -> None:
    broker = ottla_broker_process
    topic = broker.topic(2)
    frame = numbers(spark).withColumn("value", f.when(f.col("value") != str(ROWS - 1), f.col("value")))
    broken = frame.withColumn("value", f.coalesce("value", f.raise_error(f.lit("broken on purpose")).cast("string")))
    with pytest.raises(PySparkException):
        save(broken, broker.options(topic=topic))
    wanted: dict[tuple[str, int], int] = {(topic, partition): OffsetSpec.LATEST for partition in range(2)}
    stable = broker.client.admin().list_offsets(wanted, isolation="read_committed")
    assert stable == broker.client.admin().list_offsets(wanted)
    save(numbers(spark), broker.options(topic=topic))
    assert sorted(int(value or b"") for value in broker.values(topic)) == list(range(ROWS))


def test_a_batch_that_was_committed_before_a_crash_is_not_written_again(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    source, topic = broker.topic(2), broker.topic(3)
    reading = broker.options(subscribe=source, startingOffsets="earliest")
    broker.produce(source, [b"%d" % number for number in range(1_000)])

    def run() -> None:
        frame = spark.readStream.format("ottla").options(**reading).load()
        write_now(frame.select("key", "value"), tmp_path / "checkpoint", broker.options(topic=topic))

    run()
    # As if the driver had died between the commit of the sink and its own note of it.
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("*"))
    for noted in commits:
        noted.unlink()
    assert commits
    broker.produce(source, [b"%d" % number for number in range(1_000, 1_100)])
    run()
    assert sorted(int(value or b"") for value in broker.values(topic)) == list(range(1_100))
    assert len(broker.values(topic, committed=False)) == 1_100


def test_a_batch_of_an_application_is_written_once(spark: SparkSession, ottla_broker_process: Broker) -> None:
    broker = ottla_broker_process
    topic = broker.topic(2)
    for version in (7, 8, 7):
        save(numbers(spark, 100), broker.options(topic=topic, txnAppId=f"nightly {topic}", txnVersion=version))
    assert len(broker.values(topic)) == 200


def test_mistakes_are_told_with_the_fix(spark: SparkSession, ottla_broker_process: Broker) -> None:
    frame = spark.range(1).selectExpr("id as value")
    with pytest.raises(PySparkException, match=r"the column value is bigint.*CAST\(value AS STRING\)"):
        save(frame, ottla_broker_process.options(topic="t"))


def options(**more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **more}


VALUE = StructType([StructField("value", StringType())])


def test_a_batch_has_one_name_in_all_tasks_and_on_the_driver() -> None:
    ids: Iterator[UUID] = iter([UUID(int=1), UUID(int=2)])
    writer = BatchWriter(VALUE, write_options(options(), streaming=False), new_uuid=lambda: next(ids))
    assert vars(pickle.loads(pickle.dumps(writer))) == vars(writer)


def test_no_two_pairs_of_application_and_topic_have_one_key() -> None:
    pairs = [("orders", "eu.out"), ("orders.eu", "out"), ("orders.eu.out", ""), ("out:orders", "eu"), ("orders", "eu")]
    chosen = [options(txnAppId=name, txnVersion="0") | {"topic": topic} for name, topic in pairs]
    for each in chosen:
        if not each["topic"]:
            del each["topic"]
    assert len({application_key(write_options(each, streaming=False)) for each in chosen}) == len(pairs)


def test_an_application_id_must_not_look_like_a_slot() -> None:
    chosen = write_options(options(txnAppId="a/b", txnVersion="1"), streaming=False)
    with pytest.raises(InvalidOption, match="txnAppId"):
        BatchWriter(VALUE, chosen)
