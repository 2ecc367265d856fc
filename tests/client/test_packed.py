"""Batches whose records are laid out already: sent in the background, retried, cut when too large, and told of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import ottla
from ottla.client.accumulator import Accumulator, PackedRows
from ottla.client.blocking.client import Client
from ottla.client.blocking.producer import Producer
from ottla.client.cluster import Cluster
from ottla.client.errors import BufferFull, ClientClosed
from ottla.client.settings import ClientSettings, ProducerSettings
from ottla.client.transport import Call, MonotonicClock, Reply
from ottla.client.values import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import PartitionNotFound, RecordTooLarge, Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.records.batch import peek
from ottla.records.builder import RECORDS_BYTES_MAX
from ottla.records.control import MarkerType
from ottla.records.packing import Packed, pack_records
from ottla.testing.server_thread import ServerThread
from tests.client.conftest import client_of
from tests.client.scripted_broker import ScriptedCluster, lose_answer, lose_request

NOW_MS = 1_700_000_000_000


def packed(*values: bytes) -> Packed:
    return pack_records([(None, value, NOW_MS, [("h", b"1")]) for value in values], RECORDS_BYTES_MAX)


@pytest.fixture
def timed(cluster: ScriptedCluster) -> Iterator[Client]:
    """A client that waits by the machine's clock, which the producer's thread does."""
    with client_of(cluster, real_time=True, retry_backoff_ms=1, retry_backoff_max_ms=2) as made:
        yield made


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd", "snappy"])
def test_packed_records_arrive_as_they_were(cluster: ScriptedCluster, timed: Client, compression: str) -> None:
    partition = cluster.create("t").partitions[0]
    with timed.producer(compression=compression) as producer:
        producer.submit_packed("t", 0, packed(b"a", b"b"))
        producer.submit_packed("t", 0, packed(b"c"))
        producer.flush()
        assert [(each.offset, each.value) for each in partition.records()] == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert partition.records()[0].headers == (("h", b"1"),)


@pytest.mark.parametrize("fault", [lose_request, lose_answer])
def test_a_retry_neither_loses_nor_doubles(cluster: ScriptedCluster, timed: Client, fault: object) -> None:
    partition = cluster.create("t").partitions[0]
    cluster.fault(ApiKey.PRODUCE, fault, fault)  # type: ignore[arg-type]
    with timed.producer() as producer:
        for number in range(5):
            producer.submit_packed("t", 0, packed(b"%d" % number))
        producer.flush()
    assert partition.values() == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_batch_that_is_numbered_anew_is_sent_under_its_new_number(
    cluster: ScriptedCluster, timed: Client, compression: str
) -> None:
    partition = cluster.create("t").partitions[0]
    partition.refusals.append(ErrorCode.UNKNOWN_PRODUCER_ID)
    with timed.producer(compression=compression) as producer:
        producer.submit_packed("t", 0, packed(b"a"))
        producer.flush()
    assert partition.values() == [b"a"]
    assert peek(partition.batches[0]).producer_id == cluster.next_producer_id


def test_flush_raises_the_first_failure_and_nothing_more_is_taken(cluster: ScriptedCluster, timed: Client) -> None:
    cluster.create("t").partitions[0].refusals.append(ErrorCode.INVALID_RECORD)
    producer = timed.producer()
    producer.submit_packed("t", 0, packed(b"a"))
    with pytest.raises(Refusal) as told:
        producer.flush()
    assert told.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(Refusal):
        producer.submit_packed("t", 0, packed(b"b"))


def test_a_partition_that_is_not_there_is_refused_at_once(cluster: ScriptedCluster, timed: Client) -> None:
    cluster.create("t", 2)
    with timed.producer() as producer, pytest.raises(PartitionNotFound):
        producer.submit_packed("t", 2, packed(b"a"))


def test_whoever_submits_waits_while_the_buffer_is_full(cluster: ScriptedCluster, timed: Client) -> None:
    partition = cluster.create("t").partitions[0]
    with timed.producer(buffer_bytes=1_000) as producer:
        for _ in range(50):
            producer.submit_packed("t", 0, packed(b"x" * 500))
        producer.flush()
    assert len(partition.values()) == 50


def test_a_buffer_that_stays_full_is_told_of(cluster: ScriptedCluster, timed: Client) -> None:
    cluster.create("t")
    producer = timed.producer(buffer_bytes=1_000, block_ms=0)
    producer.submit_packed("t", 0, packed(b"through"))
    producer.flush()
    cluster.down.add(1)
    producer.submit_packed("t", 0, packed(b"x" * 900))
    with pytest.raises(BufferFull):
        producer.submit_packed("t", 0, packed(b"x" * 900))
    producer.discard()


class Told:
    """The machine's clock, which says when the thread that made it asks for the time again."""

    def __init__(self) -> None:
        self._owner = threading.current_thread()
        self.was_asked = threading.Event()

    def now_ms(self) -> int:
        if threading.current_thread() is self._owner:
            self.was_asked.set()
        return MonotonicClock().now_ms()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("ending", ["commit", "detach"])
