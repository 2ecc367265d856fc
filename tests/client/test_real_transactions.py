"""Transactions of both faces against real brokers: Ottla embedded and over sockets, Apache Kafka in both versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.blocking.producer import Producer
from ottla.client.client import AsyncClient
from ottla.client.errors import CommitFailed, NoGroup, ProducerFenced, UnsupportedVersion
from ottla.client.progress import Progress
from ottla.client.settings import Isolation
from ottla.client.values import Committed, OffsetSpec, OpenTransaction, TopicPartition
from ottla.errors import InvalidRequest, InvalidTransactionState, TransactionalIdNotFound
from ottla.testing.server_thread import ServerThread
from tests.client.kafka_server import kafka_server
from tests.client.test_transaction_offsets import Member
from tests.peers.tools import Tools

CONFIG = {"group.initial.rebalance.delay.ms": "0"}
KAFKA_CONFIG = "group.initial.rebalance.delay.ms=0\n"
_numbers = count()


class Target:
    """A running broker, and the ways to it."""

    def __init__(self, blocking: Callable[[], Client], background: Callable[[], AsyncClient], name: str) -> None:
        self.blocking = blocking
        self.background = background
        self.name = name


@pytest.fixture(scope="module")
def kafka_address(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_server(Tools(java, kafka_jars), tmp_path_factory.mktemp("kafka"), KAFKA_CONFIG) as address:
        yield address


@pytest.fixture(scope="module")
def old_kafka_address(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("kafka-1")
    features = ["transaction.version=1"]
    with kafka_server(Tools(java, kafka_jars), root, KAFKA_CONFIG, features) as address:
        yield address


@pytest.fixture(
    params=[
        "embedded",
        "sockets",
        pytest.param("kafka", marks=[pytest.mark.peers, pytest.mark.slow]),
        pytest.param("old_kafka", marks=[pytest.mark.peers, pytest.mark.slow]),
    ],
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    name: str = request.param
    if name.endswith("kafka"):
        address = request.getfixturevalue(f"{name}_address")
        yield Target(lambda: ottla.connect(address), lambda: ottla.connect_async(address), name)
    elif name == "sockets":
        server = ServerThread(str(tmp_path / "data"), CONFIG)
        server.start()
        yield Target(lambda: ottla.connect(server.bootstrap), lambda: ottla.connect_async(server.bootstrap), name)
        server.stop()
    else:
        path = tmp_path / "data"
        yield Target(lambda: ottla.open(path, config=CONFIG), lambda: ottla.open_async(path, config=CONFIG), name)


@pytest.fixture
def real(target: Target) -> Iterator[Client]:
    with target.blocking() as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that nobody else has."""
    return f"name-{next(_numbers)}"


@pytest.fixture
def topic(real: Client, name: str) -> str:
    real.admin().create_topic(name, partitions=2)
    return name


def read(client: Client, topic: str, isolation: Isolation = "read_committed") -> list[tuple[int, bytes | None]]:
    """What is there now, by partition."""
    admin = client.admin()
    ends = admin.list_offsets({(topic, 0): OffsetSpec.LATEST, (topic, 1): OffsetSpec.LATEST}, isolation=isolation)
    found: list[tuple[int, bytes | None]] = []
    with client.consumer(isolation=isolation) as consumer:
        consumer.assign(list(ends))
        while any(consumer.position(*key) < end.offset for key, end in ends.items() if end is not None):
            found += [(record.partition, record.value) for record in consumer.poll(1_000)]
    return sorted(found, key=lambda each: each[0])


def attempt(producer: Producer, topic: str, *values: bytes) -> None:
    """A transaction that its user gives up."""
    with producer.transaction():
        for value in values:
            producer.send(topic, value, partition=0)
        raise ValueError("given up")


# --- all or nothing --------------------------------------------------------------------------------------


def test_committed_records_are_seen_and_aborted_ones_are_not(real: Client, topic: str, name: str) -> None:
    with real.producer(transactional_id=name) as producer:
        with producer.transaction():
            producer.send(topic, b"a", partition=0)
            producer.send(topic, b"b", partition=1)
        with pytest.raises(ValueError, match="given up"):
            attempt(producer, topic, b"x", b"y")
        with producer.transaction():
            for number in range(5):
                producer.submit(topic, b"%d" % number, partition=1)

    assert read(real, topic) == [(0, b"a"), (1, b"b"), *((1, b"%d" % number) for number in range(5))]
    assert (0, b"x") in read(real, topic, "read_uncommitted")


def test_transactions_have_the_version_that_the_cluster_runs(
    target: Target, real: Client, topic: str, name: str
) -> None:
    """In the second version each transaction has an epoch of its own."""
    with real.producer(transactional_id=name) as producer:
        for _ in range(3):
            with producer.transaction():
                producer.send(topic, b"1", partition=0)
    found = real.admin().describe_transaction(name)

    assert found is not None
    assert found.producer_epoch == (0 if target.name == "old_kafka" else 3)


