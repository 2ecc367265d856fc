"""Both faces over real sockets: the same story, and connections that break, stall or talk nonsense."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ottla.client.blocking.client import Client, connect
from ottla.client.client import connect_async
from ottla.client.errors import ClientClosed, NetworkException, NoBrokerReachable, RequestTimedOut
from ottla.client.values import NO_OFFSET, RecordPosition
from ottla.errors import OttlaError, ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import Request
from tests.client.scripted_broker import ScriptedCluster
from tests.client.socket_broker import SocketBroker, _Session

WAIT_SECONDS = 30
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}


@pytest.fixture
def broker(cluster: ScriptedCluster) -> Iterator[SocketBroker]:
    cluster.create("t", 3)
    with SocketBroker(cluster) as running:
        yield running


@pytest.fixture
def wired(broker: SocketBroker) -> Iterator[Client]:
    """A blocking client of the socket broker."""
    with connect(broker.bootstrap, **QUICK) as client:
        yield client


def _once(api_key: ApiKey, deed: Callable[[_Session], None]) -> Callable[[_Session, Request], bool]:
    """Does something instead of answering the first request of an API."""
    done: list[bool] = []

    def mischief(session: _Session, request: Request) -> bool:
        if request.header.api_key is not api_key or done:
            return False
        done.append(True)
        deed(session)
        return True

    return mischief


def _hang_up(session: _Session) -> None:
    assert session.transport is not None
    session.transport.abort()


def _talk_nonsense(session: _Session) -> None:
    assert session.transport is not None
    session.transport.write(b"\xff\xff\xff\xff nonsense")


def _say_nothing(session: _Session) -> None:
    return None


@pytest.mark.parametrize("piece_bytes", [1 << 30, 7])
def test_a_whole_story_over_a_blocking_socket(broker: SocketBroker, wired: Client, piece_bytes: int) -> None:
    broker.piece_bytes = piece_bytes
    admin = wired.admin()
    admin.create_topic("new", partitions=2)
    producer = wired.producer()
    places = producer.send_batch("new", [b"%d" % number for number in range(100)])
    consumer = wired.consumer()
    consumer.subscribe(["new"])

    read = list(consumer.records(idle_ms=0))

    assert [record.value for record in read] == [b"%d" % number for number in range(100)]
    assert [record.position for record in read] == places


def test_a_whole_story_over_an_async_socket(broker: SocketBroker) -> None:
    async def story() -> tuple[list[RecordPosition], list[RecordPosition]]:
        async with connect_async(broker.bootstrap, **QUICK) as client:
            await client.admin().create_topic("new", partitions=2)
            async with client.producer() as producer:
                places = [await producer.send("new", b"%d" % number, b"k") for number in range(10)]
                places += await producer.send_batch("new", [b"x", b"y"])
                places.append(await (await producer.submit("new", b"z", partition=1)))
            async with client.consumer() as consumer:
                await consumer.subscribe(["new"])
                return places, [record.position async for record in consumer.records(idle_ms=0)]

    places, read = asyncio.run(story())

    assert len(places) == 13
    assert set(places) == set(read)


def test_many_tasks_share_a_producer_and_its_batches(broker: SocketBroker) -> None:
    async def story() -> list[RecordPosition]:
        async with connect_async(broker.bootstrap) as client, client.producer() as producer:
            await producer.send_to("t", 0, b"first")
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(producer.send_to("t", 0, b"%d" % n)) for n in range(200)]
            return [task.result() for task in tasks]

    places = asyncio.run(story())

    assert [place.offset for place in places] == list(range(1, 201))
    assert broker.cluster.count(ApiKey.PRODUCE) < 20


def test_a_batch_larger_than_any_socket_buffer_arrives(broker: SocketBroker, wired: Client) -> None:
    value = bytes(range(256)) * 40_000

    place = wired.producer(delivery_timeout_ms=60_000).send("t", value, partition=0)
    consumer = wired.consumer()
    consumer.assign([("t", 0)])

    assert place.offset == 0
    assert [record.value for record in consumer.poll(10_000)] == [value]


@pytest.mark.parametrize("deed", [_hang_up, _talk_nonsense])
def test_a_fetch_survives_a_bad_connection(
    broker: SocketBroker, wired: Client, deed: Callable[[_Session], None]
) -> None:
    broker.cluster.write("t", 0, b"x")
    broker.mischief = _once(ApiKey.FETCH, deed)
    consumer = wired.consumer()
    consumer.assign([("t", 0)])

    def read() -> list[bytes | None]:
        try:
            return [record.value for record in consumer.poll(5_000)]
        except ProtocolError:
            # Nonsense is told; what was asked for comes with the next poll, over a new connection.
            return [record.value for record in consumer.poll(5_000)]

    assert read() == [b"x"]


def test_a_produce_survives_a_connection_that_is_hung_up(broker: SocketBroker, wired: Client) -> None:
    broker.mischief = _once(ApiKey.PRODUCE, _hang_up)

    assert wired.producer().send("t", b"x", partition=0).offset == 0
    assert broker.cluster.partition("t").values() == [b"x"]


def test_an_async_produce_survives_a_connection_that_is_hung_up(broker: SocketBroker) -> None:
    broker.mischief = _once(ApiKey.PRODUCE, _hang_up)

    async def story() -> int:
        async with connect_async(broker.bootstrap, **QUICK) as client, client.producer() as producer:
            return (await producer.send("t", b"x", partition=0)).offset

    assert asyncio.run(story()) == 0


def test_a_broker_that_says_nothing_is_left_after_the_request_timeout(broker: SocketBroker) -> None:
    broker.mischief = _once(ApiKey.DESCRIBE_CLUSTER, _say_nothing)

    with connect(broker.bootstrap, request_timeout_ms=50) as client, pytest.raises(OttlaError, match="50 ms"):
        client.admin().cluster()


def test_an_async_request_to_a_silent_broker_ends_too(broker: SocketBroker) -> None:
    broker.mischief = _once(ApiKey.DESCRIBE_CLUSTER, _say_nothing)

    async def story() -> None:
        async with connect_async(broker.bootstrap, request_timeout_ms=50) as client:
            await client.admin().cluster()

    with pytest.raises(OttlaError, match="50 ms"):
        asyncio.run(story())


def test_acks_0_does_not_disturb_the_answers_that_follow(broker: SocketBroker, wired: Client) -> None:
    producer = wired.producer(acks=0)

    for number in range(5):
        assert producer.send("t", b"%d" % number, partition=0).offset == NO_OFFSET
    assert producer.send("t", b"last", partition=1).offset == NO_OFFSET
    producer.close()
    consumer = wired.consumer()
    consumer.assign([("t", 0)])

    found: list[bytes | None] = []
    while len(found) < 5:
        found += [record.value for record in consumer.poll(WAIT_SECONDS * 1000)]
    assert found == [b"%d" % number for number in range(5)]


def test_an_address_where_nobody_listens_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with connect(address) as client, pytest.raises(NoBrokerReachable, match=address):
            client.admin().list_topics()


def test_an_async_client_names_the_address_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        async def story() -> None:
            async with connect_async(address) as client:
                await client.admin().list_topics()

        with pytest.raises(NoBrokerReachable, match=address):
            asyncio.run(story())


def test_closing_from_another_thread_ends_a_long_poll(broker: SocketBroker, wired: Client) -> None:
    is_polling = threading.Event()

    def stall(session: _Session, request: Request) -> bool:
        if request.header.api_key is ApiKey.FETCH:
            is_polling.set()
            return True
        return False

    broker.mischief = stall
    consumer = wired.consumer()
    consumer.assign([("t", 0)])
    ended: list[Exception] = []

    def poll() -> None:
        try:
            consumer.poll(3_600_000)
        except ClientClosed as e:
            ended.append(e)

    thread = threading.Thread(target=poll)
    thread.start()
    assert is_polling.wait(WAIT_SECONDS)
    consumer.close()
    thread.join(WAIT_SECONDS)

    assert len(ended) == 1


def test_a_cancelled_async_poll_leaves_a_consumer_that_works(broker: SocketBroker) -> None:
    held: list[_Session] = []
    broker.mischief = _once(ApiKey.FETCH, held.append)
    broker.cluster.write("t", 0, b"x")

    async def story() -> list[bytes | None]:
        async with connect_async(broker.bootstrap, **QUICK) as client, client.consumer() as consumer:
            await consumer.assign([("t", 0)])
            try:
                async with asyncio.timeout(0.05):
                    await consumer.poll(60_000)
            except TimeoutError:
                _hang_up_from_outside(held[0])
            return [record.value for record in await consumer.poll(10_000)]

    assert asyncio.run(story()) == [b"x"]


def _hang_up_from_outside(session: _Session) -> None:
    """The session lives on another thread's loop."""
    assert session.transport is not None
    session.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def test_a_producer_that_is_not_entered_says_so(broker: SocketBroker) -> None:
    async def story() -> None:
        async with connect_async(broker.bootstrap) as client:
            await client.producer().send("t", b"x")

    with pytest.raises(ClientClosed, match="async with"):
        asyncio.run(story())


