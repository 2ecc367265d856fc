"""A broker inside this program: the whole API without a socket."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ottla
from ottla.embedded import EmbeddedBroker
from ottla.errors import DataDirectoryLocked, LogClosed
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


def test_records_are_there_after_the_program_has_closed_and_opened_again(tmp_path: Path) -> None:
    with ottla.open(tmp_path / "data") as client, client.producer() as producer:
        positions = [producer.send("t", b"%d" % number) for number in range(10)]
    assert [position.offset for position in positions] == list(range(10))
    with ottla.open(tmp_path / "data") as client, client.consumer() as consumer:
        consumer.subscribe(["t"])
        assert [record.value for record in consumer.records(idle_ms=200)] == [b"%d" % number for number in range(10)]


def test_broker_settings_are_given_by_their_kafka_names(tmp_path: Path) -> None:
    with ottla.open(tmp_path / "data", config={"num.partitions": 5}) as client:
        assert len(client.admin().create_topic("t").partitions) == 5


def test_an_unknown_setting_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ottla.InvalidConfig, match=r"num\.partitions"):
        ottla.open(tmp_path / "data", config={"num.partition": 5})


def test_a_second_opening_of_the_same_directory_is_refused(tmp_path: Path) -> None:
    with ottla.open(tmp_path / "data"), pytest.raises(DataDirectoryLocked):
        ottla.open(tmp_path / "data")


def test_threads_share_the_broker_and_no_record_is_lost(tmp_path: Path) -> None:
    counts: dict[int, int] = {}

    def work(number: int) -> None:
        with client.producer(acks="all") as producer:
            counts[number] = len([producer.send("t", b"%d/%d" % (number, sent)) for sent in range(50)])

    with ottla.open(tmp_path / "data") as client:
        client.admin().create_topic("t", partitions=2)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with client.consumer() as consumer:
            consumer.subscribe(["t"])
            values = {record.value for record in consumer.records(idle_ms=300)}
    assert counts == dict.fromkeys(range(4), 50)
    assert values == {b"%d/%d" % (number, sent) for number in range(4) for sent in range(50)}


def test_a_consumer_wakes_when_another_thread_sends(tmp_path: Path) -> None:
    with ottla.open(tmp_path / "data") as client:
        client.admin().create_topic("t")
        waiting = threading.Event()
        received: list[bytes | None] = []

        def consume() -> None:
            with client.consumer() as consumer:
                consumer.assign([("t", 0)])
                waiting.set()
                received.extend(record.value for record in consumer.poll(60_000))

        thread = threading.Thread(target=consume)
        thread.start()
        assert waiting.wait(60)
        with client.producer() as producer:
            producer.send("t", b"late")
        thread.join(60)
    assert received == [b"late"]


def test_a_closed_broker_refuses_requests(tmp_path: Path) -> None:
    client = ottla.open(tmp_path / "data")
    admin = client.admin()
    client.close()
    client.close()
    with pytest.raises((LogClosed, ottla.ClientClosed)):
        admin.list_topics()


@pytest.mark.parametrize("acks", ["all", 1])
def test_closing_while_threads_produce_loses_nothing_that_was_acknowledged(tmp_path: Path, acks: str | int) -> None:
    acknowledged: list[bytes] = []
    begun = threading.Barrier(4)

    def work(number: int) -> None:
        producer = client.producer(acks=acks)
        begun.wait()
        for sent in range(100_000):
            value = b"%d/%d" % (number, sent)
            try:
                producer.send("t", value)
            except ottla.OttlaError:
                return
            acknowledged.append(value)

    client = ottla.open(tmp_path / "data")
    client.admin().create_topic("t", partitions=2)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    while len(acknowledged) < 50:
        threads[0].join(0.01)
    client.close()
    for thread in threads:
        thread.join(60)
    assert (tmp_path / "data" / "ottla.clean").exists()
    with ottla.open(tmp_path / "data") as again, again.consumer() as consumer:
        consumer.subscribe(["t"])
        values = {record.value for record in consumer.records(idle_ms=300)}
    assert set(acknowledged) <= values


def test_a_long_poll_ends_when_the_broker_is_closed(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "data")
    failures: list[BaseException] = []
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    broker.request(ApiKey.METADATA, 9, metadata, 5_000)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    fetch = FetchRequest(min_bytes=1, max_wait_ms=60_000, topics=[FetchTopic(topic="t", partitions=[partition])])

    def poll() -> None:
        waiting.set()
        try:
            broker.request(ApiKey.FETCH, 11, fetch, 90_000)
        except LogClosed as error:
            failures.append(error)

    waiting = threading.Event()
    thread = threading.Thread(target=poll)
    thread.start()
    assert waiting.wait(60)
    thread.join(0.1)
    broker.close()
    thread.join(30)
    assert len(failures) == 1


def test_no_socket_listens_and_importing_ottla_loads_no_broker(tmp_path: Path) -> None:
    program = f"""
import sys
import ottla
assert not [name for name in sys.modules if name.startswith(("ottla.broker", "ottla.storage", "pyarrow", "pyspark"))]
client = ottla.open({str(tmp_path / "data")!r})
listening = [line for line in open("/proc/self/net/tcp").read().splitlines() if " 0A " in line]
import os
fds = [f"/proc/self/fd/{{fd}}" for fd in os.listdir("/proc/self/fd")]
inodes = {{os.readlink(fd) for fd in fds if os.path.islink(fd)}}
ours = [line for line in listening if f"socket:[{{line.split()[9]}}]" in inodes]
assert not ours, ours
assert not [name for name in sys.modules if name.startswith(("pyarrow", "pyspark", "ottla.server"))]
client.close()
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("fine", "")


async def _round_trip(path: Path) -> list[bytes | None]:
    async with ottla.open_async(path) as client:
        async with client.producer() as producer:
            await producer.send("t", b"hello")
        async with client.consumer() as consumer:
            await consumer.subscribe(["t"])
            return [record.value async for record in consumer.records(idle_ms=200)]


def test_the_async_client_reaches_the_broker_too(tmp_path: Path) -> None:
    import asyncio

    assert asyncio.run(_round_trip(tmp_path / "data")) == [b"hello"]
