"""Topics as streams, on a real Spark: `spark.readStream.format("ottla")`."""

from __future__ import annotations

import json
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from ottla.client.values import NewRecord, TopicPartition
from ottla.clock import SystemClock
from ottla.spark.options import read_options
from ottla.spark.stream_reader import moves
from tests.spark.brokers import Broker
from tests.spark.queries import available_now, batches_now
from tests.spark.test_source_batch import CODECS, COLUMNS, as_tuple, expected, motley
from tests.spark.test_stream_progress import made_anew

with warnings.catch_warnings():
    # Its way to read its own files is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


def stream(spark: SparkSession, broker: Broker, **options: object) -> DataFrame:
    chosen = {"startingOffsets": "earliest", **options}
    return spark.readStream.format("ottla").options(**broker.options(**chosen)).load()


def texts(rows: list[Row]) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows)


def test_a_stream_is_what_was_produced_byte_for_byte_with_every_codec(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    now_ms = SystemClock().now_ms()
    topics = {codec: broker.topic(2, stem=codec) for codec in CODECS}
    for codec, topic in topics.items():
        broker.produce(topic, motley(codec, now_ms=now_ms), partition=1, compression=codec)
    frame = stream(spark, broker, subscribe=",".join(topics.values()), includeHeaders=True, maxOffsetsPerTrigger=600)
    read = available_now(frame.selectExpr(*COLUMNS), tmp_path)
    produced = [record for topic in topics.values() for record in broker.records(topic)]
    assert sorted(map(as_tuple, read), key=lambda row: row[2:5]) == expected(produced)


def test_a_stream_that_is_started_again_goes_on_where_it_was(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    broker.produce(topic, ["a", "b", "c"])
    assert texts(available_now(stream(spark, broker, subscribe=topic), tmp_path)) == ["a", "b", "c"]
    broker.produce(topic, ["d", "e"])
    assert texts(available_now(stream(spark, broker, subscribe=topic), tmp_path)) == ["d", "e"]


def test_a_stream_from_latest_keeps_its_start_although_there_was_nothing_to_read(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic()
    broker.produce(topic, ["before"])
    frame = stream(spark, broker, subscribe=topic, startingOffsets="latest")
    assert available_now(frame, tmp_path) == []
    broker.produce(topic, ["after"])
    assert texts(available_now(frame, tmp_path)) == ["after"]


def test_batches_keep_to_their_number_of_records_and_read_everything_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    numbers = [f"{number:03}" for number in range(100)]
    broker.produce(topic, numbers[:60], partition=0)
    broker.produce(topic, numbers[60:], partition=1)
    batches = batches_now(stream(spark, broker, subscribe=topic, maxOffsetsPerTrigger=40), tmp_path)
    assert all(len(rows) <= 40 for rows in batches.values())
    assert texts([row for rows in batches.values() for row in rows]) == numbers


def test_new_partitions_and_new_topics_are_read_from_their_beginning(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1, stem="growing")
    frame = stream(spark, broker, subscribePattern=f"{topic}.*", startingOffsets="latest")
    assert available_now(frame, tmp_path) == []
    broker.client.admin().add_partitions(topic, new_total=2)
    broker.produce(topic, ["new partition"], partition=1)
    broker.produce(broker.topic(stem=topic), ["new topic"])
    assert texts(available_now(frame, tmp_path)) == ["new partition", "new topic"]


def test_a_checkpoint_as_sparks_own_connector_writes_it_is_resumed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    broker.produce(topic, ["0", "1", "2", "3"], partition=0)
    broker.produce(topic, ["x", "y"], partition=1)
    write_checkpoint(tmp_path, {topic: {"0": 3, "1": 1}})
    assert texts(available_now(stream(spark, broker, subscribe=topic), tmp_path)) == ["3", "y"]


def write_checkpoint(directory: Path, offsets: dict[str, dict[str, int]]) -> None:
    """The checkpoint of a query whose only batch is done."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir()
    (directory / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    state = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": SystemClock().now_ms(), "conf": {}})
    (directory / "offsets" / "0").write_text(f"v1\n{state}\n{json.dumps(offsets)}")
    (directory / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_records_deleted_under_the_reader_fail_the_stream(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic()
    write_checkpoint(tmp_path, {topic: {"0": 1}})
    broker.produce(topic, ["0", "1", "2", "3", "4"])
    broker.delete_before(topic, 0, offset=3)
    with pytest.raises(Exception, match=f"(?s)data was lost.*{topic}.*failOnDataLoss"):
        available_now(stream(spark, broker, subscribe=topic), tmp_path)


def test_records_deleted_under_the_reader_are_passed_over_by_who_may_lose_records(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic()
    write_checkpoint(tmp_path, {topic: {"0": 1}})
    broker.produce(topic, ["0", "1", "2", "3", "4"])
    broker.delete_before(topic, 0, offset=3)
    frame = stream(spark, broker, subscribe=topic, failOnDataLoss=False)
    assert texts(available_now(frame, tmp_path)) == ["3", "4"]


def test_a_topic_made_anew_under_the_reader_fails_the_stream(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic()
    write_checkpoint(tmp_path, {topic: {"0": 3}})
    broker.produce(topic, ["new"])
    with pytest.raises(Exception, match=f"(?s)data was lost: {topic}-0 offsets 1 to 2 .*failOnDataLoss"):
        available_now(stream(spark, broker, subscribe=topic), tmp_path)


def test_a_topic_made_anew_under_the_reader_is_read_as_a_whole_by_who_may_lose_records(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic()
    broker.produce(topic, ["old"] * 3)
    frame = stream(spark, broker, subscribe=topic, failOnDataLoss=False)
    assert len(available_now(frame, tmp_path)) == 3
    made_anew(broker, topic)
    broker.produce(topic, ["new"])
    assert texts(available_now(frame, tmp_path)) == ["new"]


def test_the_lag_of_a_stream_with_a_group_shows_in_other_tools(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic()
    group = f"spark-{topic}"
    broker.produce(topic, ["a", "b", "c"])
    available_now(stream(spark, broker, subscribe=topic, **{"kafka.group.id": group}), tmp_path)
    broker.produce(topic, ["d"])
    lag = broker.client.admin().group_lag(group)
    assert {key: each.lag for key, each in lag.items()} == {TopicPartition(topic, 0): 1}
    assert kafka_python_offsets(broker, group) == {(topic, 0): 3}


def kafka_python_offsets(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    """What another client has to say about a group."""
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        found = admin.list_group_offsets(group)[group]
        return {(key.topic, key.partition): each.offset for key, each in found.items()}


@pytest.mark.parametrize(
    ("options", "expected_moves"),
    [
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": "latest"}, True),
        ({"startingOffsets": "-10m"}, True),
        ({"startingOffsets": "-10 records"}, True),
        ({"startingOffsets": '{"t":{"0":5,"1":-2}}'}, False),
        ({"startingOffsets": '{"t":{"0":5,"1":-1}}'}, True),
        ({"startingTimestamp": "1"}, False),
        ({"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"}, True),
    ],
)
def test_a_start_that_may_move_is_known_as_such(options: dict[str, str], expected_moves: bool) -> None:
    given = {"kafka.bootstrap.servers": "host:9092", "subscribe": "t", **options}
    assert moves(read_options(given, streaming=True).start) is expected_moves


# --- what does not depend on the broker ----------------------------------------------------------


@pytest.fixture
def ours(ottla_broker_process: Broker) -> Broker:
    return ottla_broker_process


def test_a_stream_that_runs_reads_what_comes(spark: SparkSession, ours: Broker, tmp_path: Path) -> None:
    topic = ours.topic()
    seen: list[str] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(texts(batch.collect()))

    frame = stream(spark, ours, subscribe=topic, startingOffsets="latest")
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    for text in ("a", "b"):
        ours.produce(topic, [text])
        query.processAllAvailable()
    progress = query.lastProgress
    query.stop()
    assert seen == ["a", "b"]
    assert progress is not None
    assert json.loads(str(progress["sources"][0]["latestOffset"]).replace("'", '"')) == {topic: {"0": 2}}


def test_a_stream_outlives_a_broker_that_is_killed_and_comes_back(
    spark: SparkSession, own_ottla: Broker, tmp_path: Path
) -> None:
    topic = own_ottla.topic()
    seen: list[str] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(texts(batch.collect()))

    frame = stream(spark, own_ottla, subscribe=topic)
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)).start()
    own_ottla.produce(topic, ["before"])
    query.processAllAvailable()
    assert own_ottla.server is not None
    own_ottla.server.kill()
    own_ottla.server.start()
    own_ottla.produce(topic, ["after"])
    query.processAllAvailable()
    query.stop()
    assert seen == ["before", "after"]


def test_a_first_batch_that_failed_is_read_again_although_the_stream_began_at_latest(
    spark: SparkSession, ours: Broker, tmp_path: Path
) -> None:
    topic = ours.topic()
    frame = stream(spark, ours, subscribe=topic, startingOffsets="latest")

    def fail(batch: DataFrame, _: int) -> None:
        if batch.count():
            raise RuntimeError("a sink that does not work")

    query = frame.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    ours.produce(topic, ["a", "b"])
    with pytest.raises(Exception, match="a sink that does not work"):
        query.awaitTermination(60)
    ours.produce(topic, ["c"])
    assert texts(available_now(frame, tmp_path)) == ["a", "b", "c"]


def test_a_stream_may_have_fewer_columns(spark: SparkSession, ours: Broker, tmp_path: Path) -> None:
    topic = ours.topic()
    ours.produce(topic, [NewRecord(b"v", b"k")])
    read = available_now(stream(spark, ours, subscribe=topic, columns="offset,key"), tmp_path)
    assert [row.asDict() for row in read] == [{"offset": 0, "key": bytearray(b"k")}]


def test_a_topic_that_is_not_there_is_named_when_the_stream_starts(
    spark: SparkSession, ours: Broker, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="subscribe: there is no topic 'nowhere'"):
        available_now(stream(spark, ours, subscribe="nowhere"), tmp_path)


def test_an_end_is_refused_for_a_stream(spark: SparkSession, ours: Broker, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="endingOffsets"):
        available_now(stream(spark, ours, subscribe=ours.topic(), endingOffsets="latest"), tmp_path)


def test_a_query_of_two_streams_reads_both(spark: SparkSession, ours: Broker, tmp_path: Path) -> None:
    topics = [ours.topic(), ours.topic()]
    for topic in topics:
        ours.produce(topic, [topic])
    one, other = (stream(spark, ours, subscribe=topic) for topic in topics)
    assert texts(available_now(one.union(other), tmp_path)) == sorted(topics)
