"""Kafka's ConsoleConsumer in groups of both protocols: by pattern, and going on where it stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clients.server_process import ServerProcess, running
from tests.peers.tools import Tools
from tests.server.wire import Wire

MAIN = "org.apache.kafka.tools.consumer.ConsoleConsumer"
END_SECONDS_MAX = 60
TRIES_MAX = 600
TRY_SECONDS = 0.1
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "num.partitions": "2",
}

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("console"), SETTINGS) as server:
        yield server


def _arguments(server: ServerProcess, group: str, protocol: str) -> list[str]:
    properties = {"group.protocol": protocol, "metadata.max.age.ms": "300", "auto.offset.reset": "earliest"}
    return [
        *("--bootstrap-server", server.address, "--group", group),
        *(part for name, value in properties.items() for part in ("--command-property", f"{name}={value}")),
    ]


def _fill(server: ServerProcess, topic: str, values: list[str]) -> None:
    """A record after the other, over both partitions."""
    with Wire(server) as wire:
        wire.make_topic(topic)
        for number, value in enumerate(values):
            wire.produce(topic, [value.encode()], partition=number % 2)


@PROTOCOLS
def test_it_reads_every_topic_that_fits_a_pattern_also_one_that_comes_later(
    server: ServerProcess, tools: Tools, tmp_path: Path, protocol: str
) -> None:
    early = [f"{protocol}.{name} {number}" for name in "ab" for number in range(10)]
    late = [f"{protocol}.late {number}" for number in range(10)]
    for name in "ab":
        _fill(server, f"{protocol}.{name}", [value for value in early if f".{name} " in value])
    _fill(server, f"{protocol}-other", ["not wanted"])
    output = tmp_path / "consumed"

    def consumed() -> list[str]:
        return sorted(line for line in output.read_text(encoding="utf-8").splitlines() if line.startswith(protocol))

    wanted = ["--include", rf"{protocol}\..*", "--from-beginning", "--max-messages", str(len(early + late))]
    arguments = [*_arguments(server, f"pattern.{protocol}", protocol), *wanted]
    with tools.background(MAIN, *arguments, output=output) as consumer:
        for _ in range(TRIES_MAX):
            if consumed() == early:
                break
            with suppress(subprocess.TimeoutExpired):
                consumer.wait(TRY_SECONDS)
        _fill(server, f"{protocol}.late", late)
        consumer.wait(END_SECONDS_MAX)
    assert consumed() == early + late


@PROTOCOLS
def test_it_goes_on_where_it_stopped(server: ServerProcess, tools: Tools, protocol: str) -> None:
    topic, group = f"resumed.{protocol}", f"resumes.{protocol}"
    values = [f"{number:02}" for number in range(20)]
    _fill(server, topic, values)
    wanted = ["--topic", topic, "--max-messages", "7", "--from-beginning"]
    runs = [tools.run(MAIN, *_arguments(server, group, protocol), *wanted) for _ in range(2)]
    found = [line for told in runs for line in told.splitlines() if line.isdigit()]
    assert len(found) == len(set(found)) == 14
    assert set(found) <= set(values)