def test_many_small_transactions_leave_every_record_once_and_in_order(real: Client, topic: str, name: str) -> None:
    with real.producer(transactional_id=name) as producer:
        for number in range(60):
            if number % 3 == 2:
                with pytest.raises(ValueError, match="given up"):
                    attempt(producer, topic, b"no")
            else:
                with producer.transaction():
                    producer.send(topic, b"%d" % number, partition=0)
                    producer.submit(topic, b"%d" % number, partition=1)

    kept = [b"%d" % number for number in range(60) if number % 3 != 2]
    assert read(real, topic) == [(partition, value) for partition in range(2) for value in kept]


def test_an_open_transaction_holds_back_readers_of_committed_records_only(real: Client, topic: str, name: str) -> None:
    plain = real.producer()
    plain.send(topic, b"before", partition=0)
    producer = real.producer(transactional_id=name)
    producer.begin()
    producer.send(topic, b"open", partition=0)
    plain.send(topic, b"after", partition=0)

    held_back, seen = read(real, topic), read(real, topic, "read_uncommitted")
    producer.commit()

    assert held_back == [(0, b"before")]
    assert [value for _, value in seen] == [b"before", b"open", b"after"]
    with real.consumer(isolation="read_committed") as consumer:
        consumer.assign([(topic, 0)])
        values: list[bytes | None] = []
        while len(values) < 3:
            values += [record.value for record in consumer.poll(1_000)]
    assert values == [b"before", b"open", b"after"]


def test_lag_and_high_watermark_of_a_committed_reader_end_at_the_last_stable_offset(
    real: Client, topic: str, name: str
) -> None:
    real.producer().send_batch(topic, [ottla.NewRecord(b"%d" % number, partition=0) for number in range(3)])
    producer = real.producer(transactional_id=name)
    producer.begin()
    producer.send_batch(topic, [ottla.NewRecord(b"open", partition=0)] * 4)
    real.admin().alter_group_offsets(name, {(topic, 0): 1})
    with real.consumer(isolation="read_committed") as consumer:
        consumer.assign([(topic, 0)])
        while consumer.position(topic, 0) < 3:
            consumer.poll(1_000)
        stable = consumer.high_watermark(topic, 0)

    key = TopicPartition(topic, 0)
    assert stable == 3
    assert real.admin().group_lag(name, isolation="read_committed")[key].lag == 2
    assert real.admin().group_lag(name)[key].lag == 6
    producer.abort()


def test_a_reader_moves_past_markers_and_aborted_records(real: Client, topic: str, name: str) -> None:
    with real.producer(transactional_id=name) as producer:
        with producer.transaction():
            producer.send(topic, b"a", partition=0)
        with pytest.raises(ValueError, match="given up"):
            attempt(producer, topic, b"x")
        with producer.transaction():
            producer.send(topic, b"b", partition=0)
    values: list[bytes | None] = []
    with real.consumer(isolation="read_committed") as consumer:
        consumer.assign([(topic, 0)])
        while (position := consumer.position(topic, 0)) < 6:
            values += [record.value for record in consumer.poll(1_000)]

    assert values == [b"a", b"b"]
    assert position == 6


# --- fencing ---------------------------------------------------------------------------------------------


def test_a_second_producer_of_an_id_fences_the_first_and_aborts_its_transaction(
    real: Client, topic: str, name: str
) -> None:
    zombie = real.producer(transactional_id=name)
    zombie.begin()
    zombie.send(topic, b"zombie", partition=0)
    with real.producer(transactional_id=name) as successor, successor.transaction():
        successor.send(topic, b"successor", partition=0)

    with pytest.raises(ProducerFenced):
        zombie.send(topic, b"late", partition=0)
    with pytest.raises(ProducerFenced):
        zombie.commit()
    assert read(real, topic) == [(0, b"successor")]


def test_a_fenced_producer_finds_out_at_its_commit(real: Client, topic: str, name: str) -> None:
    zombie = real.producer(transactional_id=name)
    zombie.begin()
    zombie.send(topic, b"zombie", partition=0)
    real.producer(transactional_id=name).begin()

    with pytest.raises(ProducerFenced):
        zombie.commit()
    assert read(real, topic) == []


# --- positions of groups ---------------------------------------------------------------------------------


