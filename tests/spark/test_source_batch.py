"""Topics as tables, on a real Spark: `spark.read.format("ottla")`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.values import NewRecord, Record
from ottla.clock import SystemClock
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MINUTE_MS = 60_000
CREATE_TIME = 0


def table(spark: SparkSession, broker: Broker, **options: object) -> DataFrame:
    return spark.read.format("ottla").options(**broker.options(**options)).load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def motley(stem: str, *, now_ms: int) -> list[NewRecord]:
    """Records of every shape: with and without key, value and headers, empty, large, and at different times."""
    headers = [("trace", b"1"), ("trace", b""), ("näme", "wért".encode()), ("none", None)]
    return [
        NewRecord(f"{stem}-plain".encode(), timestamp_ms=now_ms - 1),
        NewRecord(b"", b"", timestamp_ms=now_ms - 2),
        NewRecord(None, f"{stem}-tombstone".encode(), timestamp_ms=now_ms - 3),
        NewRecord(bytes(range(256)), b"\x00\xff", headers, timestamp_ms=now_ms - 86_400_000),
        NewRecord(b"large" * 40_000, b"k" * 100, [("h", b"x" * 1_000)], timestamp_ms=now_ms),
        *(NewRecord(f"{stem}-{number}".encode(), b"key", timestamp_ms=now_ms + number) for number in range(200)),
    ]


COLUMNS = ["key", "value", "topic", "partition", "offset", "unix_millis(timestamp)", "timestampType", "headers"]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """What a frame with all columns holds, with times as numbers, in order."""
    return sorted((as_tuple(row) for row in frame.selectExpr(*COLUMNS).collect()), key=lambda row: row[2:5])


def as_tuple(row: Row) -> tuple[Any, ...]:
    headers = None if row[7] is None else [(header.key, _bytes(header.value)) for header in row[7]]
    return (_bytes(row[0]), _bytes(row[1]), *row[2:7], headers)


def _bytes(given: bytearray | bytes | None) -> bytes | None:
    return None if given is None else bytes(given)


def expected(records: list[Record]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (
                each.key,
                each.value,
                each.topic,
                each.partition,
                each.offset,
                each.timestamp_ms,
                CREATE_TIME,
                [(name, value) for name, value in each.headers] or None,
            )
            for each in records
        ),
        key=lambda row: row[2:5],
    )


@pytest.fixture
def now_ms() -> int:
    """Near now: brokers delete what is older than a week."""
    return SystemClock().now_ms()


@pytest.fixture
def ten(broker: Broker) -> str:
    """A topic with ten records, one for each minute, the last of them a minute old."""
    topic = broker.topic()
    now_ms = SystemClock().now_ms()
    aged = [NewRecord(str(n).encode(), timestamp_ms=now_ms - (10 - n) * MINUTE_MS) for n in range(10)]
    broker.produce(topic, aged)
    return topic


def test_a_table_is_what_was_produced_byte_for_byte_with_every_codec(
    spark: SparkSession, broker: Broker, now_ms: int
) -> None:
    topics = {codec: broker.topic(2, stem=codec) for codec in CODECS}
    for codec, topic in topics.items():
        for partition in range(2):
            broker.produce(topic, motley(codec, now_ms=now_ms), partition=partition, compression=codec)
    frame = table(spark, broker, subscribe=",".join(topics.values()), includeHeaders=True)
    produced = [record for topic in topics.values() for record in broker.records(topic)]
    assert len(produced) == 5 * 2 * 205
    assert rows(frame) == expected(produced)


def test_a_topic_without_records_is_an_empty_table(spark: SparkSession, broker: Broker) -> None:
    frame = table(spark, broker, subscribe=broker.topic(2))
    assert frame.collect() == []
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_a_table_may_begin_and_end_at_given_offsets(spark: SparkSession, broker: Broker, ten: str) -> None:
    limits = {"startingOffsets": json.dumps({ten: {"0": 2}}), "endingOffsets": json.dumps({ten: {"0": 5}})}
    assert offsets(table(spark, broker, subscribe=ten, **limits)) == [2, 3, 4]


def test_a_table_may_begin_and_end_at_given_times(spark: SparkSession, broker: Broker, ten: str, now_ms: int) -> None:
    limits = {
        "startingTimestamp": now_ms - 7 * MINUTE_MS - MINUTE_MS // 2,
        "endingOffsetsByTimestamp": json.dumps({ten: {"0": now_ms - 4 * MINUTE_MS - MINUTE_MS // 2}}),
    }
    assert offsets(table(spark, broker, subscribe=ten, **limits)) == [3, 4, 5]


def test_an_end_later_than_the_last_record_is_the_end_of_the_topic(
    spark: SparkSession, broker: Broker, ten: str, now_ms: int
) -> None:
    frame = table(spark, broker, subscribe=ten, startingOffsets="-2 records", endingTimestamp=now_ms + MINUTE_MS)
    assert offsets(frame) == [8, 9]


def test_a_table_may_begin_so_many_minutes_ago(spark: SparkSession, broker: Broker, ten: str) -> None:
    assert offsets(table(spark, broker, assign=json.dumps({ten: [0]}), startingOffsets="-150s")) == [8, 9]


def test_an_end_that_is_not_there_yet_is_refused(spark: SparkSession, broker: Broker, ten: str) -> None:
    frame = table(spark, broker, subscribe=ten, endingOffsets=json.dumps({ten: {"0": 50}}))
    with pytest.raises(Exception, match=f"endingOffsets: there is nothing that far yet in {ten}-0"):
        frame.collect()


def test_an_end_that_is_not_there_yet_is_cut_off_for_who_may_lose_records(
    spark: SparkSession, broker: Broker, ten: str
) -> None:
    limits = {"endingOffsets": json.dumps({ten: {"0": 50}}), "startingOffsets": json.dumps({ten: {"0": 8}})}
    assert offsets(table(spark, broker, subscribe=ten, failOnDataLoss=False, **limits)) == [8, 9]


def test_a_pattern_reads_all_topics_that_match(spark: SparkSession, broker: Broker) -> None:
    topics = [broker.topic(stem="by-pattern") for _ in range(2)]
    for topic in topics:
        broker.produce(topic, [topic])
    frame = table(spark, broker, subscribePattern="by-pattern-[0-9]+").selectExpr("CAST(value AS STRING)")
    assert {topics[0], topics[1]} <= {row.value for row in frame.collect()}


def test_deleted_records_fail_a_table_that_begins_before_them(spark: SparkSession, broker: Broker, ten: str) -> None:
    broker.delete_before(ten, 0, offset=4)
    frame = table(spark, broker, subscribe=ten, startingOffsets=json.dumps({ten: {"0": 1}}))
    with pytest.raises(Exception, match=f"(?s)data was lost.*{ten}.*failOnDataLoss"):
        frame.collect()


def test_deleted_records_are_passed_over_by_who_may_lose_records(spark: SparkSession, broker: Broker, ten: str) -> None:
    broker.delete_before(ten, 0, offset=4)
    start = json.dumps({ten: {"0": 1}})
    frame = table(spark, broker, subscribe=ten, startingOffsets=start, failOnDataLoss=False)
    assert offsets(frame) == [4, 5, 6, 7, 8, 9]


def test_aborted_records_are_left_out_for_readers_of_committed_ones(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic()
    broker.produce_in_transaction(topic, ["a", "b"], commit=False)
    broker.produce_in_transaction(topic, ["c"], commit=True)
    # Apache Kafka writes the markers later than it says so; a client that waits for them has seen the end.
    assert broker.values(topic) == [b"c"]
    committed = table(spark, broker, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert [bytes(row.value) for row in committed.collect()] == [b"c"]
    assert table(spark, broker, subscribe=topic).count() == 3


# --- what does not depend on the broker ----------------------------------------------------------


@pytest.fixture
def ours(ottla_broker_process: Broker) -> Broker:
    return ottla_broker_process


def test_only_the_columns_that_are_asked_for_are_read(spark: SparkSession, ours: Broker) -> None:
    topic = ours.topic()
    ours.produce(topic, [NewRecord(b"v", b"k", [("h", b"x")])])
    frame = table(spark, ours, subscribe=topic, columns="offset,headers,value")
    assert frame.columns == ["offset", "headers", "value"]
    assert [(row.offset, row.headers[0].key, bytes(row.value)) for row in frame.collect()] == [(0, "h", b"v")]


def test_a_schema_of_the_user_chooses_the_columns(spark: SparkSession, ours: Broker) -> None:
    topic = ours.topic()
    ours.produce(topic, ["a", "b"])
    frame = spark.read.format("ottla").schema("value binary, offset long").options(**ours.options(subscribe=topic))
    assert [(bytes(row.value), row.offset) for row in frame.load().collect()] == [(b"a", 0), (b"b", 1)]


def test_a_schema_with_a_column_that_topics_do_not_have_is_refused(spark: SparkSession, ours: Broker) -> None:
    frame = spark.read.format("ottla").schema("price double").options(**ours.options(subscribe=ours.topic())).load()
    with pytest.raises(Exception, match="the schema has a column 'price' that a topic does not have"):
        frame.collect()


def test_a_view_in_sql_reads_a_topic(spark: SparkSession, ours: Broker) -> None:
    topic = ours.topic()
    ours.produce(topic, ["one", "two"])
    options = ", ".join(f"`{name}` '{value}'" for name, value in ours.options(subscribe=topic).items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW a_topic USING ottla OPTIONS ({options})")
    found = spark.sql("SELECT CAST(value AS STRING) AS text FROM a_topic ORDER BY offset").collect()
    assert [row.text for row in found] == ["one", "two"]


def test_a_table_has_as_many_tasks_as_it_is_told_to_have_at_least(spark: SparkSession, ours: Broker) -> None:
    topic = ours.topic(2)
    for partition in range(2):
        ours.produce(topic, [str(number) for number in range(50)], partition=partition)
    frame = table(spark, ours, subscribe=topic, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 100


def test_a_large_table_has_as_many_tasks_as_the_session_has_cores(spark: SparkSession, ours: Broker) -> None:
    topic = ours.topic(4)
    for partition in range(4):
        ours.produce(topic, [b"x"] * 10_000, partition=partition)
    frame = table(spark, ours, subscribe=topic)
    assert frame.rdd.getNumPartitions() == 2
    assert frame.count() == 40_000


def test_a_small_table_of_many_partitions_is_one_task(spark: SparkSession, ours: Broker) -> None:
    topic = ours.topic(8)
    for partition in range(8):
        ours.produce(topic, ["a"], partition=partition)
    frame = table(spark, ours, subscribe=topic)
    assert frame.rdd.getNumPartitions() == 1
    assert frame.count() == 8


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "t", "startingOffsets": "sometime"}, "startingOffsets"),
        ({"subscribe": "t", "maxOffsetPerTrigger": "5"}, "Is maxOffsetsPerTrigger meant"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "assign and subscribe"),
        ({"subscribePattern": "(open"}, "subscribePattern"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "endingOffsets"),
        ({}, "nothing says which topics to read"),
    ],
)
def test_a_mistake_in_the_options_shows_when_the_table_is_loaded(
    spark: SparkSession, ours: Broker, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        table(spark, ours, **options)


def test_a_table_that_begins_at_the_end_is_refused(spark: SparkSession, ours: Broker) -> None:
    frame = table(spark, ours, subscribe=ours.topic(), startingOffsets="latest")
    with pytest.raises(Exception, match="startingOffsets"):
        frame.collect()
