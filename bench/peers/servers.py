"""Ottla and Apache Kafka as brokers that can be started: the same listener, the same topics, nothing tuned on either.

Kafka is one combined KRaft node from the jars that the tests use, with the flags of its own start script and the heap
that the page tells. Knows how they start; not what they are asked.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from bench.peers.contract import KAFKA, OURS, Broker, Starter, Unmeasured
from bench.peers.launch import HOST, free_ports, launched
from bench.peers.rounds import say
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.kafka_server import CLUSTER_ID, SERVER
from tests.peers import kafka

JVM = (
    "-Xms512m",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
TOOL_JVM = ("-Xmx512m", "-XX:+UseG1GC")
"""As Kafka's script runs its perf tools."""
FORMAT_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
EQUAL = {"group.initial.rebalance.delay.ms": "0"}
"""Settings that both get: without it the first joining of a group would wait for others."""
NOTHING: Mapping[str, str] = {}
INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}
"""As a user has it, whose installer has compiled the modules: a machine may be told not to keep what was compiled."""
FORMAT_S_MAX = 120
ANSWER_S_MAX = 5.0


def answers(host: str, port: int) -> bool:
    """Whether it tells of a broker that serves: Kafka listens some time before that."""
    protocol = ClientConnection("bench")
    with socket.create_connection((host, port), timeout=ANSWER_S_MAX) as connection:
        connection.sendall(b"".join(protocol.send(ApiKey.METADATA, 9, MetadataRequest(topics=[]))[1]))
        # One that hangs up, as a broker may that only begins to start, gives nothing.
        while data := connection.recv(1 << 16):
            for response in protocol.receive(data):
                return isinstance(response.message, MetadataResponse) and bool(response.message.brokers)
    return False


def ottla_command(directory: Path, port: int, settings: Mapping[str, str] = NOTHING) -> list[str]:
    """How ours is started."""
    flags = [word for name, value in {**EQUAL, **settings}.items() for word in ("--set", f"{name}={value}")]
    serve = ["serve", "--data-dir", str(directory / "data"), "--listen", f"{HOST}:{port}"]
    return [sys.executable, "-m", "ottla", *serve, *flags]


@contextmanager
def ottla(directory: Path, settings: Mapping[str, str] = NOTHING) -> Iterator[Broker]:
    """Ours, on what `directory` holds."""
    (port,) = free_ports(1)
    command = ottla_command(directory, port, settings)
    with launched(OURS, command, port=port, directory=directory, answers=answers, environment=INSTALLED) as broker:
        yield broker


def java_command(main: str, *arguments: str, flags: tuple[str, ...] = TOOL_JVM) -> list[str]:
    """A program of Kafka's; raises PeerMissing where it cannot be had."""
    java, jars = _programs()
    # The star goes to Java as it is: no shell is there to expand it.
    return [str(java), *flags, "-cp", f"{jars}/*", main, *arguments]


@cache
def _programs() -> tuple[Path, Path]:
    return kafka.java(), kafka.jars(say)


def kafka_properties(directory: Path, *, port: int, controller: int, settings: Mapping[str, str] = NOTHING) -> str:
    """The settings of Kafka's node: what one node needs, and what both sides get."""
    text = SERVER.format(broker=port, controller=controller, directory=directory / "data", listeners="")
    return text + "".join(f"{name}={value}\n" for name, value in {**EQUAL, **settings}.items())


@contextmanager
def apache_kafka(directory: Path, settings: Mapping[str, str] = NOTHING) -> Iterator[Broker]:
    """Kafka, on what `directory` holds; an empty one is formatted first, which is not timed."""
    port, controller = free_ports(2)
    properties = directory / "server.properties"
    text = kafka_properties(directory, port=port, controller=controller, settings=settings)
    properties.write_text(text, encoding="utf-8")
    if not (directory / "data").exists():
        _format(properties)
    command = java_command("kafka.Kafka", str(properties), flags=JVM)
    with launched(KAFKA, command, port=port, directory=directory, answers=answers) as broker:
        yield broker


def _format(properties: Path) -> None:
    command = java_command(
        "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), flags=FORMAT_JVM
    )
    run = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_S_MAX, check=False)
    if run.returncode != 0:
        raise Unmeasured(f"Kafka's directory could not be formatted: {(run.stdout + run.stderr)[-300:]}")


BOTH: dict[str, Starter] = {OURS: ottla, KAFKA: apache_kafka}
"""With the defaults of each."""


def both(ours: Mapping[str, str], peer: Mapping[str, str]) -> dict[str, Starter]:
    """With settings of the broker, for what no topic's settings reach."""
    return {OURS: partial(ottla, settings=ours), KAFKA: partial(apache_kafka, settings=peer)}


def restarted(start: Starter, prepare: Callable[[Broker], None]) -> Starter:
    """A broker that was prepared and stopped in order, and runs again."""

    @contextmanager
    def again(directory: Path) -> Iterator[Broker]:
        with start(directory) as broker:
            prepare(broker)
        with start(directory) as broker:
            yield broker

    return again