def test_positions_count_with_the_transaction(real: Client, topic: str, name: str) -> None:
    with real.producer(transactional_id=name) as producer:
        with producer.transaction():
            producer.send_offsets({(topic, 0): 3}, group=name)
        producer.begin()
        producer.send_offsets({(topic, 0): 9}, group=name)
        producer.abort()

    assert {key.partition: entry.offset for key, entry in real.admin().group_offsets(name).items()} == {0: 3}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_members_positions_are_stored_and_a_strangers_are_not(
    real: Client, topic: str, name: str, protocol: str
) -> None:
    real.producer().send_batch(topic, [ottla.NewRecord(b"%d" % number, partition=0) for number in range(3)])
    with (
        real.producer(transactional_id=name) as producer,
        real.consumer(group=name, protocol=protocol, isolation="read_committed") as consumer,
    ):
        consumer.subscribe([topic])
        count = 0
        while count < 3:
            count += len(consumer.poll(1_000))
        with producer.transaction():
            producer.send_offsets(consumer)
        producer.begin()
        with pytest.raises(CommitFailed):
            producer.send_offsets(Progress(name, {TopicPartition(topic, 0): Committed(1)}, Member(1)))
        producer.abort()

    assert real.admin().group_offsets(name)[TopicPartition(topic, 0)].offset == 3


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_is_copied_once_although_a_turn_was_given_up(
    real: Client, topic: str, name: str, protocol: str
) -> None:
    copy = f"{name}-copy"
    real.admin().create_topic(copy, partitions=2)
    real.producer().send_batch(topic, [ottla.NewRecord(b"%d" % each, partition=each % 2) for each in range(300)])
    settings = {"protocol": protocol, "records_max": 40}
    seen: set[ottla.RecordPosition] = set()
    with real.process(topic, group=name, transactional_id=name, consumer=settings) as work:
        for turn, records in enumerate(work):
            for record in records:
                work.send(copy, record.value, partition=record.partition)
            if turn == 2:
                break
            seen.update(record.position for record in records)
        for records in work:
            for record in records:
                work.send(copy, record.value, partition=record.partition)
            seen.update(record.position for record in records)
            if len(seen) == 300:
                work.stop()

    assert read(real, copy) == [(part, b"%d" % each) for part in range(2) for each in range(part, 300, 2)]


def test_a_consumer_without_a_group_has_nothing_to_store(real: Client, topic: str, name: str) -> None:
    with real.producer(transactional_id=name) as producer, producer.transaction(), pytest.raises(NoGroup):
        producer.send_offsets(real.consumer())


# --- the async face --------------------------------------------------------------------------------------


def test_the_async_producer_commits_aborts_and_is_fenced(target: Target, name: str) -> None:
    async def main() -> list[bytes | None]:
        async with target.background() as client:
            await client.admin().create_topic(name, partitions=1)
            async with client.producer(transactional_id=name) as producer:
                async with producer.transaction():
                    await producer.send(name, b"1")
                    await producer.submit(name, b"2")
                await producer.begin()
                await producer.submit(name, b"3")
                await producer.abort()
                await producer.begin()
                await producer.send(name, b"zombie")
                async with client.producer(transactional_id=name) as successor, successor.transaction():
                    await successor.send(name, b"4")
                with pytest.raises(ProducerFenced):
                    await producer.commit()
            values: list[bytes | None] = []
            async with client.consumer(isolation="read_committed") as consumer:
                await consumer.assign([(name, 0)])
                while len(values) < 3:
                    values += [record.value for record in await consumer.poll(1_000)]
            return values

    assert asyncio.run(main()) == [b"1", b"2", b"4"]


def test_a_cancelled_block_of_the_async_producer_is_aborted(target: Target, name: str) -> None:
    async def main() -> str:
        async with target.background() as client:
            await client.admin().create_topic(name, partitions=1)
            async with client.producer(transactional_id=name) as producer:
                sent = asyncio.Event()

                async def work() -> None:
                    async with producer.transaction():
                        await producer.send(name, b"1")
                        sent.set()
                        await asyncio.Event().wait()

                async with asyncio.TaskGroup() as tasks:
                    task = tasks.create_task(work())
                    await sent.wait()
                    task.cancel()
            described = await client.admin().describe_transaction(name)
            assert described is not None
            return described.state

    assert asyncio.run(main()) in ("PrepareAbort", "CompleteAbort")


# --- the admin -------------------------------------------------------------------------------------------


def test_transactions_are_listed_and_described(real: Client, topic: str, name: str) -> None:
    admin = real.admin()
    with real.producer(transactional_id=name, transaction_timeout_ms=45_000) as producer, producer.transaction():
        producer.send(topic, b"1", partition=1)
        (listed,) = [each for each in admin.list_transactions() if each.transactional_id == name]
        ongoing = [each.transactional_id for each in admin.list_transactions(states=["ongoing"])]
        mine = admin.list_transactions(producer_ids=[listed.producer_id])
        matching = [each.transactional_id for each in admin.list_transactions(pattern=f"{name}|nothing")]
        old = [each.transactional_id for each in admin.list_transactions(older_than_ms=3_600_000)]
        found = admin.describe_transaction(name)

    assert listed.state == "Ongoing"
    assert name in ongoing
    assert [each.transactional_id for each in mine] == [name]
    assert matching == [name]
    assert name not in old
    assert found is not None
    assert (found.state, found.timeout_ms, found.producer_id) == ("Ongoing", 45_000, listed.producer_id)
    assert found.partitions == (TopicPartition(topic, 1),)
    assert found.started_ms is not None
    assert admin.describe_transactions([name, "nobody"])["nobody"] is None


