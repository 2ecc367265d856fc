"""Our members in one group with those of other clients: every partition has one owner, and every record is read."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer as RdConsumer

import ottla
from ottla.client.blocking.client import Client
from ottla.testing.server_thread import ServerThread
from tests.client.kafka_server import kafka_server
from tests.peers.tools import Tools

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # kafka-python leaves the socket of a connection that it gives up, as it does when the machine stands still.
    pytest.mark.leaves_sockets,
]

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
}
KAFKA_ONLY = {"group.consumer.min.heartbeat.interval.ms": "100"}
SECONDS_MAX = 180
SESSION_MS = 10_000
"""Of kafka-python: on a machine with no time to spare it may fall silent when it is to join again, and the others get
its partitions only when its session is over."""
PARTITIONS = 12
_numbers = count()

Member = Callable[[str, str, str, dict[str, Any]], "Reader"]


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.peers)])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "ottla":
        server = ServerThread(str(tmp_path_factory.mktemp("ottla")), QUICK)
        server.start()
        yield server.bootstrap
        server.stop()
        return
    tools = Tools(request.getfixturevalue("java"), request.getfixturevalue("kafka_jars"))
    lines = "".join(f"{name}={value}\n" for name, value in {**QUICK, **KAFKA_ONLY}.items())
    with kafka_server(tools, tmp_path_factory.mktemp("kafka"), lines) as found:
        yield found


class Reader:
    """A member that reads in a thread of its own, and notes what it owns and what it got."""

    def __init__(self) -> None:
        self.owned: frozenset[int] = frozenset()
        self.seen: list[bytes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(SECONDS_MAX)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self.start()
            while not self._stop.is_set():
                self.read()
            self.owned = frozenset()
            self.end()
        except BaseException as e:
            self._failure = e
            raise

    def start(self) -> None:
        raise NotImplementedError

    def read(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError


class OurReader(Reader):
    """A member of ours."""

    def __init__(self, address: str, topic: str, group: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self._client = ottla.connect(address)
        self._consumer = self._client.consumer(
            **{"group": group, "auto_commit": True, "heartbeat_interval_ms": 100, **settings}
        )
        self._topic = topic

    def start(self) -> None:
        self._consumer.subscribe([self._topic])

    def read(self) -> None:
        self.seen += [record.value or b"" for record in self._consumer.poll(50)]
        self.owned = frozenset(key.partition for key in self._consumer.assignment())

    def end(self) -> None:
        self._consumer.close()
        self._client.close()


class KafkaPythonReader(Reader):
    """kafka-python."""

    def __init__(self, address: str, topic: str, group: str, settings: dict[str, Any]) -> None:
        super().__init__()
        more = {}
        if "cooperative-sticky" in settings.get("assignors", ()):
            more["partition_assignment_strategy"] = [CooperativeStickyAssignor]
        self._topic = topic
        self._make: Callable[[], Any] = lambda: KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=SESSION_MS,
            **more,
        )

    def start(self) -> None:
        self._consumer = self._make()
        # It has to know the topic before it joins. As a leader that hears of it while it assigns, it takes what it has
        # heard for what it has assigned, and nobody ever gets anything.
        assert self._consumer.partitions_for_topic(self._topic)
        self._consumer.subscribe([self._topic])

    def read(self) -> None:
        # Long enough for a slow machine: what it does before it joins again, a commit among it, begins anew with each
        # poll, and where that takes longer than the poll it never joins.
        for records in self._consumer.poll(timeout_ms=500).values():
            self.seen += [record.value for record in records]
        self.owned = frozenset(key.partition for key in self._consumer.assignment())

    def end(self) -> None:
        self._consumer.close()


class ConfluentReader(Reader):
    """confluent-kafka, which is librdkafka."""

    def __init__(self, address: str, topic: str, group: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self._topic = topic
        self._settings: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        if settings.get("protocol") == "consumer":
            self._settings["group.protocol"] = "consumer"
        else:
            self._settings["heartbeat.interval.ms"] = 100
        if "cooperative-sticky" in settings.get("assignors", ()):
            self._settings["partition.assignment.strategy"] = "cooperative-sticky"

    def start(self) -> None:
        self._consumer = RdConsumer(self._settings)
        self._consumer.subscribe([self._topic])

    def read(self) -> None:
        message = self._consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.seen.append(bytes(message.value() or b""))
        self.owned = frozenset(key.partition for key in self._consumer.assignment())

    def end(self) -> None:
        self._consumer.close()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with ottla.connect(address) as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    name = f"topic-{next(_numbers)}"
    client.admin().create_topic(name, partitions=PARTITIONS)
    return name


def until(settled: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not settled():
        assert time.monotonic() < deadline, what()
        threading.Event().wait(0.05)


def is_shared(readers: list[Reader]) -> bool:
    """Whether every partition has exactly one owner, and every member a share."""
    owned = [number for reader in readers for number in reader.owned]
    return sorted(owned) == list(range(PARTITIONS)) and all(reader.owned for reader in readers)


def share(client: Client, topic: str, made: list[Callable[[], Reader]]) -> None:
    """Let members come one after the other, then go in the same order, with records all the while."""
    values = iter(range(10**6))
    sent: set[bytes] = set()
    seen: list[Reader] = []

    def send() -> None:
        with client.producer() as producer:
            for _ in range(PARTITIONS * 2):
                value = b"%d" % next(values)
                producer.send(topic, value, partition=int(value) % PARTITIONS)
                sent.add(value)

    with ExitStack() as stack:
        readers: list[Reader] = []
        for make in made:
            readers.append(stack.enter_context(make()))
            seen.append(readers[-1])
            until(lambda: is_shared(readers), lambda: [reader.owned for reader in readers])
            send()
        while len(readers) > 1:
            readers.pop(0).__exit__()
            until(lambda: is_shared(readers), lambda: [reader.owned for reader in readers])
            send()
        until(
            lambda: {value for reader in seen for value in reader.seen} >= sent,
            lambda: sent - {value for reader in seen for value in reader.seen},
        )


@pytest.mark.parametrize(
    "settings",
    [{"protocol": "classic"}, {"protocol": "classic", "assignors": ("cooperative-sticky",)}],
    ids=["eager", "cooperative"],
)
@pytest.mark.parametrize(
    "order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)], ids=["ours-first", "kafka-python-first", "rdkafka-first"]
)
def test_a_classic_group_of_three_clients_shares_partitions(
    address: str, client: Client, topic: str, settings: dict[str, Any], order: tuple[int, ...]
) -> None:
    group = f"group-{next(_numbers)}"
    kinds: list[Member] = [OurReader, KafkaPythonReader, ConfluentReader]

    share(client, topic, [lambda kind=kinds[index]: kind(address, topic, group, settings) for index in order])  # type: ignore[misc]


def test_a_consumer_group_of_two_clients_shares_partitions(address: str, client: Client, topic: str) -> None:
    group = f"group-{next(_numbers)}"
    kinds: list[Member] = [OurReader, ConfluentReader, OurReader]

    share(client, topic, [lambda kind=kind: kind(address, topic, group, {"protocol": "consumer"}) for kind in kinds])  # type: ignore[misc]


def test_a_member_of_the_new_protocol_joins_a_group_of_classic_members(
    address: str, client: Client, topic: str
) -> None:
    group = f"group-{next(_numbers)}"

    share(
        client,
        topic,
        [
            lambda: KafkaPythonReader(address, topic, group, {}),
            lambda: OurReader(address, topic, group, {"protocol": "classic"}),
            lambda: OurReader(address, topic, group, {"protocol": "consumer"}),
        ],
    )
