"""The option `asOf` of `format("ottla")`: what it says, what it stands for, and a table read twice on a real Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import ottla
from ottla.client.blocking.client import Client
from ottla.client.snapshots import SnapshotUnreadable
from ottla.client.values import NewRecord, TopicPartition
from ottla.clock import SystemClock
from ottla.spark.as_of import SnapshotEnd
from ottla.spark.batch_reader import fixed, planned
from ottla.spark.errors import DataLost, InvalidOption
from ottla.spark.offsets import ByTimestamp, Latest, OffsetSpecification, RelativeTime
from ottla.spark.options import read_options
from ottla.spark.topics import watch
from tests.as_of.load import under_load
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000
GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}


# --- what it says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("now", Latest()),
        ("-10m", RelativeTime(600_000)),
        ("2026-11-16T02:00:00Z", ByTimestamp(1_794_794_400_000, "latest", "asOf")),
        ('{"orders":{"0":7}}', SnapshotEnd({TopicPartition("orders", 0): 7}, "asOf")),
    ],
)
def test_the_option_says_where_a_table_ends(text: str, end: OffsetSpecification) -> None:
    assert read_options({**GIVEN, "asOf": text}, streaming=False).end == end


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"asOf": "yesterday"}, "asOf: .*write now, a time"),
        ({"asOf": "now", "endingOffsets": "latest"}, "asOf: endingOffsets also says where the table ends"),
        ({"asOf": "now", "endingTimestamp": "5"}, "asOf: endingTimestamp also says where the table ends"),
        ({"asOf": "now", "endingOffsetsByTimestamp": "{}"}, "asOf: endingOffsetsByTimestamp also says"),
        ({"asOf": "time:5", "startingTimestamp": "9"}, "asOf: 5 is before startingTimestamp"),
    ],
)
def test_what_contradicts_it_is_refused(more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        read_options({**GIVEN, **more}, streaming=False)


@pytest.mark.parametrize(("text", "said"), [("now", "there are only tables"), ("yesterday", "write now, a time")])
def test_a_stream_is_refused_it(text: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=f"asOf: .*{said}"):
        read_options({**GIVEN, "asOf": text}, streaming=True)


# --- what it stands for -----------------------------------------------------------------------------------------


def ranges(broker: Broker, **options: object) -> dict[int, tuple[int, int]]:
    """What a table with these options reads of each partition."""
    chosen = read_options(broker.options(**options), streaming=False)
    watched = watch(chosen)
    try:
        found, _ = planned(chosen, watched)
    finally:
        watched.close()
    return {each.partition: (each.start, each.end) for each in found}


def text(topic: str, **ends: int) -> str:
    return json.dumps({topic: {name.removeprefix("p"): end for name, end in ends.items()}})


@pytest.fixture
def base_ms() -> int:
    return SystemClock().now_ms() - 60 * MINUTE_MS


@pytest.fixture
def ten(broker: Broker, base_ms: int) -> str:
    """Two partitions with five records each, a minute apart."""
    topic = broker.topic(2)
    for partition in range(2):
        records = [NewRecord(b"%d" % n, timestamp_ms=base_ms + n * MINUTE_MS) for n in range(5)]
        broker.produce(topic, records, partition=partition)
    return topic


def test_a_time_ends_each_partition_before_the_first_record_that_is_not_older(
    broker: Broker, ten: str, base_ms: int
) -> None:
    assert ranges(broker, subscribe=ten, asOf=base_ms + 3 * MINUTE_MS) == {0: (0, 3), 1: (0, 3)}


def test_so_long_ago_is_a_time(broker: Broker, ten: str) -> None:
    assert ranges(broker, subscribe=ten, asOf="-3510s") == {0: (0, 2), 1: (0, 2)}


def test_a_time_before_the_first_record_is_an_empty_table(broker: Broker, ten: str, base_ms: int) -> None:
    assert ranges(broker, subscribe=ten, asOf=base_ms) == {}


def test_offsets_are_the_ends(broker: Broker, ten: str) -> None:
    assert ranges(broker, subscribe=ten, asOf=text(ten, p0=4, p1=0)) == {0: (0, 4)}


def test_partitions_and_topics_that_it_does_not_name_or_read_are_left_out(broker: Broker, ten: str) -> None:
    more = json.dumps({ten: {"1": 3}, "elsewhere": {"7": 9}})

    assert ranges(broker, subscribe=ten, asOf=more) == {1: (0, 3)}
    assert ranges(broker, assign=json.dumps({ten: [1]}), asOf=text(ten, p0=1, p1=2)) == {1: (0, 2)}
    assert ranges(broker, subscribePattern=f"^{ten}$", asOf=more) == {1: (0, 3)}


def test_a_start_may_be_given_beside_it(broker: Broker, ten: str, base_ms: int) -> None:
    as_of = text(ten, p0=4, p1=4)

    assert ranges(broker, subscribe=ten, asOf=as_of, startingOffsets="-1 records") == {0: (3, 4), 1: (3, 4)}
    assert ranges(broker, subscribe=ten, asOf=as_of, startingOffsets=text(ten, p0=1, p1=-2)) == {0: (1, 4), 1: (0, 4)}
    assert ranges(broker, subscribe=ten, asOf=as_of, startingTimestamp=base_ms + MINUTE_MS) == {0: (1, 4), 1: (1, 4)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"asOf": '{"elsewhere":{"0":1}}'}, "says nothing of topic"),
        ({"asOf": '{"TOPIC":{"2":1}}'}, "there is no TOPIC-2"),
        ({"asOf": '{"TOPIC":{"0":6,"1":5}}'}, "nothing that far yet in TOPIC-0"),
        ({"asOf": '{"TOPIC":{"0":1,"1":1}}', "startingOffsets": '{"TOPIC":{"0":2,"1":0}}'}, "behind its end at 1"),
    ],
)
def test_offsets_that_there_are_not_are_refused(broker: Broker, ten: str, options: dict[str, str], said: str) -> None:
    given = {name: value.replace("TOPIC", ten) for name, value in options.items()}

    with pytest.raises(InvalidOption, match=said.replace("TOPIC", ten)):
        ranges(broker, subscribe=ten, **given)


def test_a_partition_that_is_assigned_must_be_part_of_it(broker: Broker, ten: str) -> None:
    with pytest.raises(InvalidOption, match=f"says nothing of {ten}-1"):
        ranges(broker, assign=json.dumps({ten: [0, 1]}), asOf=text(ten, p0=1))


def test_records_that_are_gone_fail_the_query_unless_it_may_lose_them(broker: Broker, ten: str) -> None:
    pinned = broker.client.snapshot(ten).to_json(pinned=True)
    broker.delete_before(ten, 0, offset=2)

    with pytest.raises(DataLost, match=f"{ten}-0 offsets 0 to 1"):
        ranges(broker, subscribe=ten, asOf=pinned)
    assert ranges(broker, subscribe=ten, asOf=pinned, failOnDataLoss=False) == {0: (2, 5), 1: (0, 5)}
    # A plain map does not tell that there was anything before.
    assert ranges(broker, subscribe=ten, asOf=text(ten, p0=4, p1=4)) == {0: (2, 4), 1: (0, 4)}


def test_plain_offsets_that_are_gone_altogether_fail_the_query(broker: Broker, ten: str) -> None:
    broker.delete_before(ten, 0, offset=4)

    with pytest.raises(DataLost, match=f"{ten}-0 offsets 0 to 2"):
        ranges(broker, subscribe=ten, asOf=text(ten, p0=3, p1=3))


def test_a_topic_that_was_made_anew_is_another_one(ottla_broker_process: Broker) -> None:
    broker = ottla_broker_process
    topic = broker.topic()
    broker.produce(topic, [b"1", b"2"])
    pinned = broker.client.snapshot(topic).to_json(pinned=True)
    broker.client.admin().delete_topic(topic)
    broker.client.admin().create_topic(topic, partitions=1)
    broker.produce(topic, [b"3", b"4"])

    with pytest.raises(SnapshotUnreadable, match="made anew"):
        ranges(broker, subscribe=topic, asOf=pinned)


def test_committed_tables_end_before_an_open_transaction(broker: Broker, ten: str) -> None:
    committed: dict[str, Any] = {"kafka.isolation.level": "read_committed"}
    with broker.client.producer(transactional_id=ten) as producer:
        producer.begin()
        producer.send_to(ten, 0, b"open")
        by_time = ranges(broker, subscribe=ten, asOf="-1ms", **committed)
        producer.abort()

    assert by_time == {0: (0, 5), 1: (0, 5)}


@pytest.mark.parametrize("as_of", ["now", "-1ms"])
def test_an_end_that_is_fixed_stays_where_it_was(broker: Broker, ten: str, as_of: str) -> None:
    options = fixed(read_options(broker.options(subscribe=ten, asOf=as_of), streaming=False))
    broker.produce(ten, [b"later"], partition=0)
    watched = watch(options)
    try:
        found, _ = planned(options, watched)
    finally:
        watched.close()

    assert [(each.partition, each.start, each.end) for each in found] == [(0, 0, 5), (1, 0, 5)]


# --- on a real Spark --------------------------------------------------------------------------------------------


def test_a_table_is_the_same_twice_under_load(spark: SparkSession, ottla_broker_process: Broker) -> None:
    broker = ottla_broker_process
    topic = broker.topic(2)

    def connect() -> Client:
        return ottla.connect(broker.bootstrap)

    def rows(as_of: str) -> list[tuple[Any, ...]]:
        frame = spark.read.format("ottla").options(**broker.options(subscribe=topic, asOf=as_of)).load()
        found = frame.select("partition", "offset", "value", "timestamp").collect()
        return sorted((row.partition, row.offset, bytes(row.value), row.timestamp) for row in found)

    with under_load(connect, topic, partitions=2) as load:
        taken = broker.client.snapshot(topic)
        first = rows(taken.to_json())
        load.wait_for_more(4)
        second = rows(taken.to_json(pinned=True))
        read = [(record.partition, record.offset, record.value) for record in broker.client.read_snapshot(taken)]

    assert first == second
    assert [row[:3] for row in first] == read
    assert len(first) == sum(taken.ends.values())


def test_a_table_as_of_now_stays_as_it_was_when_it_was_loaded(
    spark: SparkSession, ottla_broker_process: Broker
) -> None:
    topic = ottla_broker_process.topic()
    ottla_broker_process.produce(topic, [b"1", b"2"])
    given = ottla_broker_process.options(subscribe=topic, asOf="now")
    frame = spark.read.format("ottla").options(**given).load()
    ottla_broker_process.produce(topic, [b"3"])

    assert (frame.count(), sorted(row.offset for row in frame.collect()), frame.count()) == (2, [0, 1], 2)
