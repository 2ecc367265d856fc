"""Topics out to Parquet and back in: every record once, as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.transfer import importing, topics
from ottla.pipelines.transfer.documents import HadoopDirectory, LocalDirectory
from ottla.pipelines.transfer.errors import TotalsDiffer, TransferRefused
from ottla.pipelines.transfer.importing import Mapping
from ottla.pipelines.transfer.manifest import PARTIAL
from tests.pipelines.transfer.moves import Died, MortalDirectory, begin, dying, export, fill, import_, placed
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_topic_comes_back_as_it_was_and_only_once(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    # A name that Spark would take for a pattern.
    place = tmp_path / "export [2026]*"
    topic, directory = fill(broker), LocalDirectory(place)
    records = broker.records(topic)
    made = export(spark, broker, topic, directory)
    assert len(made.steps) > 2
    back = broker.topic(3)
    found = importing.export_in(directory, force=False)
    assert found == made
    importing.verify(spark, found, directory)
    assert import_(spark, broker, found, directory, back) == (len(records), 0)
    assert list(map(placed, broker.records(back))) == list(map(placed, records))
    # Once more: it is there already.
    assert import_(spark, broker, found, directory, back) == (0, len(records))
    assert len(broker.records(back)) == len(records)
    # A file less, and nothing is imported.
    next(place.glob("partition=1/**/*.parquet")).unlink()
    with pytest.raises(TotalsDiffer, match="partition 1 does not hold"):
        importing.verify(spark, found, directory)


def test_what_was_interrupted_goes_on_and_nothing_is_there_twice(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    topic, directory = fill(broker), MortalDirectory(tmp_path / "export")
    # The plan and the first step are noted; the second one is written, and then it dies.
    directory.writes_left = 2
    with pytest.raises(Died):
        export(spark, broker, topic, directory)
    with pytest.raises(TransferRefused, match="not whole: 1 of"):
        importing.export_in(directory, force=False)
    forced = importing.export_in(directory, force=True)
    assert forced is not None
    assert len(forced.steps) == 1
    made = export(spark, broker, topic, LocalDirectory(tmp_path / "export"))
    assert made.rows == len(broker.records(topic))
    assert directory.read(PARTIAL) is None

    back = broker.topic(3)
    with pytest.raises(Died):
        import_(spark, broker, made, directory, back, advance=dying(2))
    first = len(broker.records(back))
    assert 0 < first < made.rows
    assert import_(spark, broker, made, directory, back) == (made.rows - first, first)
    assert list(map(placed, broker.records(back))) == list(map(placed, broker.records(topic)))


def test_any_table_becomes_records_once(spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path) -> None:
    broker = ottla_broker_process
    admin, topic = broker.client.admin(), broker.topic(2)
    directory = LocalDirectory(tmp_path / "table {1}")
    rows = [(n % 3, f"name {n}", n) for n in range(30)]
    spark.createDataFrame(rows, "id INT, name STRING, n INT").repartition(3).write.parquet(directory.url)
    mapping = Mapping(key="id", value="name", order="n")
    for expected in ((30, 0), (0, 30)):
        target = topics.existing(admin, topic)
        done = importing.import_table(spark, broker.bootstrap, admin, directory, target, mapping, name="")
        assert done == expected
    found = [(record.key, record.value) for record in broker.records(topic)]
    for key in range(3):
        told = [value for each, value in found if each == str(key).encode()]
        assert told == [name.encode() for each, name, _ in rows if each == key]


def test_documents_are_kept_wherever_spark_can_write(spark: SparkSession, tmp_path: Path) -> None:
    directory = HadoopDirectory(f"file://{tmp_path}/far", spark)
    assert directory.is_empty()
    directory.write("name", b"first")
    directory.write("name", bytes(range(256)))
    assert (directory.read("name"), directory.read("other")) == (bytes(range(256)), None)
    assert not directory.is_empty()
    directory.remove("name")
    assert directory.read("name") is None
    directory.write("below/name", b"first")
    directory.remove_all("below")
    directory.remove_all("below")
    assert directory.read("below/name") is None


def test_a_topic_that_gives_records_its_own_times_is_known(ottla_broker_process: Broker) -> None:
    broker = ottla_broker_process
    plain, stamping = broker.topic(1), broker.topic(1, configs={"message.timestamp.type": "LogAppendTime"})

    assert [topics.stamps_arrival(broker.client.admin(), topic) for topic in (plain, stamping)] == [False, True]


def test_a_directory_that_holds_something_is_not_exported_into(ottla_broker_process: Broker, tmp_path: Path) -> None:
    topic = ottla_broker_process.topic(1)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(TransferRefused, match="there is something in it"):
        begin(ottla_broker_process, topic, LocalDirectory(tmp_path))


def test_an_export_of_another_topic_is_not_gone_on_with(ottla_broker_process: Broker, tmp_path: Path) -> None:
    broker = ottla_broker_process
    topic, other = broker.topic(1), broker.topic(1)
    begin(broker, topic, LocalDirectory(tmp_path / "export"))
    with pytest.raises(TransferRefused, match=f"of topic '{topic}'"):
        begin(broker, other, LocalDirectory(tmp_path / "export"))
