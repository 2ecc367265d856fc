"""Reading a snapshot: the same records in the same order every time, and what is gone does not go unnoticed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.errors import ClientClosed, InvalidSetting, RequestTimedOut, TopicNotFound
from ottla.client.snapshot_reading import LostRange
from ottla.client.snapshots import Snapshot, SnapshotUnreadable
from ottla.client.transport import Call, Reply
from ottla.client.values import NewRecord, Record
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.as_of.load import under_load
from tests.client.conftest import client_of
from tests.client.scripted_broker import ScriptedCluster


@pytest.fixture
def orders(embedded: Client) -> str:
    """A topic of three partitions with ten records each."""
    embedded.admin().create_topic("orders", partitions=3)
    with embedded.producer() as producer:
        producer.send_batch("orders", [NewRecord(b"%d" % n, partition=n % 3) for n in range(30)])
    return "orders"


def places(records: list[Record]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


@pytest.mark.slow
def test_a_snapshot_is_read_the_same_twice_under_load(address: str) -> None:
    def connect() -> Client:
        return ottla.connect(address)

    with connect() as client:
        client.admin().create_topic("busy", partitions=3)
        with under_load(connect, "busy", partitions=3) as load:
            taken = client.snapshot("busy")
            first = list(client.read_snapshot(taken))
            load.wait_for_more(6)
            second = list(client.read_snapshot(Snapshot.from_json(taken.to_json())))
            grown = client.snapshot("busy")

    assert len(first) == sum(taken.ends.values()) > 0
    assert first == second
    assert sum(grown.ends.values()) > sum(taken.ends.values())


@pytest.mark.slow
def test_a_time_is_read_the_same_twice_under_load(address: str) -> None:
    def connect() -> Client:
        return ottla.connect(address)

    with connect() as client:
        client.admin().create_topic("times", partitions=2)
        with under_load(connect, "times", partitions=2) as load:
            newest = list(client.records_as_of("times"))[-1].timestamp_ms
            # From here on every partition has a record that is not older.
            load.wait_for_more(4)
            first = list(client.records_as_of("times", newest))
            load.wait_for_more(4)
            second = list(client.records_as_of("times", newest))

    assert first == second
    assert all(record.timestamp_ms < newest for record in first)


def test_records_come_by_partition_and_offset(embedded: Client, orders: str) -> None:
    records = list(embedded.records_as_of(orders))

    assert places(records) == [(partition, offset) for partition in range(3) for offset in range(10)]


def test_reading_stops_inside_a_batch(embedded: Client, orders: str) -> None:
    records = list(embedded.records_as_of(orders, {(orders, 0): 4, (orders, 2): 0}))

    assert places(records) == [(0, offset) for offset in range(4)]


def test_reading_may_begin_elsewhere(embedded: Client, orders: str) -> None:
    taken = embedded.snapshot(orders)

    records = list(embedded.read_snapshot(taken, starts={(orders, 0): 8, (orders, 1): 10, (orders, 2): 99}))

    assert places(records) == [(0, 8), (0, 9)]


def test_partitions_that_are_added_later_are_not_part_of_it(embedded: Client, orders: str) -> None:
    taken = embedded.snapshot(orders)
    embedded.admin().add_partitions(orders, new_total=5)
    with embedded.producer() as producer:
        producer.send_to(orders, 4, b"new")

    assert {record.partition for record in embedded.read_snapshot(taken)} == {0, 1, 2}


def test_a_snapshot_of_an_empty_topic_has_no_records(embedded: Client) -> None:
    embedded.admin().create_topic("empty", partitions=2)

    assert list(embedded.records_as_of("empty")) == []


def test_several_topics_are_one_snapshot(embedded: Client, orders: str) -> None:
    embedded.admin().create_topic("more")
    with embedded.producer() as producer:
        producer.send("more", b"1")

    taken = embedded.snapshot([orders, "more"])

    assert [record.topic for record in embedded.read_snapshot(taken)] == ["more"] + [orders] * 30


def test_a_topic_that_was_made_anew_is_another_one(embedded: Client, orders: str) -> None:
    taken = embedded.snapshot(orders)
    embedded.admin().delete_topic(orders)
    embedded.admin().create_topic(orders, partitions=3)
    with embedded.producer() as producer:
        producer.send_batch(orders, [NewRecord(b"other", partition=n % 3) for n in range(60)])

    with pytest.raises(SnapshotUnreadable, match="made anew"):
        embedded.read_snapshot(taken)
    with pytest.raises(SnapshotUnreadable, match="made anew"):
        embedded.snapshot(as_of=taken.to_json(pinned=True))


def test_a_topic_that_is_gone_is_told_so(embedded: Client, orders: str) -> None:
    taken = embedded.snapshot(orders)
    embedded.admin().delete_topic(orders)

    with pytest.raises(TopicNotFound):
        embedded.read_snapshot(taken)


def test_records_that_were_deleted_since_are_warned_of(
    embedded: Client, orders: str, caplog: pytest.LogCaptureFixture
) -> None:
    taken = embedded.snapshot(orders)
    embedded.admin().delete_records({(orders, 1): 6})

    with caplog.at_level(logging.WARNING):
        reader = embedded.read_snapshot(taken)

    assert reader.lost == [LostRange(orders, 1, 0, 6)]
    assert "orders-1: records of the snapshot are deleted (offsets 0 to 5)" in caplog.text
    assert len(list(reader)) == 24


def test_records_that_were_deleted_since_may_be_an_error(embedded: Client, orders: str) -> None:
    taken = embedded.snapshot(orders)
    embedded.admin().delete_records({(orders, 1): 6})

    with pytest.raises(SnapshotUnreadable, match="offsets 0 to 5"):
        embedded.read_snapshot(taken, missing="error")


def test_what_was_deleted_before_the_snapshot_is_not_missing(embedded: Client, orders: str) -> None:
    embedded.admin().delete_records({(orders, 1): 6})

    reader = embedded.read_snapshot(embedded.snapshot(orders), missing="error")

    assert len(list(reader)) == 24


def test_the_pinned_text_tells_another_program_what_is_missing(embedded: Client, orders: str) -> None:
    text = embedded.snapshot(orders).to_json(pinned=True)
    embedded.admin().delete_records({(orders, 2): 3})

    reader = embedded.read_snapshot(Snapshot.from_json(text), missing="ignore")

    assert reader.lost == [LostRange(orders, 2, 0, 3)]


def test_plain_offsets_that_are_gone_altogether_are_missing(embedded: Client, orders: str) -> None:
    taken = Snapshot.from_json(json.dumps({orders: {"0": 4}}))
    embedded.admin().delete_records({(orders, 0): 7})

    reader = embedded.read_snapshot(taken, missing="ignore")

    assert (reader.lost, list(reader)) == ([LostRange(orders, 0, None, 4)], [])


@pytest.mark.slow
def test_aborted_records_are_part_of_what_is_read_uncommitted_only(embedded: Client, orders: str) -> None:
    with embedded.producer(transactional_id="t") as producer:
        producer.begin()
        producer.send_to(orders, 0, b"aborted")
        producer.abort()
        producer.begin()
        producer.send_to(orders, 0, b"kept")
        producer.commit()

    committed = list(embedded.records_as_of(orders, isolation="read_committed"))
    all_of_it = list(embedded.records_as_of(orders))

    assert [record.value for record in committed if record.offset >= 10] == [b"kept"]
    assert [record.value for record in all_of_it if record.offset >= 10] == [b"aborted", b"kept"]


def test_settings_of_other_consumers_are_refused(embedded: Client, orders: str) -> None:
    taken = embedded.snapshot(orders)

    with pytest.raises(InvalidSetting, match="not read with group"):
        embedded.read_snapshot(taken, group="g")
    with pytest.raises(InvalidSetting, match='is "warn", "error" or "ignore"'):
        embedded.read_snapshot(taken, missing="panic")  # type: ignore[arg-type]


def test_a_reader_that_is_closed_reads_no_more(embedded: Client, orders: str) -> None:
    reader = embedded.read_snapshot(embedded.snapshot(orders))
    reader.poll(1_000, records_max=1)
    reader.close()

    with pytest.raises(ClientClosed):
        reader.poll()


def test_a_loop_that_is_left_lets_go_of_the_connections(embedded: Client, orders: str) -> None:
    reader = embedded.read_snapshot(embedded.snapshot(orders))

    for _ in reader:
        break

    assert reader.is_closed


def test_the_async_client_reads_the_same(tmp_path: Path) -> None:
    async def story() -> tuple[list[Record], list[Record], str]:
        async with ottla.open_async(tmp_path / "data") as client:
            await client.admin().create_topic("orders", partitions=2)
            async with client.producer() as producer:
                await producer.send_batch("orders", [NewRecord(b"%d" % n, partition=n % 2) for n in range(10)])
                taken = await client.snapshot("orders")
                await producer.send_batch("orders", [NewRecord(b"later", partition=n % 2) for n in range(10)])
            first = [record async for record in client.read_snapshot(taken)]
            second = [record async for record in await client.records_as_of("orders", taken)]
            return first, second, taken.to_json()

    first, second, text = asyncio.run(story())
    assert text == '{"orders":{"0":5,"1":5}}'
    assert places(first) == [(partition, offset) for partition in range(2) for offset in range(5)]
    assert first == second


# --- what happens while it is read, on a scripted cluster -------------------------------------------------------


@pytest.fixture
def cluster() -> ScriptedCluster:
    made = ScriptedCluster()
    made.create("t", 2)
    for n in range(5):
        made.write("t", 0, b"a%d" % n)
        made.write("t", 1, b"b%d" % n)
    return made


def test_a_leader_that_moves_does_not_disturb_the_reader() -> None:
    cluster = ScriptedCluster(nodes=2)
    cluster.create("t")
    cluster.write("t", 0, b"1", b"2")
    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"))
        cluster.partition("t").leader = 2
        cluster.partition("t").leader_epoch = 1

        assert [record.value for record in reader] == [b"1", b"2"]


def test_a_topic_that_is_made_anew_while_it_is_read_is_not_mixed_with_the_old_one(cluster: ScriptedCluster) -> None:
    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"))
        first = reader.poll(1_000)
        cluster.create("t", 2)
        for _ in range(9):
            cluster.write("t", 1, b"other")

        with pytest.raises(SnapshotUnreadable, match="made anew"):
            reader.poll(60_000)
    assert [record.value for record in first] == [b"a0", b"a1", b"a2", b"a3", b"a4"]


def test_records_that_are_deleted_while_it_is_read_are_noticed(cluster: ScriptedCluster) -> None:
    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"), missing="ignore")
        reader.poll(1_000)
        cluster.partition("t", 1).log_start = 3

        rest = list(reader)
    assert [record.value for record in rest] == [b"b3", b"b4"]
    assert reader.lost == [LostRange("t", 1, 0, 3)]


def test_a_partition_that_is_emptied_while_it_is_read_ends(cluster: ScriptedCluster) -> None:
    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"), missing="ignore")
        reader.poll(1_000)
        cluster.partition("t", 1).log_start = 5

        assert list(reader) == []
    assert reader.lost == [LostRange("t", 1, 0, 5)]


def test_a_log_that_was_cut_off_is_no_snapshot_any_more(cluster: ScriptedCluster) -> None:
    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"), records_max=2)
        cluster.partition("t").batches = cluster.partition("t").batches[:3]
        taken = [reader.poll(1_000), reader.poll(1_000)]
        cluster.partition("t").batches.clear()
        cluster.partition("t").end = 1

        with pytest.raises(SnapshotUnreadable, match="cut off before offset 3"):
            reader.poll(1_000)
    assert [record.value for part in taken for record in part] == [b"a0", b"a1", b"a2"]


def test_an_end_whose_last_records_were_compacted_away_is_reached(cluster: ScriptedCluster) -> None:
    with client_of(cluster) as client:
        taken = client.snapshot("t")
        del cluster.partition("t", 0).batches[3:]

        records = list(client.read_snapshot(taken))
    assert [record.value for record in records] == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2", b"b3", b"b4"]


def test_what_compaction_leaves_of_a_snapshot_is_part_of_it(cluster: ScriptedCluster) -> None:
    with client_of(cluster) as client:
        taken = client.snapshot("t")
        first = list(client.read_snapshot(taken))
        cluster.write("t", 0, b"newer")
        del cluster.partition("t", 0).batches[1:3]

        second = list(client.read_snapshot(taken))
    assert second == [record for record in first if (record.partition, record.offset) not in ((0, 1), (0, 2))]


def test_refusals_that_pass_do_not_end_the_reader(cluster: ScriptedCluster) -> None:
    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"))
        cluster.partition("t").refusals.extend([ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER])

        assert len(list(reader)) == 10


def test_an_answer_without_partitions_does_not_count_as_an_end(cluster: ScriptedCluster) -> None:
    def throttled(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        return FetchResponse(responses=())

    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"))
        cluster.fault(ApiKey.FETCH, throttled, throttled)

        assert len(list(reader)) == 10


def test_records_that_are_only_late_are_waited_for(cluster: ScriptedCluster) -> None:
    def late(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        reply = carry_out()
        assert isinstance(reply, FetchResponse)
        (topic,) = reply.responses
        (told,) = topic.partitions
        empty = PartitionData(
            partition_index=told.partition_index, high_watermark=told.high_watermark, last_stable_offset=5, records=b""
        )
        emptied = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[empty])
        return FetchResponse(responses=[emptied])

    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"))
        cluster.fault(ApiKey.FETCH, *[late] * 4)

        assert len(list(reader)) == 10
    assert not cluster.faults[ApiKey.FETCH]


def test_a_reader_does_not_wait_for_ever(cluster: ScriptedCluster) -> None:
    with client_of(cluster) as client:
        reader = client.read_snapshot(client.snapshot("t"), idle_ms=5_000)
        cluster.down.add(1)

        with pytest.raises(RequestTimedOut, match="t-0 at 0 of 5"):
            list(reader)
