"""`ottla groups` beside the tools of others: the same server, the same positions, the same lag."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import ottla
from ottla.client.blocking.client import Client
from tests.cli.server_process import ServerProcess
from tests.peers.tools import Tools

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.structs import OffsetAndMetadata, TopicPartition

pytestmark = [
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # kafka-python leaves the socket of a connection that it gives up, as it does when the machine stands still.
    pytest.mark.leaves_sockets,
]

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with ottla.connect(server.address) as made:
        yield made


@pytest.fixture
def group(client: Client, topic: str) -> str:
    """A group that has read 6 and 3 of ten records in each of two partitions."""
    name = f"group-of-{topic}"
    client.admin().create_topic(topic, partitions=2)
    with client.producer() as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2)
    client.admin().alter_group_offsets(name, {(topic, 0): 6, (topic, 1): 3})
    return name


@pytest.fixture
def tools(java: Path, kafka_jars: Path) -> Tools:
    return Tools(java, kafka_jars)


Lag = dict[tuple[str, int], tuple[int, int, int]]
"""Of each partition: the position, the end, and what lies between."""


def our_lag(server: ServerProcess, group: str) -> Lag:
    (found,) = json.loads(server.succeed("groups", "describe", group, "--json"))
    return {
        (part["topic"], part["partition"]): (part["committed"], part["end"], part["lag"])
        for part in found["partitions"]
    }


def their_lag(tools: Tools, server: ServerProcess, group: str) -> Lag:
    printed = tools.run(COMMAND, "--bootstrap-server", server.address, "--describe", "--group", group)
    found: Lag = {}
    for line in printed.splitlines():
        cells = line.split()
        if cells[:1] == [group]:
            found[cells[1], int(cells[2])] = (int(cells[3]), int(cells[4]), int(cells[5]))
    return found


def test_kafka_s_own_tool_shows_the_same_lag(server: ServerProcess, tools: Tools, topic: str, group: str) -> None:
    assert our_lag(server, group) == their_lag(tools, server, group) == {(topic, 0): (6, 10, 4), (topic, 1): (3, 10, 7)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_s_own_tool_shows_the_same_members(
    server: ServerProcess, tools: Tools, client: Client, topic: str, group: str, protocol: str
) -> None:
    with client.consumer(group=group, protocol=protocol) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            consumer.poll(100)
        (found,) = json.loads(server.succeed("groups", "describe", group, "--json"))
        printed = tools.run(COMMAND, "--bootstrap-server", server.address, "--describe", "--members", "--group", group)

    (member,) = found["members"]
    assert member["id"] in printed


def test_a_reset_by_kafka_s_own_tool_shows_in_ours_and_the_reverse(
    server: ServerProcess, tools: Tools, topic: str, group: str
) -> None:
    tools.run(
        COMMAND, "--bootstrap-server", server.address, "--reset-offsets", "--group", group,
        "--topic", topic, "--to-offset", "2", "--execute",
    )  # fmt: skip
    assert our_lag(server, group) == {(topic, 0): (2, 10, 8), (topic, 1): (2, 10, 8)}

    server.succeed("groups", "reset", group, "--to", "latest")
    assert their_lag(tools, server, group) == {(topic, 0): (10, 10, 0), (topic, 1): (10, 10, 0)}


def test_a_plan_that_kafka_s_own_tool_exports_can_be_read(
    server: ServerProcess, tools: Tools, topic: str, group: str, tmp_path: Path
) -> None:
    exported = tools.run(
        COMMAND, "--bootstrap-server", server.address, "--reset-offsets", "--group", group,
        "--topic", topic, "--to-offset", "4", "--dry-run", "--export",
    )  # fmt: skip
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(line for line in exported.splitlines() if line.count(",") >= 2), encoding="utf-8")

    server.succeed("groups", "reset", group, "--from-file", str(plan))

    assert our_lag(server, group) == {(topic, 0): (4, 10, 6), (topic, 1): (4, 10, 6)}


def test_kafka_python_sees_and_sets_the_same_positions(server: ServerProcess, topic: str, group: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=server.address)) as admin:
        found = admin.list_group_offsets(group)[group]
        assert {key.partition: entry.offset for key, entry in found.items()} == {0: 6, 1: 3}

        admin.alter_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(9, "by another", -1)})

    assert our_lag(server, group)[topic, 0] == (9, 10, 1)
