"""The blocking producer as a program uses it: positions, batches, partitions, futures, limits, threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ottla.client.blocking.client import Client
from ottla.client.errors import BufferFull, ClientClosed, PartlySent
from ottla.client.transport import Call, Reply
from ottla.client.values import NewRecord, RecordPosition
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRecord, PartitionNotFound, RecordTooLarge, TopicNotFound
from ottla.protocol.api_keys import ApiKey
from ottla.records.batch import peek
from ottla.records.compression import Codec
from tests.client.conftest import client_of
from tests.client.scripted_broker import ScriptedCluster, lose_answer

WAIT_SECONDS = 30


@pytest.fixture
def client(cluster: ScriptedCluster) -> Iterator[Client]:
    """On the machine's own clock: the blocking producer waits on it."""
    with client_of(cluster, real_time=True, retry_backoff_ms=1, retry_backoff_max_ms=2) as made:
        yield made


def _written(cluster: ScriptedCluster, position: RecordPosition) -> bytes | None:
    records = cluster.partition(position.topic, position.partition).records()
    return next(record.value for record in records if record.offset == position.offset)


def test_a_send_returns_where_the_record_is(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 3)
    producer = client.producer()

    places = [producer.send("t", b"%d" % number) for number in range(10)]

    assert [_written(cluster, place) for place in places] == [b"%d" % number for number in range(10)]