@pytest.mark.usefixtures("topic")
def test_a_state_that_does_not_exist_is_refused(real: Client) -> None:
    with pytest.raises(InvalidRequest, match="no state nonsense"):
        real.admin().list_transactions(states=["nonsense"])


def test_the_producers_of_a_partition_are_described(real: Client, topic: str, name: str) -> None:
    with real.producer(transactional_id=name) as producer:
        producer.begin()
        place = producer.send(topic, b"1", partition=0)
        found = real.admin().describe_producers([(topic, 0), (topic, 1)])
        producer.abort()

    (one,) = found[TopicPartition(topic, 0)]
    assert (one.last_sequence, one.open_since_offset) == (0, place.offset)
    assert found[TopicPartition(topic, 1)] == []


def test_an_admin_aborts_by_id_and_fences(real: Client, topic: str, name: str) -> None:
    producer = real.producer(transactional_id=name)
    producer.begin()
    producer.send(topic, b"1", partition=0)

    before = real.admin().abort_transaction(name)

    assert (before.state, before.partitions) == ("Ongoing", (TopicPartition(topic, 0),))
    with pytest.raises(ProducerFenced):
        producer.commit()
    after = real.admin().describe_transaction(name)
    assert after is not None
    assert (after.state in ("CompleteAbort", "Empty"), after.timeout_ms) == (True, 60_000)
    assert read(real, topic) == []


def test_an_id_that_nobody_has_used_is_not_made_by_aborting_it(real: Client, topic: str, name: str) -> None:
    with pytest.raises(TransactionalIdNotFound):
        real.admin().abort_transaction("nobody")

    assert real.admin().describe_transaction("nobody") is None


def test_an_admin_aborts_by_where_a_transaction_began(real: Client, topic: str, name: str) -> None:
    producer = real.producer(transactional_id=name)
    producer.begin()
    place = producer.send(topic, b"1", partition=0)
    real.producer().send(topic, b"plain", partition=0)

    with pytest.raises(InvalidRequest, match=rf"begin at \[{place.offset}\]"):
        real.admin().abort_hanging(topic, 0, start_offset=place.offset + 1)
    gone = real.admin().abort_hanging(topic, 0, start_offset=place.offset)

    assert gone.open_since_offset == place.offset
    assert read(real, topic) == [(0, b"plain")]


# --- several as one --------------------------------------------------------------------------------------


def test_several_transactions_are_committed_as_one_or_refused_by_other_brokers(
    target: Target, real: Client, topic: str, name: str
) -> None:
    left_open: list[OpenTransaction] = []
    for slot in range(2):
        with real.producer(transactional_id=f"{name}/{slot}") as producer:
            producer.begin()
            producer.send(topic, b"%d" % slot, partition=slot)
            one = producer.detach()
            assert one is not None
            left_open.append(one)
    admin = real.admin()
    if target.name.endswith("kafka"):
        with pytest.raises(UnsupportedVersion, match="Ottla's own"):
            admin.commit_together(name, 0, left_open)
        for one in left_open:
            admin.abort_transaction(one.transactional_id)
        return
    admin.keep_transactions(name, left_open)
    assert read(real, topic) == []

    assert admin.commit_together(name, 0, left_open) is False
    assert admin.commit_together(name, 0, left_open) is True
    assert (admin.is_committed(name, 0), admin.is_committed(name, 1), admin.last_committed(name)) == (True, False, 0)
    assert read(real, topic) == [(0, b"0"), (1, b"1")]
    with pytest.raises(InvalidTransactionState):
        admin.keep_transactions(name, [one._replace(producer_epoch=1) for one in left_open])


def test_one_transaction_that_is_gone_keeps_the_others_from_being_committed(
    target: Target, real: Client, topic: str, name: str
) -> None:
    if target.name.endswith("kafka"):
        pytest.skip("an API of Ottla's own")
    left_open: list[OpenTransaction] = []
    for slot in range(2):
        with real.producer(transactional_id=f"{name}/{slot}") as producer:
            producer.begin()
            producer.send(topic, b"%d" % slot, partition=slot)
            one = producer.detach()
            assert one is not None
            left_open.append(one)
    real.admin().abort_transaction(left_open[1].transactional_id)

    with pytest.raises(ProducerFenced):
        real.admin().commit_together(name, 0, left_open)

    assert real.admin().is_committed(name, 0) is False
    assert read(real, topic) == []
