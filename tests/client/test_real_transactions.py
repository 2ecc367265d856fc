"""Transactions of both faces against real brokers: Ottla and Apache Kafka, each in both versions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

import ottla
from ottla.client.blocking.client import Client, in_process
from ottla.client.blocking.producer import Producer
from ottla.client.client import AsyncClient, in_process_async
from ottla.client.errors import CommitFailed, NoGroup, ProducerFenced, TransactionFailed, UnsupportedVersion
from ottla.client.producer import AsyncProducer
from ottla.client.progress import Progress
from ottla.client.settings import Isolation
from ottla.client.transport import Reply
from ottla.client.values import Committed, OffsetSpec, OpenTransaction, TopicPartition
from ottla.embedded import EmbeddedBroker
from ottla.errors import InvalidRequest, InvalidTransactionState, TransactionalIdNotFound
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.schema import Message
from ottla.testing.server_thread import ServerThread
from tests.client.kafka_server import kafka_server
from tests.client.lossy_broker import LossyBroker
from tests.client.test_transaction_offsets import Member
from tests.peers.tools import Tools

CONFIG = {"group.initial.rebalance.delay.ms": "0"}
KAFKA_CONFIG = """\
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
"""
LOOK_AGAIN_SECONDS = 0.05
LOOKS_MAX = 1_200
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
        "old_embedded",
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
    elif name == "old_embedded":
        broker = EmbeddedBroker(tmp_path / "data", CONFIG)
        between = LossyBroker(broker)
        between.trouble = without_features
        yield Target(lambda: in_process(between), lambda: in_process_async(between), name)
        broker.close()
    else:
        path = tmp_path / "data"
        yield Target(lambda: ottla.open(path, config=CONFIG), lambda: ottla.open_async(path, config=CONFIG), name)


def without_features(api_key: ApiKey, message: Message, carry_out: Callable[[], Reply]) -> Reply:
    """A broker that does not tell of the second version of transactions, so that the first is used."""
    reply = carry_out()
    if isinstance(reply, ApiVersionsResponse):
        return replace(reply, finalized_features=())
    return reply


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
    """What is there when every transaction that was ended has its markers, by partition."""
    admin = client.admin()
    wait_for_markers(client)
    ends = admin.list_offsets({(topic, 0): OffsetSpec.LATEST, (topic, 1): OffsetSpec.LATEST}, isolation=isolation)
    found: list[tuple[int, bytes | None]] = []
    with client.consumer(isolation=isolation) as consumer:
        consumer.assign(list(ends))
        while any(consumer.position(*key) < end.offset for key, end in ends.items() if end is not None):
            found += [(record.partition, record.value) for record in consumer.poll(1_000)]
    return sorted(found, key=lambda each: each[0])


def wait_for_markers(client: Client) -> None:
    """Until no end of a transaction is under way: Kafka answers it before its markers are written."""
    ending = ["PrepareCommit", "PrepareAbort"]
    look_until(lambda: not client.admin().list_transactions(states=ending), "the markers of a transaction were written")


def look_until(is_so: Callable[[], bool], what: str) -> None:
    never = threading.Event()
    for _ in range(LOOKS_MAX):
        if is_so():
            return
        never.wait(LOOK_AGAIN_SECONDS)
    raise AssertionError(f"it never came to this: {what}")


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
    assert found.producer_epoch == (0 if target.name.startswith("old_") else 3)


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

    with pytest.raises(TransactionFailed, match="another producer has taken over"):
        zombie.send(topic, b"late", partition=0)
    with pytest.raises(ProducerFenced, match="another one has taken over"):
        zombie.commit()
    with pytest.raises(ProducerFenced):
        zombie.begin()
    assert read(real, topic) == [(0, b"successor")]


def test_a_fenced_producer_finds_out_at_its_commit(real: Client, topic: str, name: str) -> None:
    zombie = real.producer(transactional_id=name)
    zombie.begin()
    zombie.send(topic, b"zombie", partition=0)
    real.producer(transactional_id=name).begin()

    with pytest.raises(ProducerFenced):
        zombie.commit()
    assert read(real, topic) == []


@pytest.mark.parametrize("call", ["commit", "abort"])
def test_a_fenced_producer_leaves_its_successors_open_transaction_alone(
    real: Client, topic: str, name: str, call: str
) -> None:
    zombie = real.producer(transactional_id=name)
    zombie.begin()
    zombie.send(topic, b"zombie", partition=0)
    with real.producer(transactional_id=name) as successor, successor.transaction():
        successor.send(topic, b"a", partition=0)
        with pytest.raises(ProducerFenced, match="another one has taken over"):
            getattr(zombie, call)()
        successor.send(topic, b"b", partition=1)

    assert read(real, topic) == [(0, b"a"), (1, b"b")]


def test_a_producer_that_was_replaced_between_two_transactions_is_fenced_and_changes_nothing(
    real: Client, topic: str, name: str
) -> None:
    zombie = real.producer(transactional_id=name)
    with zombie.transaction():
        zombie.send(topic, b"1", partition=0)
    zombie.begin()
    successor = real.producer(transactional_id=name)
    successor.begin()

    with pytest.raises(TransactionFailed):
        zombie.send(topic, b"late", partition=0)
    with pytest.raises(ProducerFenced, match="another one has taken over"):
        zombie.abort()
    successor.send(topic, b"2", partition=0)
    successor.commit()
    assert read(real, topic) == [(0, b"1"), (0, b"2")]


# --- transactions that take too long ---------------------------------------------------------------------


def wait_until(client: Client, name: str, state: str) -> None:
    """Until the transaction has ended so, and its markers are written."""

    def has_ended() -> bool:
        found = client.admin().describe_transaction(name)
        assert found is not None
        return found.state == state

    look_until(has_ended, f"the transaction is {state}")


def overdue(real: Client, topic: str, name: str) -> Producer:
    """A producer whose transaction has taken too long; it has not heard of it."""
    made = real.producer(transactional_id=name, transaction_timeout_ms=1_000)
    with made.transaction():
        made.send(topic, b"before", partition=0)
    made.begin()
    made.send(topic, b"slow", partition=0)
    wait_until(real, name, "CompleteAbort")
    return made


@pytest.fixture
def forgiving(target: Target) -> None:
    """A broker that lets whoever was too slow go on."""
    if target.name == "old_kafka":
        pytest.skip("Apache Kafka fences it in the first version")


@pytest.fixture
def slow(forgiving: None, real: Client, topic: str, name: str) -> Producer:
    return overdue(real, topic, name)


@pytest.mark.peers
@pytest.mark.slow
def test_apache_kafka_in_the_first_version_fences_whoever_was_too_slow(old_kafka_address: str, name: str) -> None:
    with ottla.connect(old_kafka_address) as client:
        client.admin().create_topic(name, partitions=2)
        slow = overdue(client, name, name)

        with pytest.raises(TransactionFailed):
            slow.send(name, b"late", partition=0)
        with pytest.raises(ProducerFenced, match="or transaction_timeout_ms=1000 is over; it cannot be used any more"):
            slow.commit()
        assert read(client, name) == [(0, b"before")]


def goes_on(client: Client, producer: Producer, topic: str, name: str) -> None:
    for value in (b"next", b"last"):
        with producer.transaction():
            producer.send(topic, value, partition=0)
            producer.send(topic, value, partition=1)
    # Kafka answers a commit before its markers are there.
    wait_until(client, name, "CompleteCommit")


SEEN = [(0, b"before"), (0, b"next"), (0, b"last"), (1, b"next"), (1, b"last")]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_send_that_comes_too_late_fails_and_the_producer_goes_on_after_its_abort(
    real: Client, slow: Producer, topic: str, name: str, partition: int
) -> None:
    with pytest.raises(TransactionFailed, match="transaction_timeout_ms=1000"):
        slow.send(topic, b"late", partition=partition)
    slow.abort()
    goes_on(real, slow, topic, name)

    assert read(real, topic) == SEEN


def test_an_abort_that_comes_too_late_is_like_any_other(real: Client, slow: Producer, topic: str, name: str) -> None:
    slow.abort()
    goes_on(real, slow, topic, name)

    assert read(real, topic) == SEEN


def test_a_commit_that_comes_too_late_says_so_and_the_next_transaction_works(
    real: Client, slow: Producer, topic: str, name: str
) -> None:
    with pytest.raises(
        TransactionFailed, match="took longer than transaction_timeout_ms=1000 and was aborted: nothing"
    ):
        slow.commit()
    goes_on(real, slow, topic, name)

    assert read(real, topic) == SEEN


def test_positions_that_come_too_late_do_not_count_and_the_producer_goes_on(
    real: Client, slow: Producer, topic: str, name: str
) -> None:
    with pytest.raises(TransactionFailed, match="transaction_timeout_ms=1000"):
        slow.send_offsets({(topic, 0): 5}, group=name)
    with pytest.raises(TransactionFailed, match="was aborted: nothing of it counts"):
        slow.commit()
    with slow.transaction():
        slow.send_offsets({(topic, 0): 6}, group=name)
    wait_until(real, name, "CompleteCommit")

    assert real.admin().group_offsets(name)[TopicPartition(topic, 0)].offset == 6


def test_a_producer_that_was_too_slow_and_then_replaced_is_fenced(real: Client, topic: str, name: str) -> None:
    late = overdue(real, topic, name)
    with real.producer(transactional_id=name) as successor, successor.transaction():
        successor.send(topic, b"successor", partition=0)
        with pytest.raises(ProducerFenced, match="another one has taken over; it cannot be used any more"):
            late.commit()

    assert read(real, topic) == [(0, b"before"), (0, b"successor")]


@pytest.mark.usefixtures("forgiving")
def test_a_loop_goes_on_by_itself_after_a_turn_that_took_too_long(real: Client, topic: str, name: str) -> None:
    copy = f"{name}-copy"
    real.admin().create_topic(copy, partitions=2)
    real.producer().send_batch(topic, [ottla.NewRecord(b"%d" % each, partition=each % 2) for each in range(40)])
    settings = {"protocol": "classic", "records_max": 10}
    turns = 0
    seen: set[ottla.RecordPosition] = set()
    slow = {"transaction_timeout_ms": 1_500}
    with real.process(topic, group=name, transactional_id=name, consumer=settings, producer=slow) as work:
        for turns, records in enumerate(work):
            for record in records:
                work.send(copy, record.value, partition=record.partition)
            if turns in (1, 2):
                work.producer.flush()
                wait_until(real, name, "CompleteAbort")
            else:
                seen.update(record.position for record in records)
            if len(seen) == 40:
                work.stop()

    assert turns >= 5
    assert read(real, copy) == [(part, b"%d" % each) for part in range(2) for each in range(part, 40, 2)]


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
                with pytest.raises(ProducerFenced, match="another one has taken over"):
                    await producer.commit()
            values: list[bytes | None] = []
            async with client.consumer(isolation="read_committed") as consumer:
                await consumer.assign([(name, 0)])
                while len(values) < 3:
                    values += [record.value for record in await consumer.poll(1_000)]
            return values

    assert asyncio.run(main()) == [b"1", b"2", b"4"]


@pytest.mark.usefixtures("forgiving")
def test_the_async_producer_goes_on_after_a_transaction_that_took_too_long(target: Target, name: str) -> None:
    async def aborted(client: AsyncClient) -> None:
        while (found := await client.admin().describe_transaction(name)) and found.state != "CompleteAbort":
            continue

    async def too_long(client: AsyncClient, producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(name, b"slow")
            await aborted(client)
            await producer.send(name, b"late")

    async def main() -> list[bytes | None]:
        async with target.background() as client:
            await client.admin().create_topic(name, partitions=1)
            async with client.producer(transactional_id=name, transaction_timeout_ms=1_000) as producer:
                with pytest.raises(TransactionFailed, match="transaction_timeout_ms=1000") as caught:
                    await too_long(client, producer)
                assert "it had taken too long and was aborted; the next one may begin" in caught.value.__notes__
                async with producer.transaction():
                    await producer.send(name, b"next")
                await producer.begin()
                await producer.send(name, b"slow again")
                await aborted(client)
                with pytest.raises(TransactionFailed, match="was aborted: nothing of it counts"):
                    await producer.commit()
                async with producer.transaction():
                    await producer.send(name, b"last")
            values: list[bytes | None] = []
            async with client.consumer(isolation="read_committed") as consumer:
                await consumer.assign([(name, 0)])
                while len(values) < 2:
                    values += [record.value for record in await consumer.poll(1_000)]
            return values

    assert asyncio.run(main()) == [b"next", b"last"]


def test_a_block_of_an_async_producer_that_was_replaced_says_that_it_is_fenced(target: Target, name: str) -> None:
    async def replaced(client: AsyncClient, producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(name, b"zombie")
            async with client.producer(transactional_id=name) as successor, successor.transaction():
                await successor.send(name, b"1")
            await producer.send(name, b"late")

    async def main() -> None:
        async with target.background() as client:
            await client.admin().create_topic(name, partitions=1)
            async with client.producer(transactional_id=name) as producer:
                with pytest.raises(ProducerFenced, match="another one has taken over"):
                    await replaced(client, producer)

    asyncio.run(main())


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
