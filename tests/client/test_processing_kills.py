"""Read, transform, write, while the server is killed again and again: every record once, and in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.blocking.processing import Processor
from tests.clients.server_process import ServerProcess

RECORDS = 4_000
PARTITIONS = 4
KILLS = 4
TURNS_BETWEEN = 12
WAIT_SECONDS = 240
LOOK_AGAIN_SECONDS = 0.2
LOOKS_MAX = 1_000
DOWN_SECONDS = 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path, {"group.initial.rebalance.delay.ms": "0"})
    process.start()
    yield process
    process.end()


class Copier:
    """A loop in a thread of its own."""

    def __init__(self, client: Client, number: int, protocol: str, turned: threading.Semaphore) -> None:
        self._turned = turned
        self.failure: BaseException | None = None
        settings = {"records_max": 20, "protocol": protocol, "session_timeout_ms": 6_000}
        self._work: Processor = client.process("in", group="g", transactional_id=f"copier-{number}", consumer=settings)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._work as work:
                for records in work:
                    for record in records:
                        work.send("out", record.value, partition=record.partition)
                    self._turned.release()
        except BaseException as e:
            self.failure = e

    def stop(self) -> None:
        self._work.stop()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()


def is_done(client: Client, turned: threading.Semaphore) -> bool:
    """Whether the group has read everything; looks at most once in a while."""
    turned.acquire(timeout=LOOK_AGAIN_SECONDS)
    lags = client.admin().group_lag("g").values()
    return len(lags) == PARTITIONS and all(each.lag == 0 for each in lags)


def written(client: Client) -> dict[int, list[int]]:
    """What readers of committed records find, until all of it is there and nothing more comes."""
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    with client.consumer(isolation="read_committed") as consumer:
        consumer.subscribe(["out"])
        for record in consumer.records(idle_ms=3_000):
            found[record.partition].append(int(record.value or b""))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_server_that_is_killed_neither_loses_nor_doubles_a_record(server: ServerProcess, protocol: str) -> None:
    turned = threading.Semaphore(0)
    with ottla.connect(server.address) as client:
        client.admin().create_topic("in", partitions=PARTITIONS)
        client.admin().create_topic("out", partitions=PARTITIONS)
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.submit("in", b"%d" % number, partition=number % PARTITIONS)
        copiers = [Copier(client, number, protocol, turned) for number in range(2)]
        for _ in range(KILLS):
            for _ in range(TURNS_BETWEEN):
                assert turned.acquire(timeout=WAIT_SECONDS)
            server.kill()
            server.start()
        assert any(is_done(client, turned) for _ in range(LOOKS_MAX))
        for copier in copiers:
            copier.stop()

        assert [copier.failure for copier in copiers] == [None, None]
        assert written(client) == {number: list(range(number, RECORDS, PARTITIONS)) for number in range(PARTITIONS)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_loop_waits_for_a_server_that_goes_away_before_the_first_turn(server: ServerProcess, protocol: str) -> None:
    with ottla.connect(server.address, retry_backoff_ms=20, retry_backoff_max_ms=200) as client:
        client.admin().create_topic("in", partitions=1)
        client.admin().create_topic("out", partitions=1)
        client.producer().send("in", b"1")
        server.kill()
        settings = {"protocol": protocol, "session_timeout_ms": 6_000}
        back = threading.Timer(DOWN_SECONDS, server.start)
        back.start()
        try:
            with client.process("in", group="g", transactional_id="copier", consumer=settings) as work:
                for records in work:
                    work.send("out", records[0].value)
                    work.stop()
        finally:
            back.join()
        with client.consumer(isolation="read_committed") as consumer:
            consumer.subscribe(["out"])
            assert next(consumer.records(idle_ms=WAIT_SECONDS * 1_000)).value == b"1"
