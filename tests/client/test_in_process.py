"""The way to a broker in the same process: plain calls on the caller's own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest

from ottla.client.blocking.client import Client, in_process
from ottla.client.client import in_process_async
from ottla.client.errors import ClientClosed
from ottla.client.transport import IN_PROCESS, Call, InProcessTransport, Reply, run_now
from ottla.errors import OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Message
from tests.client.scripted_broker import ScriptedCluster, lose_request


class Door:
    """The scripted cluster as a broker of this process; notes who called."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        cluster.nodes[1] = IN_PROCESS
        self.threads: set[int] = set()
        self.closed = False

    def request(self, api_key: ApiKey, version: int, message: Message, timeout_ms: int) -> Reply:
        if self.closed:
            raise OttlaError("the broker is closed")
        self.threads.add(threading.get_ident())
        expects = getattr(message, "acks", 1) != 0
        return self._cluster.answer(Call(IN_PROCESS, api_key, version, message, timeout_ms, expects))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def door(cluster: ScriptedCluster) -> Door:
    return Door(cluster)


@pytest.fixture
def inside(door: Door) -> Client:
    return in_process(door, on_close=door.close)


def test_everything_runs_on_the_thread_of_the_caller(door: Door, inside: Client) -> None:
    with inside as client:
        client.admin().create_topic("t")
        client.producer().send("t", b"1")
        client.producer(acks=0).send("t", b"2", partition=0)
        client.producer().send_batch("t", [b"3"])
        consumer = client.consumer()
        consumer.subscribe(["t"])
        assert len(consumer.poll(100)) == 3

    assert door.threads == {threading.get_ident()}


def test_closing_the_client_closes_the_broker_last(door: Door, inside: Client) -> None:
    inside.admin().create_topic("t")
    future = inside.producer(linger_ms=3_600_000).submit("t", b"x", partition=0)

    inside.close()
    inside.close()

    assert door.closed
    assert future.result(0).offset == 0


def test_an_unknown_topic_is_named_at_once(cluster: ScriptedCluster, inside: Client) -> None:
    with pytest.raises(OttlaError, match="nowhere"):
        inside.producer().send("nowhere", b"x")

    assert cluster.count(ApiKey.METADATA) == 1


def test_a_broker_that_was_closed_fails_the_send_and_says_so(
    cluster: ScriptedCluster, door: Door, inside: Client
) -> None:
    cluster.create("t")
    producer = inside.producer()
    producer.send("t", b"x")
    door.close()

    with pytest.raises(OttlaError, match="the broker is closed"):
        producer.send("t", b"y")


def test_the_async_face_does_not_block_its_loop(door: Door) -> None:
    async def story() -> set[int]:
        async with in_process_async(door) as client:
            await client.admin().create_topic("t")
            async with client.producer() as producer:
                await producer.send("t", b"x")
        return door.threads

    assert threading.get_ident() not in asyncio.run(story())


def test_a_sleep_ends_when_the_transport_is_closed(door: Door) -> None:
    transport = InProcessTransport(door)
    transport.interrupt()

    with pytest.raises(ClientClosed):
        run_now(transport.sleep(3_600_000))


def test_one_failed_call_of_several_does_not_hide_the_others(door: Door, cluster: ScriptedCluster) -> None:
    transport = InProcessTransport(door)
    good = Call(IN_PROCESS, ApiKey.METADATA, 12, MetadataRequest(), 1_000)
    cluster.fault(ApiKey.METADATA, lose_request)

    first, second = run_now(transport.exchange([good, good]))

    assert isinstance(first, OttlaError)
    assert not isinstance(second, OttlaError)


def test_a_coroutine_that_would_suspend_is_a_bug() -> None:
    class Pause:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def suspends() -> None:
        await Pause()

    with pytest.raises(AssertionError, match="does not suspend"):
        run_now(suspends())
