"""Small batches that are read while they are planned, with real brokers and without Spark; last, with Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.values import TopicPartition
from ottla.spark.options import read_options
from ottla.spark.planning import OffsetRange
from ottla.spark.prefetching import BYTES_MAX, RECORDS_MAX, Prefetcher, is_small
from ottla.spark.stream_reader import OttlaStreamReader
from tests.spark.brokers import Broker
from tests.spark.queries import batches_now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("value", "offset")
KEY = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("size", "weights", "expected"),
    [
        (RECORDS_MAX, {KEY: 10.0}, True),
        (RECORDS_MAX + 1, {KEY: 10.0}, False),
        (10, {KEY: BYTES_MAX / 10}, True),
        (10, {KEY: BYTES_MAX / 9}, False),
        (10, {}, False),
        (0, {KEY: 10.0}, False),
    ],
)
def test_a_batch_is_small_by_records_and_by_bytes(
    size: int, weights: dict[TopicPartition, float], expected: bool
) -> None:
    assert is_small([OffsetRange("t", 0, 5, 5 + size)], weights) is expected


@pytest.fixture
def prefetcher(broker: Broker) -> Iterator[Callable[[str], Prefetcher]]:
    """Makes one for a topic."""
    made: list[Prefetcher] = []

    def make(topic: str) -> Prefetcher:
        made.append(Prefetcher(read_options(broker.options(subscribe=topic), streaming=True), COLUMNS))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.slow
def test_rows_are_those_of_the_ranges_that_were_begun(broker: Broker, prefetcher: Callable[[str], Prefetcher]) -> None:
    topic = broker.topic()
    broker.produce(topic, [str(number) for number in range(20)])
    ahead, wanted = prefetcher(topic), [OffsetRange(topic, 0, 3, 7)]
    ahead.begin(wanted, {TopicPartition(topic, 0): 10.0})
    rows = ahead.rows(wanted)
    assert rows is not None
    assert [row for batch in rows for row in batch.to_pylist()] == [
        {"value": str(number).encode(), "offset": number} for number in range(3, 7)
    ]
    assert ahead.rows(wanted) is None, "they are given out once"


@pytest.mark.slow
def test_other_ranges_than_those_begun_are_left_to_a_task(
    broker: Broker, prefetcher: Callable[[str], Prefetcher]
) -> None:
    topic = broker.topic()
    broker.produce(topic, ["a", "b"])
    ahead = prefetcher(topic)
    ahead.begin([OffsetRange(topic, 0, 0, 1)], {TopicPartition(topic, 0): 10.0})
    assert ahead.rows([OffsetRange(topic, 0, 0, 2)]) is None


@pytest.mark.slow
def test_what_cannot_be_read_at_once_is_left_to_a_task(broker: Broker, prefetcher: Callable[[str], Prefetcher]) -> None:
    topic = broker.topic()
    broker.produce(topic, ["a", "b"])
    ahead, beyond = prefetcher(topic), [OffsetRange(topic, 0, 0, 5)]
    ahead.begin(beyond, {TopicPartition(topic, 0): 10.0})
    assert ahead.rows(beyond) is None


@pytest.mark.slow
def test_a_reader_has_rows_to_send_along_only_while_spark_asks_for_them(broker: Broker) -> None:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    topic = broker.topic()
    broker.produce(topic, [str(number) for number in range(30)])
    options = broker.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    reader = OttlaStreamReader(read_options(options, streaming=True), COLUMNS)
    try:
        sent = [_planned(reader) for _ in range(3)]
        assert not isinstance(reader, _SimpleStreamReaderWrapper)
        # The first batch is where records are weighed, so it is read by a task.
        assert sent == [None, list(range(10, 20)), list(range(20, 30))]
        assert reader.reportLatestOffset() == {topic: {"0": 30}}
    finally:
        reader.stop()


def _planned(reader: OttlaStreamReader) -> list[int] | None:
    """Plan the next batch as Spark's worker does; the offsets of the rows that went along, None without any."""
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    start: dict[str, Any] = getattr(reader, "_stands_at", None) or reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert len(reader.partitions(start, end)) == 1
    reader.__dict__["_stands_at"] = end
    if not isinstance(reader, _SimpleStreamReaderWrapper):
        return None
    rows: Any = reader.getCache(start, end)
    assert rows is not None
    return [row["offset"] for batch in rows for row in batch.to_pylist()]


@pytest.mark.slow
def test_small_batches_of_a_stream_hold_what_was_produced(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(2)
    texts = [f"{number:04}" for number in range(400)]
    broker.produce(topic, texts[:200], partition=0)
    broker.produce(topic, texts[200:], partition=1, compression="gzip")
    frame = (
        spark.readStream.format("ottla")
        .options(**broker.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=50))
        .load()
    )
    batches = batches_now(frame, tmp_path)
    assert [len(rows) for _, rows in sorted(batches.items())] == [50] * 8
    assert sorted(bytes(row.value).decode() for rows in batches.values() for row in rows) == texts
