"""Which offsets "as of when" stands for: held against a model, and against another client."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ottla
from ottla.client.blocking.client import Client
from ottla.client.errors import InvalidSetting, PartitionNotFound, TopicNotFound
from ottla.client.snapshots import Snapshot, SnapshotUnreadable
from ottla.client.transport import Call, Reply
from ottla.client.values import NewRecord, TopicPartition
from ottla.clock import SystemClock
from ottla.protocol.api_keys import ApiKey
from tests.client.conftest import client_of
from tests.client.scripted_broker import ScriptedCluster

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

MINUTE_MS = 60_000

times = st.lists(st.lists(st.integers(min_value=0, max_value=20), max_size=6), min_size=1, max_size=4)
"""The timestamps of the records of one partition, batch by batch."""


_numbers = count()


def offsets(taken: Snapshot) -> dict[int, int]:
    return {key.partition: end for key, end in taken.ends.items()}


def expected_end(timestamps: list[int], timestamp_ms: int) -> int:
    """The first record that is not older; the end where all are."""
    return next((offset for offset, each in enumerate(timestamps) if each >= timestamp_ms), len(timestamps))


def scripted(partitions: list[list[list[int]]]) -> ScriptedCluster:
    cluster = ScriptedCluster()
    cluster.create("t", len(partitions))
    for number, batches in enumerate(partitions):
        for batch in batches:
            for timestamp_ms in batch:
                cluster.write("t", number, b"v", timestamp_ms=timestamp_ms)
    return cluster


@given(st.lists(times, min_size=1, max_size=3), st.integers(min_value=0, max_value=22))
def test_as_of_a_time_is_what_lies_before_the_first_record_that_is_not_older(
    partitions: list[list[list[int]]], timestamp_ms: int
) -> None:
    with client_of(scripted(partitions)) as client:
        taken = client.snapshot("t", timestamp_ms)

    flat = [[each for batch in batches for each in batch] for batches in partitions]
    assert offsets(taken) == {n: expected_end(each, timestamp_ms) for n, each in enumerate(flat)}


def filled(client: Client, batches: list[list[int]], *, partitions: int = 1) -> str:
    """A fresh topic with these batches in its first partition, of records with these timestamps."""
    topic = f"t-{next(_numbers)}"
    client.admin().create_topic(topic, partitions=partitions)
    with client.producer() as producer:
        for batch in filter(None, batches):
            producer.send_batch(topic, [NewRecord(b"v", timestamp_ms=each, partition=0) for each in batch])
    return topic


@settings(max_examples=20)
@given(times, st.integers(min_value=0, max_value=22))
def test_a_real_broker_finds_the_same_inside_batches_of_any_shape(
    address: str, batches: list[list[int]], minute: int
) -> None:
    base_ms = SystemClock().now_ms() - 60 * MINUTE_MS
    with ottla.connect(address) as client:
        topic = filled(client, [[base_ms + each * MINUTE_MS for each in batch] for batch in batches])
        taken = client.snapshot(topic, base_ms + minute * MINUTE_MS)

    assert offsets(taken) == {0: expected_end([each for batch in batches for each in batch], minute)}


@pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")
@pytest.mark.leaves_sockets  # kafka-python's, when it gives up a connection.
def test_another_client_finds_the_same_offsets(address: str) -> None:
    base_ms = SystemClock().now_ms() - 60 * MINUTE_MS
    with ottla.connect(address) as client:
        topic = filled(client, [[base_ms + n * MINUTE_MS for n in (3, 1, 9)], [base_ms], [base_ms + 4 * MINUTE_MS]])
        ours = {n: offsets(client.snapshot(topic, base_ms + n * MINUTE_MS))[0] for n in range(12)}
        ours[-1] = offsets(client.snapshot(topic))[0]

    other = kafka.KafkaConsumer(bootstrap_servers=address)
    try:
        key = kafka.TopicPartition(topic, 0)
        (end,) = other.end_offsets([key]).values()
        found = {n: other.offsets_for_times({key: base_ms + n * MINUTE_MS})[key] for n in range(12)}
    finally:
        other.close()
    assert ours == {-1: end, **{n: end if one is None else one.offset for n, one in found.items()}}


def test_a_record_that_is_written_while_the_time_is_looked_up_is_not_part_of_it() -> None:
    cluster = scripted([[[5, 6]]])

    def write_first(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        reply = carry_out()
        cluster.write("t", 0, b"younger", timestamp_ms=100)
        return reply

    with client_of(cluster) as client:
        # After every answer so far a younger record comes: also between the question for the time and any later one.
        cluster.fault(ApiKey.LIST_OFFSETS, write_first, write_first, write_first)
        taken = client.snapshot("t", 50)

    assert cluster.count(ApiKey.LIST_OFFSETS) == 3
    assert [each.timestamp_ms < 50 for each in cluster.partition("t").records()[: offsets(taken)[0]]] == [True, True]


def test_late_records_behind_the_first_younger_one_are_not_part_of_it(embedded: Client) -> None:
    base_ms = SystemClock().now_ms() - 60 * MINUTE_MS
    topic = filled(embedded, [[base_ms, base_ms + 20 * MINUTE_MS, base_ms + MINUTE_MS]])

    assert offsets(embedded.snapshot(topic, base_ms + 10 * MINUTE_MS)) == {0: 1}


def test_the_same_time_stands_for_the_same_offsets_once_a_younger_record_is_there(embedded: Client) -> None:
    base_ms = SystemClock().now_ms() - 60 * MINUTE_MS
    topic = filled(embedded, [[base_ms, base_ms + 20 * MINUTE_MS]])
    before = embedded.snapshot(topic, base_ms + 10 * MINUTE_MS)

    with embedded.producer() as producer:
        producer.send(topic, b"late", timestamp_ms=base_ms)

    assert embedded.snapshot(topic, base_ms + 10 * MINUTE_MS) == before


def test_where_the_broker_sets_the_times_nothing_older_is_left_out(embedded: Client) -> None:
    embedded.admin().create_topic("appended", configs={"message.timestamp.type": "LogAppendTime"})
    with embedded.producer() as producer:
        for _ in range(20):
            # What the producer says is not looked at.
            producer.send("appended", b"v", timestamp_ms=MINUTE_MS)
    times_ms = [record.timestamp_ms for record in embedded.records_as_of("appended")]

    moment_ms = times_ms[12]
    assert offsets(embedded.snapshot("appended", moment_ms)) == {0: sum(each < moment_ms for each in times_ms)}


def test_a_time_to_come_is_as_of_now(embedded: Client) -> None:
    now_ms = SystemClock().now_ms()
    topic = filled(embedded, [[now_ms, now_ms]])

    assert offsets(embedded.snapshot(topic, now_ms + 100 * MINUTE_MS)) == {0: 2}


def test_so_long_ago_counts_from_the_clock(embedded: Client) -> None:
    now_ms = SystemClock().now_ms()
    topic = filled(embedded, [[now_ms - n * MINUTE_MS for n in (50, 40, 30, 20, 10)]])

    assert offsets(embedded.snapshot(topic, "-25m")) == {0: 3}


@pytest.mark.slow
def test_committed_records_end_where_the_first_open_transaction_begins(embedded: Client) -> None:
    topic = filled(embedded, [[SystemClock().now_ms()] * 3])
    with embedded.producer(transactional_id="open") as producer:
        producer.begin()
        producer.send_batch(topic, [b"open", b"open"])
        committed = embedded.snapshot(topic, isolation="read_committed")
        all_of_it = embedded.snapshot(topic)
        producer.commit()

    assert (offsets(committed), offsets(all_of_it)) == ({0: 3}, {0: 5})


@pytest.mark.slow
def test_a_time_inside_an_open_transaction_does_not_reach_into_it(embedded: Client) -> None:
    now_ms = SystemClock().now_ms()
    topic = filled(embedded, [[now_ms - 3 * MINUTE_MS] * 3])
    with embedded.producer(transactional_id="open") as producer:
        producer.begin()
        rows = [NewRecord(b"open", timestamp_ms=now_ms - MINUTE_MS), NewRecord(b"open", timestamp_ms=now_ms)]
        producer.send_batch(topic, rows)
        taken = embedded.snapshot(topic, now_ms - MINUTE_MS // 2, isolation="read_committed")
        producer.abort()

    assert offsets(taken) == {0: 3}


def test_offsets_are_taken_as_they_are_with_what_is_known_of_the_topic(embedded: Client) -> None:
    topic = filled(embedded, [[SystemClock().now_ms()] * 5], partitions=3)
    embedded.admin().delete_records({(topic, 0): 2})

    taken = embedded.snapshot(as_of={(topic, 0): 4})

    described = embedded.admin().describe_topic(topic)
    assert described is not None
    key = TopicPartition(topic, 0)
    assert taken == Snapshot({key: 4}, {key: 2}, {topic: described.topic_id})


def test_offsets_beyond_the_end_are_refused(embedded: Client) -> None:
    topic = filled(embedded, [[SystemClock().now_ms()] * 5])

    with pytest.raises(SnapshotUnreadable, match=f"{topic}-0 ends at 5, before offset 6"):
        embedded.snapshot(as_of={(topic, 0): 6})


@pytest.mark.slow
def test_offsets_behind_an_open_transaction_are_refused_to_readers_of_committed_records(embedded: Client) -> None:
    topic = filled(embedded, [[SystemClock().now_ms()] * 3])
    with embedded.producer(transactional_id="open") as producer:
        producer.begin()
        producer.send(topic, b"open")
        with pytest.raises(SnapshotUnreadable, match="committed only up to offset 3"):
            embedded.snapshot(as_of={(topic, 0): 4}, isolation="read_committed")
        producer.commit()

    assert offsets(embedded.snapshot(as_of={(topic, 0): 4}, isolation="read_committed")) == {0: 4}


def test_what_is_not_there_is_refused(embedded: Client) -> None:
    topic = filled(embedded, [])

    with pytest.raises(TopicNotFound):
        embedded.snapshot(["nowhere"])
    with pytest.raises(PartitionNotFound):
        embedded.snapshot(as_of={(topic, 1): 0})
    with pytest.raises(InvalidSetting, match="name the topics"):
        embedded.snapshot()
    with pytest.raises(InvalidSetting, match="nothing of topic"):
        embedded.snapshot("elsewhere", {(topic, 0): 0})
