"""The consumer as a program uses it: assignment, positions, fairness, resets, isolation, the end."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.client.blocking.client import Client
from ottla.client.blocking.consumer import Consumer
from ottla.client.errors import (
    ClientClosed,
    ConcurrentUse,
    NetworkException,
    NoBrokerReachable,
    NoGroup,
    RequestTimedOut,
)
from ottla.client.settings import ClientSettings
from ottla.client.transport import Call, Reply
from ottla.client.values import RecordPosition, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import (
    CorruptBatch,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    Refusal,
    TopicNotFound,
)
from ottla.protocol.api_keys import ApiKey
from ottla.records.control import MarkerType, build_marker
from tests.client.conftest import client_of
from tests.client.scripted_broker import ScriptedCluster, lose_answer, lose_request


def _values(consumer: Consumer, *, timeout_ms: int = 100) -> list[bytes | None]:
    """All that is there now."""
    found: list[bytes | None] = []
    while given := consumer.poll(timeout_ms):
        found += [record.value for record in given]
    return found


def _reading(client: Client, *partitions: int, topic: str = "t", **settings: object) -> Consumer:
    consumer = client.consumer(**settings)
    consumer.assign([(topic, partition) for partition in partitions])
    return consumer


# --- what is read ----------------------------------------------------------------------------------------


def test_a_subscription_reads_all_partitions_of_all_its_topics(cluster: ScriptedCluster, client: Client) -> None:
    for name in ("a", "b", "c"):
        cluster.create(name, 2)
        for partition in range(2):
            cluster.write(name, partition, f"{name}{partition}".encode())
    consumer = client.consumer()

    consumer.subscribe(["a", "b", "c"])

    assert sorted(value for value in _values(consumer) if value) == [b"a0", b"a1", b"b0", b"b1", b"c0", b"c1"]


def test_an_assignment_reads_only_its_partitions(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)
    cluster.write("t", 0, b"other")

    consumer = _reading(client, 1)
    cluster.write("t", 1, b"mine")

    assert _values(consumer) == [b"mine"]
    assert consumer.assignment() == [TopicPartition("t", 1)]


def test_a_partition_that_is_not_there_cannot_be_assigned(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)

    with pytest.raises(PartitionNotFound) as caught:
        client.consumer().assign([("t", 0), ("t", 2)])

    assert (caught.value.topic, caught.value.partition) == ("t", 2)


def test_a_topic_that_is_not_there_cannot_be_subscribed_to(cluster: ScriptedCluster, client: Client) -> None:
    with pytest.raises(TopicNotFound, match="nowhere"):
        client.consumer().subscribe(["nowhere"])


def test_reading_creates_no_topic(cluster: ScriptedCluster, client: Client) -> None:
    cluster.auto_create = True

    with pytest.raises(TopicNotFound):
        client.consumer().subscribe(["nowhere"])

    assert cluster.topics == {}


def test_a_partition_added_later_is_read_from_its_beginning(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 1)
    consumer = client.consumer(start="end")
    consumer.subscribe(["t"])
    assert _values(consumer) == []
    client.admin().add_partitions("t", new_total=2)
    cluster.write("t", 1, b"early")

    cluster.pass_time(300_001)

    assert _values(consumer) == [b"early"]


def test_a_broker_that_nobody_runs_is_named(cluster: ScriptedCluster, client: Client) -> None:
    cluster.down.add(1)

    with pytest.raises(NoBrokerReachable, match="broker-1:9092"):
        client.consumer().subscribe(["t"])

    assert cluster.sleeps_ms == []


# --- where it is read ------------------------------------------------------------------------------------


def test_an_anonymous_consumer_starts_at_0_each_time(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"1", b"2")

    for _ in range(2):
        consumer = _reading(client, 0)
        assert _values(consumer) == [b"1", b"2"]
        consumer.commit()
        assert consumer.committed("t", 0) is None


def test_a_commit_without_a_group_is_refused_where_one_is_required(cluster: ScriptedCluster, client: Client) -> None:
    with pytest.raises(NoGroup):
        client.consumer(require_group=True).commit()


def test_reading_can_start_at_the_end(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"old")
    consumer = _reading(client, 0, start="end")
    assert consumer.position("t", 0) == 1

    cluster.write("t", 0, b"new")

    assert _values(consumer) == [b"new"]


def test_reading_can_start_at_an_offset_in_the_middle_of_a_batch(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"0", b"1", b"2", b"3")

    assert _values(_reading(client, 0, start_offset=2)) == [b"2", b"3"]


@pytest.mark.parametrize(("time_ms", "expected"), [(0, [b"a", b"b"]), (1_001, [b"b"]), (1_002, [])])
def test_reading_can_start_at_a_time(
    cluster: ScriptedCluster, client: Client, time_ms: int, expected: list[bytes]
) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"a", b"b", timestamp_ms=1_000)

    assert _values(_reading(client, 0, start_time_ms=time_ms)) == expected


def test_a_time_after_all_records_means_the_next_one(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"old")
    consumer = _reading(client, 0)

    consumer.seek_to_time(5_000)
    cluster.write("t", 0, b"new", timestamp_ms=1)

    assert _values(consumer) == [b"new"]


def test_seeking_makes_that_offset_the_next_record(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)
    for partition in range(2):
        cluster.write("t", partition, b"0", b"1", b"2")
    consumer = _reading(client, 0, 1)
    _values(consumer)

    consumer.seek("t", 0, offset=1)
    assert _values(consumer) == [b"1", b"2"]
    consumer.seek_all(offset=2)
    assert _values(consumer) == [b"2", b"2"]
    consumer.seek_to_beginning(("t", 1))
    assert _values(consumer) == [b"0", b"1", b"2"]
    consumer.seek_to_beginning()
    consumer.seek_to_end(("t", 0))
    assert _values(consumer) == [b"0", b"1", b"2"]


def test_seeking_beyond_the_end_waits_for_that_record(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"0", b"1")
    consumer = _reading(client, 0)
    consumer.seek("t", 0, offset=4)
    cluster.at(3_000, lambda: cluster.write("t", 0, b"2", b"3"))
    cluster.at(6_000, lambda: cluster.write("t", 0, b"4"))

    given = consumer.poll(20_000)

    assert [(record.offset, record.value) for record in given] == [(4, b"4")]


def test_an_offset_below_nothing_cannot_be_sought(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")

    with pytest.raises(InvalidRequest):
        _reading(client, 0).seek("t", 0, offset=-1)


def test_a_partition_that_is_not_read_has_no_position(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)

    with pytest.raises(InvalidRequest, match="t-1"):
        _reading(client, 0).position("t", 1)


def test_the_position_follows_what_was_given_out(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, *[b"%d" % number for number in range(10)])
    consumer = _reading(client, 0)

    assert consumer.position("t", 0) == 0
    consumer.poll(100, records_max=3)
    assert consumer.position("t", 0) == 3
    assert consumer.high_watermark("t", 0) == 10


# --- polling ---------------------------------------------------------------------------------------------


def test_a_drained_poll_is_empty_after_its_timeout(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    consumer = _reading(client, 0)
    consumer.poll(0)
    started_ms = cluster.clock.now_ms()

    assert consumer.poll(1_200) == []
    assert cluster.clock.now_ms() - started_ms == 1_200


def test_a_poll_wakes_when_a_record_is_appended(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    consumer = _reading(client, 0)
    cluster.at(700, lambda: cluster.write("t", 0, b"late"))
    started_ms = cluster.clock.now_ms()

    given = consumer.poll(60_000)

    assert [record.value for record in given] == [b"late"]
    assert cluster.clock.now_ms() - started_ms == 700


def test_a_record_carries_its_position_and_all_its_parts(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)
    producer = client.producer()
    place = producer.send_to("t", 1, b"v", b"k", timestamp_ms=9, headers=[("h", b"x")])
    consumer = client.consumer()
    consumer.subscribe(["t"])

    (record,) = consumer.poll(100)

    assert record.position == place == RecordPosition("t", 1, 0)
    assert (record.key, record.value, record.timestamp_ms, record.headers) == (b"k", b"v", 9, (("h", b"x"),))


def test_a_poll_gives_no_more_than_was_asked_for_and_forgets_nothing(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 3)
    for partition in range(3):
        for number in range(5):
            cluster.write("t", partition, *[b"%d" % (10 * number + each) for each in range(10)])
    consumer = _reading(client, 0, 1, 2)
    found: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}

    while given := consumer.poll(10, records_max=7):
        assert len(given) <= 7
        for record in given:
            found[record.partition].append(record.value)

    assert found == {partition: [b"%d" % number for number in range(50)] for partition in range(3)}


def test_partitions_take_turns_whatever_their_load(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 4)
    cluster.write("t", 0, *[b"x"] * 10_000)
    for partition in (1, 2, 3):
        cluster.write("t", partition, *[b"x"] * 40)
    consumer = _reading(client, 0, 1, 2, 3)

    given = consumer.poll(100, records_max=160)

    assert Counter(record.partition for record in given) == {0: 40, 1: 40, 2: 40, 3: 40}


def test_a_quiet_partition_is_looked_at_while_a_busy_one_is_given_out(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)
    cluster.write("t", 0, *[b"busy"] * 10_000)
    consumer = _reading(client, 0, 1)
    consumer.poll(100, records_max=10)
    cluster.write("t", 1, b"quiet")
    cluster.pass_time(20)

    given = consumer.poll(100, records_max=10)

    assert b"quiet" in [record.value for record in given]


def test_a_small_response_limit_starves_no_partition(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 3)
    for partition in range(3):
        for _ in range(20):
            cluster.write("t", partition, b"x" * 1_000)
    consumer = _reading(client, 0, 1, 2, fetch_bytes_max=1_500)

    seen = Counter(record.partition for _ in range(30) for record in consumer.poll(10, records_max=1))

    assert min(seen.values()) >= 5


def test_a_paused_partition_gives_nothing_until_it_is_resumed(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)
    cluster.write("t", 0, b"a", b"b")
    cluster.write("t", 1, b"c")
    consumer = _reading(client, 0, 1)
    consumer.pause(("t", 0))

    assert _values(consumer) == [b"c"]
    consumer.resume()
    assert _values(consumer) == [b"a", b"b"]


def test_iterating_ends_when_nothing_came_for_a_while(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)
    for partition in range(2):
        cluster.write("t", partition, b"a", b"b")
    cluster.at(2_500, lambda: cluster.write("t", 0, b"late"))
    consumer = _reading(client, 0, 1)

    assert [record.value for record in consumer.records(idle_ms=3_000)].count(b"late") == 1
    assert consumer.poll(0) == []


def test_a_loop_that_is_left_gives_the_rest_to_the_next_one(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, *[b"%d" % number for number in range(10)])
    consumer = _reading(client, 0)

    for record in consumer:
        if record.value == b"3":
            break

    assert _values(consumer) == [b"%d" % number for number in range(4, 10)]


def test_closing_ends_the_loop(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"1", b"2")
    consumer = _reading(client, 0)
    seen = []

    for record in consumer:
        seen.append(record.value)
        if record.value == b"2":
            consumer.close()

    assert seen == [b"1", b"2"]
    with pytest.raises(ClientClosed):
        consumer.poll(0)


def test_a_consumer_that_is_in_use_refuses_a_second_user(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    consumer = _reading(client, 0)
    refused: list[Exception] = []

    def intrude() -> None:
        try:
            consumer.poll(0)
        except ConcurrentUse as e:
            refused.append(e)

    cluster.at(10, intrude)
    consumer.poll(100)

    assert len(refused) == 1


# --- trouble ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [lose_request, lose_answer])
def test_a_broken_connection_loses_and_doubles_nothing(cluster: ScriptedCluster, client: Client, fault: object) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"1", b"2")
    consumer = _reading(client, 0)
    cluster.fault(ApiKey.FETCH, fault)  # type: ignore[arg-type]

    assert _values(consumer, timeout_ms=1_000) == [b"1", b"2"]


def test_a_leader_that_moved_is_followed() -> None:
    cluster = ScriptedCluster(nodes=2)
    client = client_of(cluster)
    partition = cluster.create("t").partitions[0]
    cluster.write("t", 0, b"1")
    consumer = _reading(client, 0)
    assert _values(consumer) == [b"1"]
    partition.leader, partition.leader_epoch = 2, 1
    cluster.write("t", 0, b"2")

    assert _values(consumer, timeout_ms=1_000) == [b"2"]


def test_several_leaders_are_read_at_once() -> None:
    cluster = ScriptedCluster(nodes=3)
    client = client_of(cluster)
    cluster.create("t", 6)
    for partition in range(6):
        cluster.write("t", partition, b"%d" % partition)
    consumer = client.consumer()
    consumer.subscribe(["t"])

    assert sorted(value for value in _values(consumer) if value) == [b"%d" % number for number in range(6)]


def test_a_quiet_leader_does_not_hold_up_a_busy_one() -> None:
    cluster = ScriptedCluster(nodes=2)
    client = client_of(cluster)
    cluster.create("t", 2)
    cluster.write("t", 1, b"x")
    consumer = _reading(client, 0, 1)
    started_ms = cluster.clock.now_ms()

    consumer.poll(10_000)

    assert cluster.clock.now_ms() - started_ms <= 100


def test_one_broker_that_is_away_does_not_stop_the_others() -> None:
    cluster = ScriptedCluster(nodes=2)
    client = client_of(cluster)
    cluster.create("t", 2)
    cluster.write("t", 0, b"here")
    consumer = _reading(client, 0, 1)
    cluster.down.add(2)

    assert _values(consumer, timeout_ms=2_000) == [b"here"]


def test_records_lost_to_retention_are_skipped_by_default(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"0")
    cluster.write("t", 0, b"1")
    consumer = _reading(client, 0)
    consumer.position("t", 0)
    cluster.partition("t").log_start = 1

    assert _values(consumer) == [b"1"]


def test_a_lost_position_can_mean_the_end(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"0")
    cluster.write("t", 0, b"1")
    consumer = _reading(client, 0, out_of_range="latest")
    consumer.position("t", 0)
    cluster.partition("t").log_start = 1

    assert _values(consumer) == []
    assert consumer.position("t", 0) == 2


def test_a_lost_position_can_be_an_error(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"0")
    consumer = _reading(client, 0, out_of_range="error")
    consumer.position("t", 0)
    cluster.partition("t").log_start = 1

    with pytest.raises(OffsetOutOfRange, match="t-0 at offset 0"):
        consumer.poll(100)


def test_a_topic_created_anew_is_read_from_its_start(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"old", b"old")
    consumer = _reading(client, 0)
    assert len(_values(consumer)) == 2
    cluster.create("t")
    cluster.write("t", 0, b"new")

    assert _values(consumer, timeout_ms=1_000) == [b"new"]


def test_a_topic_that_stays_away_is_named(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    consumer = _reading(client, 0)
    consumer.poll(0)
    del cluster.topics["t"]

    with pytest.raises(TopicNotFound):
        consumer.poll(60_000)


def test_a_refusal_that_will_not_pass_is_raised(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    consumer = _reading(client, 0)
    cluster.partition("t").refusals.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(Refusal) as caught:
        consumer.poll(100)

    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_damaged_batch_is_reported_until_it_is_sought_past(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"bad")
    cluster.write("t", 0, b"good")
    cluster.partition("t").batches[0][-1] ^= 0xFF
    consumer = _reading(client, 0)

    for _ in range(2):
        with pytest.raises(CorruptBatch):
            consumer.poll(100)
    consumer.seek("t", 0, offset=1)

    assert _values(consumer) == [b"good"]


def test_a_cut_off_last_batch_is_fetched_again(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.write("t", 0, b"1")
    cluster.write("t", 0, b"2")
    consumer = _reading(client, 0)

    def cut(call: Call, carry_out: object) -> Reply:
        whole = cluster.partition("t").batches
        cluster.partition("t").batches = [whole[0] + whole[1][:30]]
        try:
            return carry_out()  # type: ignore[operator,no-any-return]
        finally:
            cluster.partition("t").batches = whole

    cluster.fault(ApiKey.FETCH, cut)

    assert _values(consumer) == [b"1", b"2"]


def test_without_topic_ids_topics_go_by_name(cluster: ScriptedCluster, client: Client) -> None:
    cluster.versions[ApiKey.METADATA] = (0, 8)
    cluster.create("t")
    cluster.write("t", 0, b"1")

    assert _values(_reading(client, 0)) == [b"1"]
    assert {call.version for call in cluster.calls if call.api_key is ApiKey.FETCH} == {12}


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch_is_understood(cluster: ScriptedCluster, client: Client, version: int) -> None:
    cluster.versions[ApiKey.FETCH] = (4, version)
    cluster.create("t")
    cluster.write("t", 0, b"1")

    assert _values(_reading(client, 0)) == [b"1"]


# --- isolation -------------------------------------------------------------------------------------------


@pytest.fixture
def transactions(cluster: ScriptedCluster) -> ScriptedCluster:
    """Two transactions, one aborted, between plain records."""
    partition = cluster.create("t").partitions[0]
    cluster.write("t", 0, b"plain")
    cluster.write("t", 0, b"aborted", pid=1)
    cluster.write("t", 0, b"committed", pid=2)
    for marker_type, producer in ((MarkerType.ABORT, 1), (MarkerType.COMMIT, 2)):
        marker = build_marker(
            marker_type, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1_000
        )
        partition.append(marker)
    partition.aborted.append((1, 1))
    cluster.write("t", 0, b"plain too")
    return cluster


def test_a_reader_of_committed_records_sees_no_aborted_ones(transactions: ScriptedCluster, client: Client) -> None:
    consumer = _reading(client, 0, isolation="read_committed")

    assert _values(consumer) == [b"plain", b"committed", b"plain too"]


def test_any_other_reader_sees_all_records_but_no_markers(transactions: ScriptedCluster, client: Client) -> None:
    assert _values(_reading(client, 0)) == [b"plain", b"aborted", b"committed", b"plain too"]


def test_the_position_moves_past_what_is_hidden(transactions: ScriptedCluster, client: Client) -> None:
    del transactions.partition("t").batches[-1]
    transactions.partition("t").end = 5
    consumer = _reading(client, 0, isolation="read_committed")
    _values(consumer)

    assert consumer.position("t", 0) == 5


def test_closing_takes_no_longer_than_one_request_may(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    consumer = _reading(client, 0, group="g", auto_commit=True)
    consumer.seek("t", 0, offset=0)

    def break_off(call: Call, carry_out: object) -> Reply:
        cluster.clock.advance(20_000)
        raise NetworkException("scripted")

    def hang(call: Call, carry_out: object) -> Reply:
        cluster.clock.advance(call.timeout_ms)
        raise RequestTimedOut("scripted")

    cluster.fault(ApiKey.FIND_COORDINATOR, break_off)
    for _ in range(10):
        cluster.fault(ApiKey.FIND_COORDINATOR, hang)
    started_ms = cluster.clock.now_ms()
    consumer.close()

    assert 20_000 < cluster.clock.now_ms() - started_ms <= ClientSettings().request_timeout_ms