def test_key_value_timestamp_and_headers_arrive_as_given(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    headers = (("trace", b"1"), ("empty", None))

    client.producer().send("t", b"value", b"key", timestamp_ms=77, headers=headers)
    client.producer().send("t", None, b"")

    first, second = cluster.partition("t").records()
    assert (first.key, first.value, first.timestamp_ms, first.headers) == (b"key", b"value", 77, headers)
    assert (second.key, second.value, second.timestamp_ms) == (b"", None, cluster.clock.now_ms())


def test_records_of_a_key_share_a_partition(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 5)
    producer = client.producer()

    used = {producer.send("t", b"x", b"some key").partition for _ in range(10)}

    assert len(used) == 1


def test_send_to_each_partition_goes_exactly_there(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 4)
    producer = client.producer()

    assert [producer.send_to("t", number, b"x").partition for number in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("partition", [3, -1])
def test_a_partition_that_is_not_there_is_named_and_nothing_is_written(
    cluster: ScriptedCluster, client: Client, partition: int
) -> None:
    cluster.create("t", 3)

    with pytest.raises(PartitionNotFound) as caught:
        client.producer().send_to("t", partition, b"x")

    assert caught.value.partition == partition
    assert cluster.count(ApiKey.PRODUCE) == 0


def test_a_partition_that_was_added_since_is_found(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 1)
    producer = client.producer()
    producer.send("t", b"x")
    client.admin().add_partitions("t", new_total=3)

    assert producer.send_to("t", 2, b"x") == RecordPosition("t", 2, 0)


def test_an_unknown_topic_is_named(cluster: ScriptedCluster, client: Client) -> None:
    with pytest.raises(TopicNotFound, match="nowhere"):
        client.producer(topic_wait_ms=0).send("nowhere", b"x")


def test_a_topic_is_created_by_the_first_send_where_the_broker_allows_it(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.auto_create = True

    assert client.producer().send("new", b"x") == RecordPosition("new", 0, 0)


def test_round_robin_spreads_keyless_records_evenly(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 3)

    places = client.producer(keyless="round-robin").send_batch("t", [b"x"] * 9000)

    assert Counter(place.partition for place in places) == {0: 3000, 1: 3000, 2: 3000}


def test_an_empty_batch_is_an_empty_list_and_asks_nobody(cluster: ScriptedCluster, client: Client) -> None:
    assert client.producer().send_batch("t", []) == []
    assert cluster.calls == []


def test_a_mixed_batch_gives_positions_in_the_order_of_its_input(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 4)
    records = [
        b"plain",
        NewRecord(b"keyed", b"k1"),
        NewRecord(b"placed", partition=3),
        None,
        NewRecord(b"keyed too", b"k2", headers=[("h", b"v")], timestamp_ms=5),
        b"plain too",
    ]

    places = client.producer().send_batch("t", records)

    values = [each.value if isinstance(each, NewRecord) else each for each in records]
    assert [_written(cluster, place) for place in places] == values
    assert places[2].partition == 3


def test_the_records_of_a_batch_for_one_partition_travel_in_one_piece(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 3)

    client.producer(batch_bytes=1_000).send_batch("t", [b"x" * 256] * 1024)

    written = [batch for number in range(3) for batch in cluster.partition("t", number).batches]
    assert [peek(batch).record_count for batch in written] == [1024]


def test_a_batch_that_one_partition_refuses_says_what_the_others_took(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)
    cluster.partition("t", 1).refusals.append(ErrorCode.MESSAGE_TOO_LARGE)

    with pytest.raises(PartlySent) as caught:
        client.producer().send_batch("t", [NewRecord(b"a", partition=0), NewRecord(b"b", partition=1)])

    assert caught.value.positions == [RecordPosition("t", 0, 0), None]
    (error,) = caught.value.errors_by_partition.values()
    assert isinstance(error, RecordTooLarge)


def test_a_batch_that_is_refused_whole_raises_the_refusal_itself(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t").partitions[0].refusals.append(ErrorCode.MESSAGE_TOO_LARGE)

    with pytest.raises(RecordTooLarge):
        client.producer().send_batch("t", [b"a", b"b"])


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_batches_are_compressed_as_asked(cluster: ScriptedCluster, client: Client, codec: Codec) -> None:
    cluster.create("t")

    client.producer(compression=codec.name.lower()).send_batch("t", [b"x" * 100] * 10)

    (batch,) = cluster.partition("t").batches
    assert peek(batch).codec == codec
    assert cluster.partition("t").values() == [b"x" * 100] * 10


@pytest.mark.parametrize(
    "given",
    [
        {"value": "text"},
        {"value": b"x", "key": 5},
        {"value": b"x", "timestamp_ms": 1.5},
        {"value": b"x", "timestamp_ms": 2**63},
        {"value": b"x", "headers": [("name",)]},
        {"value": b"x", "headers": [(b"name", b"v")]},
        {"value": b"x", "headers": [("name", "v")]},
    ],
)
def test_what_is_no_record_is_refused_before_anything_is_sent(
    cluster: ScriptedCluster, client: Client, given: dict[str, object]
) -> None:
    cluster.create("t")

    with pytest.raises(InvalidRecord):
        client.producer().send("t", **given)  # type: ignore[arg-type]

    assert cluster.count(ApiKey.PRODUCE) == 0


def test_a_lost_answer_is_made_up_for_and_the_position_is_right(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    cluster.fault(ApiKey.PRODUCE, lose_answer)

    assert client.producer().send("t", b"x") == RecordPosition("t", 0, 0)
    assert cluster.partition("t").values() == [b"x"]


def test_submitted_records_are_sent_when_they_have_lingered(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    producer = client.producer(linger_ms=1)

    futures = [producer.submit("t", b"%d" % number) for number in range(100)]

    assert [future.result(WAIT_SECONDS).offset for future in futures] == list(range(100))
    assert cluster.partition("t").values() == [b"%d" % number for number in range(100)]


def test_a_flush_sends_what_would_linger(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    producer = client.producer(linger_ms=3_600_000)
    future = producer.submit("t", b"x")

    producer.flush()

    assert future.result(0) == RecordPosition("t", 0, 0)


def test_a_full_batch_does_not_linger(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    producer = client.producer(linger_ms=3_600_000, batch_bytes=1_000)

    futures = [producer.submit("t", b"x" * 300) for _ in range(4)]

    assert futures[0].result(WAIT_SECONDS).offset == 0


def test_closing_sends_what_lingers(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    with client.producer(linger_ms=3_600_000) as producer:
        future = producer.submit("t", b"x")

    assert future.result(0).offset == 0


def test_leaving_by_an_error_drops_what_lingers_and_says_so(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    futures: list[Future[RecordPosition]] = []

    def fail() -> None:
        with client.producer(linger_ms=3_600_000) as producer:
            futures.append(producer.submit("t", b"x"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    with pytest.raises(ClientClosed):
        futures[0].result(0)


def test_a_closed_producer_takes_nothing_more(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    producer = client.producer()
    producer.send("t", b"x")
    producer.close()
    producer.close()

    with pytest.raises(ClientClosed):
        producer.send("t", b"y")


def test_the_future_of_a_refused_record_carries_the_refusal(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t").partitions[0].refusals.append(ErrorCode.MESSAGE_TOO_LARGE)
    producer = client.producer(linger_ms=0)

    with pytest.raises(RecordTooLarge):
        producer.submit("t", b"x").result(WAIT_SECONDS)


def test_a_full_buffer_is_said_when_nobody_may_wait(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    producer = client.producer(buffer_bytes=1_000, block_ms=0, linger_ms=3_600_000)
    producer.submit("t", b"x" * 900)

    with pytest.raises(BufferFull, match="buffer_bytes"):
        producer.submit("t", b"x" * 900)


def test_a_full_buffer_makes_room_by_sending(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")
    producer = client.producer(buffer_bytes=2_000, linger_ms=3_600_000, batch_bytes=1_000)

    for number in range(50):
        producer.submit("t", b"%04d" % number * 100)
    producer.flush()

    assert [value[:4] for value in cluster.partition("t").values() if value] == [b"%04d" % n for n in range(50)]


def test_a_record_larger_than_the_buffer_is_still_sent(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t")

    assert client.producer(buffer_bytes=100).send("t", b"x" * 1_000).offset == 0


def test_threads_share_a_producer_and_each_keeps_its_order(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 8)
    producer = client.producer()

    def work(thread: int) -> list[int]:
        return [producer.send_to("t", thread, b"%d" % number).offset for number in range(50)]

    with ThreadPoolExecutor(8) as pool:
        offsets = list(pool.map(work, range(8)))

    assert offsets == [list(range(50))] * 8
    expected = [b"%d" % number for number in range(50)]
    assert [cluster.partition("t", number).values() for number in range(8)] == [expected] * 8


def test_what_comes_while_a_request_is_under_way_goes_together_in_the_next(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.create("t")
    producer = client.producer(linger_ms=0)
    producer.send("t", b"first")
    is_under_way, may_go_on = threading.Event(), threading.Event()
    before = cluster.count(ApiKey.PRODUCE)

    def hold(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        is_under_way.set()
        assert may_go_on.wait(WAIT_SECONDS)
        return carry_out()

    cluster.fault(ApiKey.PRODUCE, hold)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(producer.send, "t", b"held")
        assert is_under_way.wait(WAIT_SECONDS)
        waiting = [producer.submit("t", b"%d" % number) for number in range(4)]
        may_go_on.set()
        assert held.result(WAIT_SECONDS).offset == 1
        assert [each.result(WAIT_SECONDS).offset for each in waiting] == [2, 3, 4, 5]

    assert cluster.count(ApiKey.PRODUCE) - before == 2
