"""A query that is held takes up nothing new, so that whoever runs it can stop it where a batch has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.options import read_options
from ottla.spark.planning import OffsetRange
from ottla.spark.stream_reader import OttlaStreamReader
from tests.spark.brokers import Broker
from tests.spark.queries import available_now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


class Held:
    """A reader of a topic with three records, as Spark makes it when a query starts, and the file that holds it."""

    def __init__(self, broker: Broker, hold_file: Path, start: str) -> None:
        self.hold_file = hold_file
        self.topic = broker.topic()
        broker.produce(self.topic, ["a", "b", "c"])
        given = broker.options(subscribe=self.topic, startingOffsets=start, holdFile=hold_file)
        self.reader = OttlaStreamReader(read_options(given, streaming=True), ())


@pytest.fixture
def held(ottla_broker_process: Broker, tmp_path: Path) -> Iterator[Held]:
    made = Held(ottla_broker_process, tmp_path / "hold", "earliest")
    yield made
    made.reader.stop()


@pytest.fixture
def held_from_latest(ottla_broker_process: Broker, tmp_path: Path) -> Iterator[Held]:
    made = Held(ottla_broker_process, tmp_path / "hold", "latest")
    yield made
    made.reader.stop()


def test_a_stream_has_no_news_while_the_file_is_there(held: Held) -> None:
    start = held.reader.initialOffset()
    held.hold_file.touch()

    assert held.reader.latestOffset(start, held.reader.getDefaultReadLimit()) == start


def test_a_stream_goes_on_where_it_was_when_the_file_is_gone(held: Held) -> None:
    start = held.reader.initialOffset()
    held.hold_file.touch()
    held.reader.latestOffset(start, held.reader.getDefaultReadLimit())
    held.hold_file.unlink()

    assert held.reader.latestOffset(start, held.reader.getDefaultReadLimit()) == {held.topic: {"0": 3}}


def test_a_batch_that_is_planned_already_is_read(held: Held) -> None:
    start = held.reader.initialOffset()
    end = held.reader.latestOffset(start, held.reader.getDefaultReadLimit())
    held.hold_file.touch()

    (only,) = held.reader.partitions(start, end)
    assert only.value == (OffsetRange(held.topic, 0, 0, 3),)


def test_a_start_that_moves_is_written_down_all_the_same(held_from_latest: Held) -> None:
    reader = held_from_latest.reader
    held_from_latest.hold_file.touch()
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    assert end[held_from_latest.topic] == {"0": 3}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_an_old_spark_is_told_the_last_end_again(held: Held, ottla_broker_process: Broker) -> None:
    end = held.reader.latestOffset()
    held.hold_file.touch()
    ottla_broker_process.produce(held.topic, ["d"])

    assert held.reader.latestOffset() == end


def test_a_table_is_read_whether_it_is_held_or_not(ottla_broker_process: Broker, tmp_path: Path) -> None:
    given = ottla_broker_process.options(subscribe="any", holdFile=tmp_path)

    assert read_options(given, streaming=False).hold_file is None


def test_a_run_that_is_held_ends_early_and_the_next_reads_the_rest(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    topic, hold_file = ottla_broker_process.topic(), tmp_path / "hold"
    ottla_broker_process.produce(topic, ["a", "b"])
    given = ottla_broker_process.options(subscribe=topic, startingOffsets="earliest", holdFile=hold_file)
    frame = spark.readStream.format("ottla").options(**given).load()
    hold_file.touch()
    held = available_now(frame, tmp_path / "checkpoint")
    hold_file.unlink()
    rest = available_now(frame, tmp_path / "checkpoint")

    assert held == []
    assert [bytes(row.value) for row in rest] == [b"a", b"b"]
