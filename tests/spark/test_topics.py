"""Which partitions a query reads and where they begin and end, asked of real brokers; Spark is not needed for that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from ottla.client.values import NewRecord, TopicPartition
from ottla.clock import SystemClock
from ottla.spark.batch_reader import planned
from ottla.spark.errors import InvalidOption
from ottla.spark.options import read_options
from ottla.spark.planning import OffsetRange
from ottla.spark.topics import PartitionWatch, watch
from tests.clients.server_process import free_port
from tests.spark.brokers import Broker

Watch = Callable[..., PartitionWatch]

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


@pytest.fixture
def watching(broker: Broker) -> Iterator[Watch]:
    """Makes the watch of a stream with these options."""
    made: list[PartitionWatch] = []

    def make(**options: object) -> PartitionWatch:
        made.append(watch(read_options(broker.options(**options), streaming=True)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def now_ms() -> int:
    """Near now: brokers delete what is older than a week."""
    return SystemClock().now_ms()


def keys(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def aged(value: str, *, now_ms: int, minutes: int) -> NewRecord:
    return NewRecord(value.encode(), timestamp_ms=now_ms - minutes * MINUTE_MS, partition=0)


def start(watched: PartitionWatch) -> dict[TopicPartition, int]:
    """Where a stream begins whose options are those of the watch."""
    return watched.resolved(watched.options.start, watched.existing())


# --- which ---------------------------------------------------------------------------------------


def test_a_subscription_has_all_partitions_of_its_topics(broker: Broker, watching: Watch) -> None:
    one, other = broker.topic(2), broker.topic(1)
    assert list(watching(subscribe=f"{one},{other}").existing()) == sorted(keys(one, 0, 1) + keys(other, 0))


def test_a_topic_that_is_not_there_is_refused_by_its_name(broker: Broker, watching: Watch) -> None:
    topic = broker.topic()
    with pytest.raises(InvalidOption, match="subscribe: there is no topic 'nowhere'"):
        watching(subscribe=f"{topic},nowhere").existing()


def test_assigned_partitions_are_read_and_no_others(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(3)
    assert list(watching(assign=json.dumps({topic: [2, 0]})).existing()) == keys(topic, 0, 2)


def test_an_assigned_partition_that_is_not_there_is_refused(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(1)
    with pytest.raises(InvalidOption, match=f"assign: there is no {topic}-3"):
        watching(assign=json.dumps({topic: [0, 3]})).existing()


def test_a_pattern_may_stand_anywhere_in_a_name(broker: Broker, watching: Watch) -> None:
    one, longer = broker.topic(stem="part-a"), broker.topic(stem="of-part-a")
    assert list(watching(subscribePattern="part-a").existing()) == keys(longer, 0) + keys(one, 0)
    assert list(watching(subscribePattern="^part-a").existing()) == keys(one, 0)


def test_a_pattern_may_look_ahead_and_name_groups_as_java_does(broker: Broker, watching: Watch) -> None:
    wanted, unwanted = broker.topic(stem="ahead-yes"), broker.topic(stem="ahead-no")
    found = watching(subscribePattern=r"(?!ahead-no)(?<stem>ahead)-.*").existing()
    assert list(found) == keys(wanted, 0)
    assert unwanted not in {key.topic for key in found}


def test_a_pattern_never_matches_internal_topics(broker: Broker, watching: Watch) -> None:
    broker.client.admin().alter_group_offsets("some-group", {(broker.topic(), 0): 0})
    admin = broker.client.admin()
    internal = set(admin.list_topics(internal=True)) - set(admin.list_topics())
    assert "__consumer_offsets" in internal
    assert internal.isdisjoint(key.topic for key in watching(subscribePattern=".*").existing())


def test_a_pattern_that_nothing_matches_has_no_partitions_yet(watching: Watch) -> None:
    assert watching(subscribePattern="nothing-is-called-so").existing() == ()


def test_partitions_that_were_looked_up_a_moment_ago_are_not_asked_for_again(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(1)
    watched = watching(subscribe=topic)
    watched.partitions()
    broker.client.admin().add_partitions(topic, new_total=2)
    assert list(watched.partitions(age_max_ms=HOUR_MS)) == keys(topic, 0)
    assert list(watched.partitions()) == keys(topic, 0, 1)


# --- what a table may ask for --------------------------------------------------------------------


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_table_that_starts_behind_its_end_is_refused(broker: Broker, fail_on_data_loss: bool) -> None:
    topic = broker.topic(2)
    broker.produce(topic, ["a"] * 10, partition=1)
    given = json.dumps({topic: {"0": -2, "1": 20}})
    options = broker.options(subscribe=topic, startingOffsets=given, failOnDataLoss=fail_on_data_loss)
    with pytest.raises(InvalidOption, match=f"startingOffsets: {topic}-1 starts at offset 20, behind its end at 10"):
        table_of(options)


def test_a_table_that_starts_at_its_end_is_empty(broker: Broker) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"] * 10)
    assert table_of(broker.options(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 10}}))) == []


def table_of(given: dict[str, str]) -> list[OffsetRange]:
    options = read_options(given, streaming=False)
    watched = watch(options)
    try:
        return planned(options, watched)[0]
    finally:
        watched.close()


# --- where ---------------------------------------------------------------------------------------


def test_a_stream_begins_at_the_ends_unless_told_otherwise(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(2)
    broker.produce(topic, ["a", "b"], partition=1)
    assert start(watching(subscribe=topic)) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 2}


def test_earliest_is_the_first_record_that_is_still_there(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a", "b", "c"])
    broker.delete_before(topic, 0, offset=2)
    assert start(watching(subscribe=topic, startingOffsets="earliest")) == {TopicPartition(topic, 0): 2}


def test_offsets_may_stand_beside_marks_for_latest_and_earliest(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(3)
    for partition in range(3):
        broker.produce(topic, ["a", "b", "c"], partition=partition)
    given = json.dumps({topic: {"0": 1, "1": -1, "2": -2}})
    found = start(watching(subscribe=topic, startingOffsets=given))
    assert found == {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 3, TopicPartition(topic, 2): 0}


def test_offsets_that_leave_a_partition_out_are_refused(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(2)
    watched = watching(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1}}))
    with pytest.raises(InvalidOption, match=f"startingOffsets: it leaves out {topic}-1"):
        start(watched)


def test_a_time_stands_for_the_first_record_that_is_not_older(broker: Broker, watching: Watch, now_ms: int) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [aged(str(minutes), now_ms=now_ms, minutes=minutes) for minutes in (30, 20, 10)])
    watched = watching(subscribe=topic, startingTimestamp=now_ms - 25 * MINUTE_MS)
    assert start(watched) == {TopicPartition(topic, 0): 1}


def test_a_time_after_the_last_record_is_an_error_by_default(broker: Broker, watching: Watch, now_ms: int) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [aged("a", now_ms=now_ms, minutes=30)])
    watched = watching(subscribe=topic, startingTimestamp=now_ms - 10 * MINUTE_MS)
    with pytest.raises(InvalidOption, match=f"no record is that young in {topic}-0"):
        start(watched)


def test_a_time_after_the_last_record_is_the_end_when_the_strategy_says_so(
    broker: Broker, watching: Watch, now_ms: int
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, [aged("a", now_ms=now_ms, minutes=30)])
    times = json.dumps({topic: {"0": now_ms - 10 * MINUTE_MS}})
    options = {"startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "latest"}
    assert start(watching(subscribe=topic, **options)) == {TopicPartition(topic, 0): 1}


def test_a_start_may_lie_so_many_minutes_back(broker: Broker, watching: Watch, now_ms: int) -> None:
    topic = broker.topic(2)
    broker.produce(topic, [aged(str(minutes), now_ms=now_ms, minutes=minutes) for minutes in (30, 20, 10)])
    found = start(watching(subscribe=topic, startingOffsets="-25m"))
    assert found == {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 0}


def test_a_start_may_lie_so_many_records_back_but_not_before_the_beginning(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(2)
    broker.produce(topic, [str(number) for number in range(10)], partition=0)
    broker.produce(topic, ["a", "b"], partition=1)
    found = start(watching(subscribe=topic, startingOffsets="-3 records"))
    assert found == {TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 0}


def test_readers_of_committed_records_see_the_end_before_an_open_transaction(broker: Broker, watching: Watch) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a", "b"])
    with broker.client.producer(transactional_id=f"open-{topic}") as producer:
        producer.begin()
        producer.send_batch(topic, [NewRecord(b"c"), NewRecord(b"d")])
        committed = watching(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
        assert start(committed) == {TopicPartition(topic, 0): 2}
        assert start(watching(subscribe=topic)) == {TopicPartition(topic, 0): 4}
        producer.abort()


def test_a_broker_that_never_answered_is_an_error_at_once() -> None:
    address = f"127.0.0.1:{free_port()}"
    watched = watch(read_options({"kafka.bootstrap.servers": address, "subscribe": "t"}, streaming=True))
    with pytest.raises(Exception, match="no broker can be reached"):
        watched.existing()
    watched.close()
