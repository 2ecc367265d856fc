"""What the face that Spark sees answers, called as Spark calls it, with real brokers and without Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.spark.errors import InvalidOption
from ottla.spark.options import read_options
from ottla.spark.planning import OffsetRange
from ottla.spark.stream_reader import OttlaStreamReader
from tests.spark.brokers import Broker

pytestmark = pytest.mark.slow

Reader = Callable[..., OttlaStreamReader]


@pytest.fixture
def reader(broker: Broker) -> Iterator[Reader]:
    """Makes a reader as Spark does when a query starts."""
    made: list[OttlaStreamReader] = []

    def make(topic: str, **options: object) -> OttlaStreamReader:
        made.append(OttlaStreamReader(read_options(broker.options(subscribe=topic, **options), streaming=True), ()))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def topic(broker: Broker) -> str:
    """One with a hundred records in its one partition."""
    name = broker.topic()
    broker.produce(name, [str(number) for number in range(100)])
    return name


def ranges(reader: OttlaStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
    return [each for partition in reader.partitions(start, end) for each in partition.value]


# --- starts that move ----------------------------------------------------------------------------


def test_a_start_that_moves_is_written_down_by_an_empty_batch(topic: str, reader: Reader) -> None:
    query = reader(topic, startingOffsets="-40 records")
    start = query.initialOffset()
    end = query.latestOffset(start, query.getDefaultReadLimit())
    assert ranges(query, start, end) == []
    following = query.latestOffset(end, query.getDefaultReadLimit())
    assert ranges(query, end, following) == [OffsetRange(topic, 0, 60, 100)]


def test_a_written_start_is_the_very_same_as_long_as_nothing_is_new(broker: Broker, reader: Reader) -> None:
    query = reader(broker.topic(), startingOffsets="latest")
    end = query.latestOffset(query.initialOffset(), query.getDefaultReadLimit())
    again = json.loads(json.dumps(end))
    assert json.dumps(query.latestOffset(again, query.getDefaultReadLimit())) == json.dumps(end)


def test_a_written_start_passes_after_a_restart_although_the_start_has_moved(
    broker: Broker, topic: str, reader: Reader
) -> None:
    first = reader(topic, startingOffsets="latest")
    end = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    broker.produce(topic, ["new"])
    again = reader(topic, startingOffsets="latest")
    assert again.partitions(again.initialOffset(), end) == []
    following = again.latestOffset(end, again.getDefaultReadLimit())
    assert ranges(again, end, following) == [OffsetRange(topic, 0, 100, 101)]


def test_a_written_start_stays_empty_when_another_start_is_given(topic: str, reader: Reader) -> None:
    first = reader(topic, startingOffsets="-40 records")
    end = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    again = reader(topic, startingOffsets="earliest")
    assert again.partitions(again.initialOffset(), end) == []


def test_a_first_batch_that_began_elsewhere_is_not_passed_over(topic: str, reader: Reader) -> None:
    query = reader(topic, startingOffsets="latest")
    with pytest.raises(InvalidOption, match=r"startingOffsets: .*first batch that was not finished, up to .*'0': 10"):
        query.partitions(query.initialOffset(), {topic: {"0": 10}})


def test_a_first_batch_that_began_elsewhere_is_passed_over_by_who_may_lose_records(
    topic: str, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    query = reader(topic, startingOffsets="latest", failOnDataLoss=False)
    with caplog.at_level(logging.WARNING):
        assert query.partitions(query.initialOffset(), {topic: {"0": 10}}) == []
    assert "passed over, because failOnDataLoss is false" in caplog.text


def test_a_start_that_moves_must_fit_all_partitions(broker: Broker, reader: Reader) -> None:
    topic = broker.topic(2)
    query = reader(topic, startingOffsets=json.dumps({topic: {"0": -1}}))
    with pytest.raises(InvalidOption, match=f"startingOffsets: it leaves out {topic}-1"):
        query.latestOffset(query.initialOffset(), query.getDefaultReadLimit())


# --- limits --------------------------------------------------------------------------------------


def test_a_query_without_limits_reads_everything(topic: str, reader: Reader) -> None:
    query = reader(topic, startingOffsets="earliest")
    limit = query.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert query.latestOffset(query.initialOffset(), limit) == {topic: {"0": 100}}


def test_a_single_run_keeps_to_no_limit(topic: str, reader: Reader) -> None:
    query = reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    start = query.initialOffset()
    assert query.latestOffset(start, query.getDefaultReadLimit()) == {topic: {"0": 10}}
    assert query.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 100}}


def test_a_single_run_from_a_start_that_moves_says_which_trigger_to_use(
    topic: str, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    query = reader(topic, startingOffsets="-40 records")
    with caplog.at_level(logging.WARNING):
        query.latestOffset(query.initialOffset(), query.getDefaultReadLimit())
        assert caplog.text == ""
        query.latestOffset(query.initialOffset(), ReadAllAvailable())
        query.latestOffset(query.initialOffset(), ReadAllAvailable())
    assert caplog.text.count("availableNow=True") == 1


# --- Spark 4.1, which says neither where it stands nor what is the limit ------------------------------------


@pytest.mark.parametrize("start", ["latest", "earliest", "-50 records", "-10m"])
def test_an_old_spark_goes_on_where_its_checkpoint_is(broker: Broker, topic: str, reader: Reader, start: str) -> None:
    query = reader(topic, startingOffsets=start)
    end = query.latestOffset()
    assert ranges(query, {topic: {"0": 95}}, end) == [OffsetRange(topic, 0, 95, 100)]
    broker.produce(topic, ["new"])
    assert ranges(query, end, query.latestOffset()) == [OffsetRange(topic, 0, 100, 101)]


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("-50 records", 50)])
def test_an_old_spark_reads_a_new_query_from_its_start(topic: str, reader: Reader, start: str, first: int) -> None:
    query = reader(topic, startingOffsets=start)
    end = query.latestOffset()
    assert ranges(query, query.initialOffset(), end) == [OffsetRange(topic, 0, first, 100)]


def test_an_old_spark_that_begins_at_latest_misses_nothing_that_comes_meanwhile(
    broker: Broker, topic: str, reader: Reader
) -> None:
    query = reader(topic, startingOffsets="latest")
    end = query.latestOffset()
    broker.produce(topic, ["new"])
    assert ranges(query, query.initialOffset(), end) == []
    assert ranges(query, end, query.latestOffset()) == [OffsetRange(topic, 0, 100, 101)]


def test_an_old_spark_is_told_once_that_limits_do_nothing(
    topic: str, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    query = reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    with caplog.at_level(logging.WARNING):
        assert query.latestOffset() == query.latestOffset() == {topic: {"0": 100}}
    assert caplog.text.count("maxOffsetsPerTrigger") == 1
