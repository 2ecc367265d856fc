"""The brokers that transactions are tried on: Ottla, and Apache Kafka as the reference.

TRANSACTION_BROKERS says on which of them the stories of the clients are played (default `ottla`; `ottla,kafka` shows
that the stories are right).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.client.kafka_server import kafka_server
from tests.clients.server_process import ServerProcess, running
from tests.clients.transactions import raw_log
from tests.clients.transactions.conversation import Speaker
from tests.clients.transactions.raw_producer import Place
from tests.peers.tools import Tools
from tests.server.wire import Wire

BROKERS = os.environ.get("TRANSACTION_BROKERS", "ottla").split(",")
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.max.timeout.ms": "120000",
    "transaction.state.log.num.partitions": "2",
}
KAFKA_SETTINGS = {
    **SETTINGS,
    # It begins to look after each partition at a time of its own: with one of each, whoever is answered is answered.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # It looks for transactions that took too long now and then; Ottla knows when one has.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}

MakePlace = Callable[..., Place]

_numbers = count()


@pytest.fixture(scope="session")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("ottla"), SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def apache_kafka(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with _kafka(Tools(java, kafka_jars), tmp_path_factory.mktemp("kafka")) as server:
        yield server


@contextmanager
def _kafka(tools: Tools, root: Path) -> Iterator[ServerProcess]:
    settings = "".join(f"{name}={value}\n" for name, value in KAFKA_SETTINGS.items())
    with kafka_server(tools, root, settings) as address:
        # Only its address is asked for: it is started and ended here.
        server = ServerProcess(root)
        server.port = int(address.rpartition(":")[2])
        speaker = Speaker(server, "first")
        speaker.warm_up()
        speaker.close()
        yield server


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest) -> ServerProcess:
    server: ServerProcess = request.getfixturevalue({"ottla": "ottla", "kafka": "apache_kafka"}[request.param])
    return server


@pytest.fixture
def wire(broker: ServerProcess) -> Iterator[Wire]:
    with Wire(broker) as wire:
        yield wire


@pytest.fixture
def make_place(wire: Wire) -> MakePlace:
    """Makes topics; the first partition of each."""

    def make(*, partitions: int = 1) -> Place:
        topic = f"topic-{next(_numbers)}"
        raw_log.create_topic(wire, topic, partitions=partitions)
        return Place(topic, 0)

    return make
