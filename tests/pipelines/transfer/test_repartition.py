"""A topic copied into one with another number of partitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.routing import murmur2_partition
from ottla.client.values import NewRecord
from ottla.pipelines.transfer import positions, repartitioning, topics
from ottla.pipelines.transfer.documents import LocalDirectory
from ottla.pipelines.transfer.errors import TotalsDiffer, TransferRefused
from ottla.pipelines.transfer.journal import Journal
from ottla.pipelines.transfer.repartitioning import Copy
from tests.pipelines.transfer.moves import Died, MortalDirectory, content, nothing, wait
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW_PARTITIONS = 5


def opened(broker: Broker, old: str, new: str, directory: LocalDirectory) -> Journal:
    admin = broker.client.admin()
    topic = topics.existing(admin, old)
    return repartitioning.opened(
        admin, topic, new, directory, partition_count=NEW_PARTITIONS, by="key", isolation="read_committed"
    )


def copy(spark: SparkSession, broker: Broker, old: str, new: str, directory: LocalDirectory) -> Copy:
    """Copy all that there is."""
    journal = opened(broker, old, new, directory)
    at_work = Copy(spark, broker.bootstrap, broker.client.admin(), journal, directory, wait=wait)
    at_work.finish_step()
    at_work.round(at_work.behind(), records_per_step=120, advance=nothing)
    return at_work


def numbered(first: int, count: int) -> list[NewRecord]:
    """Records of 17 keys, and now and then one without; their values count up."""
    return [
        NewRecord(b"%d" % n, None if n % 20 == 19 else b"key-%d" % (n % 17), [("n", b"%d" % n)])
        for n in range(first, first + count)
    ]


def test_every_record_is_copied_once_in_the_order_of_its_key_and_the_map_says_where_to(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    old = broker.topic(3)
    new, directory = f"{old}-new", MortalDirectory(tmp_path / "map")
    broker.produce(old, numbered(0, 200), compression="lz4")
    broker.produce_in_transaction(old, [b"aborted"] * 30, commit=False)
    # The second step is in the new topic when it dies, and not noted.
    directory.writes_left = 4
    with pytest.raises(Died):
        copy(spark, broker, old, new, directory)
    broker.produce(old, numbered(200, 100))
    done = copy(spark, broker, old, new, LocalDirectory(tmp_path / "map"))
    assert not done.behind()
    before, after = broker.records(old), broker.records(new)
    assert sorted(map(repr, map(content, after))) == sorted(map(repr, map(content, before)))
    for key in {record.key for record in before} - {None}:
        told = [record for record in after if record.key == key]
        assert {record.partition for record in told} == {murmur2_partition(key or b"", NEW_PARTITIONS)}
        numbers = [int(record.value or b"") for record in told]
        assert numbers == sorted(numbers)

    offset_map = repartitioning.offset_map(spark, directory)
    places = {(row[0], row[1]): (row[2], row[3]) for row in offset_map.collect()}
    assert len(places) == offset_map.count() == len(before) == done.journal.rows
    values = {(record.partition, record.offset): record.value for record in after}
    assert {values[places[record.partition, record.offset]] for record in before} == set(values.values())
    for record in before:
        assert values[places[record.partition, record.offset]] == record.value

    # A group that has read some of one partition, all of the second, and nothing of the third.
    read_to = {0: before[len(before) // 6].offset, 1: broker.ends(old)[1]}
    admin, group = broker.client.admin(), f"readers of {old}"
    admin.alter_group_offsets(group, {(old, partition): offset for partition, offset in read_to.items()})
    assert positions.groups_of(admin, old) == [group]
    move = positions.move_group(admin, offset_map, group, old=old, new=new, new_ends=broker.ends(new))
    assert positions.committed(admin, group, new) == move.offsets
    unread = {record.value for record in before if record.offset >= read_to.get(record.partition, 0)}
    ahead = {record.value for record in after if record.offset >= move.offsets[record.partition]}
    assert unread <= ahead
    assert move.repeated == len(ahead) - len(unread)
    assert move.repeated < len(before) - len(unread)


def test_what_both_topics_lose_between_a_step_and_its_map_is_in_the_map_all_the_same(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    """Retention and compaction do not wait for us; a map that is one record off would put groups in wrong places."""
    broker = ottla_broker_process
    old = broker.topic(1)
    new, directory = f"{old}-new", MortalDirectory(tmp_path / "map")
    broker.produce(old, numbered(0, 80))
    before = broker.records(old)
    # All is in the new topic when it dies, and nothing of it in the map.
    directory.writes_left = 2
    with pytest.raises(Died):
        copy(spark, broker, old, new, directory)
    after = broker.records(new)
    broker.delete_before(old, 0, offset=50)
    broker.delete_before(new, after[0].partition, offset=after[0].offset + 1)
    # More than one marker behind the last record, as a broker leaves that was killed while it wrote them.
    broker.produce_in_transaction(new, ["aborted"], commit=False, partition=after[-1].partition)

    done = copy(spark, broker, old, new, LocalDirectory(tmp_path / "map"))

    assert (done.journal.rows, done.behind()) == (len(before), ())
    values = {(record.partition, record.offset): record.value for record in after}
    places = {row[1]: (row[2], row[3]) for row in repartitioning.offset_map(spark, directory).collect()}
    assert {record.offset: record.value for record in before} == {
        offset: values[place] for offset, place in places.items()
    }


def test_somebody_else_who_writes_to_the_new_topic_is_noticed(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    old = broker.topic(1)
    new, directory = f"{old}-new", MortalDirectory(tmp_path / "map")
    broker.produce(old, numbered(0, 40))
    directory.writes_left = 2
    with pytest.raises(Died):
        copy(spark, broker, old, new, directory)
    broker.produce(new, ["not a copy"], partition=0)

    with pytest.raises(TotalsDiffer, match="somebody else writes to the new topic"):
        copy(spark, broker, old, new, LocalDirectory(tmp_path / "map"))


def test_a_group_is_not_put_on_what_the_new_topic_has_lost(spark: SparkSession, ottla_broker_process: Broker) -> None:
    broker = ottla_broker_process
    admin, old, new = broker.client.admin(), broker.topic(1), broker.topic(1)
    broker.produce(new, numbered(0, 5))
    broker.delete_before(new, 0, offset=3)
    group = f"readers of {old}"
    admin.alter_group_offsets(group, {(old, 0): 1})
    places = spark.createDataFrame([(0, n, 0, n, 0) for n in range(5)], repartitioning.MAP_SCHEMA)

    move = positions.move_group(admin, places, group, old=old, new=new, new_ends=broker.ends(new))

    assert move.offsets == positions.committed(admin, group, new) == {0: 3}


def test_a_topic_that_is_there_already_is_not_written_to(ottla_broker_process: Broker, tmp_path: Path) -> None:
    broker = ottla_broker_process
    old, new = broker.topic(1), broker.topic(NEW_PARTITIONS)
    broker.produce(new, ["mine"])
    with pytest.raises(TransferRefused, match="is there already"):
        opened(broker, old, new, LocalDirectory(tmp_path / "map"))


def test_a_new_topic_that_was_deleted_meanwhile_is_noticed(ottla_broker_process: Broker, tmp_path: Path) -> None:
    broker = ottla_broker_process
    old = broker.topic(1)
    opened(broker, old, f"{old}-new", LocalDirectory(tmp_path / "map"))
    broker.client.admin().delete_topic(f"{old}-new")
    with pytest.raises(TransferRefused, match="was deleted"):
        opened(broker, old, f"{old}-new", LocalDirectory(tmp_path / "map"))