def test_a_transaction_whose_rows_the_thread_could_not_send_is_aborted(cluster: ScriptedCluster, ending: str) -> None:
    cluster.create("t")
    ticks, is_sending = Told(), threading.Event()

    def fail(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        """Not before whoever ends the transaction waits for it."""
        ticks.was_asked.clear()
        is_sending.set()
        assert ticks.was_asked.wait(60)
        raise MemoryError("no room")

    address = next(iter(cluster.nodes.values()))
    connected = Cluster(cluster.transport(), [address], settings=ClientSettings(), ticks=ticks)
    settings = ProducerSettings(transactional_id="tx")
    producer = Producer(connected, settings, clock=cluster.clock, chance=Random(1))
    producer.begin()
    producer.send("t", b"sent")
    cluster.fault(ApiKey.PRODUCE, fail)
    producer.submit_packed("t", 0, packed(b"not sent"))
    assert is_sending.wait(60)
    with pytest.raises(ClientClosed, match="the producer failed: MemoryError"):
        getattr(producer, ending)()
    producer.close()
    assert [marker_type for _, marker_type, _ in cluster.transactions.ended] == [MarkerType.ABORT]


def test_after_an_abort_the_next_transaction_takes_rows_again(cluster: ScriptedCluster, timed: Client) -> None:
    partition = cluster.create("t").partitions[0]
    partition.refusals.append(ErrorCode.INVALID_RECORD)
    with timed.producer(transactional_id="tx") as producer:
        producer.begin()
        producer.submit_packed("t", 0, packed(b"a"))
        with pytest.raises(Refusal):
            producer.commit()
        with producer.transaction():
            producer.submit_packed("t", 0, packed(b"b"))
    assert partition.values() == [b"b"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    thread = ServerThread(str(tmp_path / "broker"))
    thread.start()
    yield thread
    thread.stop()


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_batch_that_is_too_large_is_cut_until_its_parts_fit(
    server: ServerThread, transactional_id: str | None
) -> None:
    values = [b"%04d" % number + b"x" * 200 for number in range(320)]
    with ottla.connect(server.bootstrap) as client:
        client.admin().create_topic("t", partitions=1, configs={"max.message.bytes": "2000"})
        with client.producer(transactional_id=transactional_id) as producer:
            if transactional_id is not None:
                producer.begin()
            for first in range(0, 320, 32):
                producer.submit_packed("t", 0, packed(*values[first : first + 32]))
            producer.flush()
            if transactional_id is not None:
                producer.commit()
        with client.consumer(isolation="read_committed") as consumer:
            consumer.assign([("t", 0)])
            read = [record.value for record in consumer.records(idle_ms=300)]
    assert read == values


def test_a_record_that_is_too_large_by_itself_is_refused_and_those_around_it_are_not(
    server: ServerThread,
) -> None:
    with ottla.connect(server.bootstrap) as client:
        client.admin().create_topic("t", partitions=1, configs={"max.message.bytes": "2000"})
        producer = client.producer()
        producer.submit_packed("t", 0, packed(b"before", b"x" * 3_000, b"after"))
        with pytest.raises(RecordTooLarge):
            producer.flush()
        producer.close()
        with client.consumer() as consumer:
            consumer.assign([("t", 0)])
            assert [record.value for record in consumer.records(idle_ms=300)] == [b"before", b"after"]


def test_a_producer_that_borrows_its_connections_leaves_them_open(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    lent = Cluster(cluster.transport(), list(cluster.nodes.values()), settings=ClientSettings(), ticks=MonotonicClock())
    for number in range(2):
        producer = Producer(lent, ProducerSettings(), clock=cluster.clock, chance=Random(1), borrows_connections=True)
        producer.submit_packed("t", 0, packed(b"%d" % number))
        producer.close()
    assert cluster.topics["t"].partitions[0].values() == [b"0", b"1"]


def test_parts_take_the_place_of_what_was_cut_and_count_as_much() -> None:
    accumulator = Accumulator(batch_bytes=100, buffer_bytes=10_000, linger_ms=0, delivery_timeout_ms=1_000)
    key = TopicPartition("t", 0)
    rows = PackedRows(packed(b"a", b"b", b"c"))
    whole = [accumulator.batch(key, rows, records_bytes=100, now_ms=0) for _ in range(3)]
    accumulator.add(whole)
    (queue,), _ = accumulator.due(0)
    before = accumulator.bytes_waiting
    accumulator.split(queue, whole[1], [[(None, b"a", 0, ())], [(None, b"b", 0, ()), (None, b"c", 0, ())]])
    assert [len(each.records) for each in queue.batches] == [3, 1, 2, 3]
    for batch in list(queue.batches):
        accumulator.settle(queue, batch, error=None)
    assert before > 0
    assert accumulator.bytes_waiting == 0