def test_leaving_an_async_producer_by_an_error_does_not_wait(broker: SocketBroker) -> None:
    async def story() -> asyncio.Future[RecordPosition]:
        async with connect_async(broker.bootstrap) as client:
            try:
                async with client.producer(linger_ms=3_600_000) as producer:
                    future = await producer.submit("t", b"x")
                    raise KeyError
            except KeyError:
                await asyncio.wait([future])
                return future

    assert isinstance(asyncio.run(story()).exception(), ClientClosed)


def test_an_async_producer_sends_what_lingers_when_it_is_left(broker: SocketBroker) -> None:
    async def story() -> int:
        async with connect_async(broker.bootstrap) as client:
            async with client.producer(linger_ms=3_600_000) as producer:
                future = await producer.submit("t", b"x", partition=2)
            return future.result().offset

    assert asyncio.run(story()) == 0


def test_a_request_that_was_cut_short_names_what_happened(broker: SocketBroker) -> None:
    broker.mischief = _once(ApiKey.CREATE_TOPICS, _hang_up)

    with connect(broker.bootstrap) as client, pytest.raises(NetworkException, match=r"127\.0\.0\.1"):
        client.admin().create_topic("new")


def test_requests_that_time_out_do_not_leave_answers_for_the_next(broker: SocketBroker) -> None:
    """The late answer would otherwise be taken for that of the following request."""
    late: list[tuple[_Session, Request]] = []

    def delay(session: _Session, request: Request) -> bool:
        if request.header.api_key is ApiKey.DESCRIBE_CLUSTER and not late:
            late.append((session, request))
            return True
        return False

    broker.mischief = delay
    with connect(broker.bootstrap, request_timeout_ms=200) as client:
        admin = client.admin()
        with pytest.raises((RequestTimedOut, NoBrokerReachable)):
            admin.cluster()
        assert admin.cluster().cluster_id == "scripted"


def test_a_connection_that_the_broker_closed_while_it_idled_is_made_anew(broker: SocketBroker, wired: Client) -> None:
    """A creation that meets the dead connection would fail, since nobody could tell whether it was carried out."""
    admin = wired.admin()
    admin.create_topic("first")
    session = broker.sessions[-1]
    assert session.transport is not None
    closed = threading.Event()
    # Told of the loss first, the loop closes the socket after that.
    session.on_lost = lambda: broker.call_soon(closed.set)
    broker.call_soon(session.transport.close)
    assert closed.wait(WAIT_SECONDS)

    assert admin.create_topic("second").name == "second"
