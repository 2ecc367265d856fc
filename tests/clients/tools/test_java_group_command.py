"""Kafka's ConsumerGroupCommand, unmodified: it lists, describes, resets and deletes groups of both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.groups.churn_members import News
from tests.clients.groups.members import Spec
from tests.clients.server_process import ServerProcess, running
from tests.clients.tools.java_members import CONSUMER_PROTOCOL, java_member
from tests.clients.tools.looks import JavaLook, PythonLook
from tests.peers.tools import Tools
from tests.server.wire import Wire

PARTITIONS = 2
RECORDS = 10
MINUTE_MS = 60_000
AGES_MINUTES = tuple(range(65, -35, -10))
"""How old the records of a partition are. The last ones come from the future, so that there is always one that does."""
JOIN_SECONDS_MAX = 60
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "num.partitions": str(PARTITIONS),
}
CLASSIC, CONSUMER, IDLE = "busy.classic", "busy.consumer", "idle"
TOPIC = "orders"

pytestmark = [
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # kafka-python leaves the socket of a connection that it gives up, as it does when the machine stands still.
    pytest.mark.leaves_sockets,
]


class Stage:
    """A server with records of different ages, and the tool."""

    def __init__(self, server: ServerProcess, tools: Tools) -> None:
        self.server = server
        self.tools = tools
        self.command = JavaLook(tools, server)
        self.python = PythonLook(server)
        self.made_ms = int(datetime.now(UTC).timestamp() * 1000)
        with Wire(server) as wire:
            wire.make_topic(TOPIC)
        producer = Producer({"bootstrap.servers": server.address, "log_level": 0})
        for partition in range(PARTITIONS):
            for age in AGES_MINUTES:
                producer.produce(TOPIC, b"x", partition=partition, timestamp=self.made_ms - age * MINUTE_MS)
        assert producer.flush(JOIN_SECONDS_MAX) == 0

    def committed(self, group: str) -> dict[int, int | None]:
        """The group's offsets, by partition."""
        return {place[1]: standing.committed for place, standing in self.python.standings(group)[group].items()}

    def commit(self, group: str, offset: int) -> None:
        self.python.commit(group, {(TOPIC, partition): offset for partition in range(PARTITIONS)})

    def reset(self, group: str, *how: str) -> dict[int, int]:
        """What the tool says it did, by partition."""
        rows = self.command.rows("--reset-offsets", "--group", group, *how)
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, tools: Tools) -> Iterator[Stage]:
    with running(tmp_path_factory.mktemp("command"), SETTINGS) as server:
        yield Stage(server, tools)


@pytest.fixture(scope="module")
def busy(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A group with a member for each protocol, which have read and committed everything, and one without members."""
    news = News()
    stage.commit(IDLE, 3)
    with ExitStack() as members:
        for group, client in ((CLASSIC, "java-range"), (CONSUMER, CONSUMER_PROTOCOL)):
            spec = Spec(
                f"{group}.client", client, stage.server.address, group, (TOPIC,), instance="first", session_ms=10_000
            )
            member = java_member(spec, stage.tools, news, tmp_path_factory.mktemp("members"))
            members.callback(member.end)
        everything = dict.fromkeys(range(PARTITIONS), RECORDS)
        for group in (CLASSIC, CONSUMER):
            news.wait_for_answer(
                lambda group=group: stage.committed(group) == everything,  # type: ignore[misc]
                seconds=JOIN_SECONDS_MAX,
                what=lambda group=group: f"{group}: {stage.committed(group)}",  # type: ignore[misc]
            )
        yield


# --- looking ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("busy")
def test_it_lists_groups_with_their_states(stage: Stage) -> None:
    rows = stage.command.rows("--list", "--state")
    assert {(row["GROUP"], row["STATE"]) for row in rows} >= {
        (CLASSIC, "Stable"),
        (CONSUMER, "Stable"),
        (IDLE, "Empty"),
    }


@pytest.mark.usefixtures("busy")
def test_it_lists_groups_of_one_type(stage: Stage) -> None:
    assert stage.command.run("--list", "--type", "consumer").split() == ["GROUP", "TYPE", CONSUMER, "Consumer"]


@pytest.mark.usefixtures("busy")
def test_it_describes_offsets_with_who_reads_them(stage: Stage) -> None:
    rows = stage.command.rows("--describe", "--all-groups")
    for group in (CLASSIC, CONSUMER):
        assert {
            (row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"], row["HOST"], row["CLIENT-ID"])
            for row in rows
            if row["GROUP"] == group
        } == {(str(partition), "10", "0", "/127.0.0.1", f"{group}.client") for partition in range(PARTITIONS)}
    assert {(row["CURRENT-OFFSET"], row["LAG"], row["CLIENT-ID"]) for row in rows if row["GROUP"] == IDLE} == {
        ("3", "7", "-")
    }


@pytest.mark.usefixtures("busy")
def test_it_describes_members_with_what_they_have_and_shall_have(stage: Stage) -> None:
    groups = ("--group", CLASSIC, "--group", CONSUMER)
    rows = {row["GROUP"]: row for row in stage.command.rows("--describe", *groups, "--members", "--verbose")}
    for group in (CLASSIC, CONSUMER):
        assert (rows[group]["#PARTITIONS"], rows[group]["CURRENT-ASSIGNMENT"]) == ("2", f"{TOPIC}:0,1")
        assert rows[group]["GROUP-INSTANCE-ID"] == "first"
    assert rows[CONSUMER]["TARGET-ASSIGNMENT"] == f"{TOPIC}:0,1"
    assert rows[CONSUMER]["CURRENT-EPOCH"] == rows[CONSUMER]["TARGET-EPOCH"] != "-"


@pytest.mark.usefixtures("busy")
def test_it_describes_the_state_of_groups(stage: Stage) -> None:
    groups = ("--group", CLASSIC, "--group", CONSUMER, "--group", IDLE)
    lines = [line.split() for line in stage.command.run("--describe", *groups, "--state").splitlines()]
    rows = {line[0]: line for line in lines if line and line[0] in (CLASSIC, CONSUMER, IDLE)}
    coordinator = [stage.server.address, "(1)"]
    assert rows[CLASSIC] == [CLASSIC, *coordinator, "range", "Stable", "1"]
    assert rows[CONSUMER] == [CONSUMER, *coordinator, "uniform", "Stable", "1"]
    assert rows[IDLE] == [IDLE, *coordinator, "-", "Empty", "0"]


# --- resetting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], RECORDS),
        (["--to-offset", "7"], 7),
        (["--to-offset", "1000"], RECORDS),
        (["--shift-by", "-2"], 1),
        (["--by-duration", "PT30M"], 4),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_it_resets_offsets(stage: Stage, how: list[str], expected: int) -> None:
    group = f"reset{''.join(how)}"
    stage.commit(group, 3)
    told = stage.reset(group, "--topic", TOPIC, *how, "--execute")
    assert told == stage.committed(group) == dict.fromkeys(range(PARTITIONS), expected)


def test_it_resets_offsets_to_a_time(stage: Stage) -> None:
    stage.commit("reset.time", 3)
    moment = datetime.fromtimestamp((stage.made_ms - 30 * MINUTE_MS) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    told = stage.reset("reset.time", "--topic", f"{TOPIC}:1", "--to-datetime", moment, "--execute")
    assert told == {1: 4}
    assert stage.committed("reset.time") == {0: 3, 1: 4}


def test_a_dry_run_changes_nothing_and_what_it_exports_can_be_executed_later(stage: Stage, tmp_path: Path) -> None:
    stage.commit("reset.file", 3)
    where = ("--reset-offsets", "--group", "reset.file")
    exported = stage.command.run(*where, "--all-topics", "--to-offset", "8", "--dry-run", "--export")
    assert stage.committed("reset.file") == {0: 3, 1: 3}
    plan = tmp_path / "plan.csv"
    plan.write_text(exported, encoding="utf-8")
    assert stage.reset("reset.file", "--from-file", str(plan), "--execute") == {0: 8, 1: 8}
    assert stage.committed("reset.file") == {0: 8, 1: 8}


# --- deleting ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("busy")
def test_it_deletes_the_offsets_of_a_partition_but_not_of_a_topic_that_is_being_read(stage: Stage) -> None:
    stage.commit("forgotten", 3)
    rows = stage.command.rows("--delete-offsets", "--group", "forgotten", "--topic", f"{TOPIC}:1")
    assert [(row["PARTITION"], row["STATUS"]) for row in rows] == [("1", "Successful")]
    assert stage.committed("forgotten") == {0: 3}
    said = stage.command.run("--delete-offsets", "--group", CONSUMER, "--topic", TOPIC)
    assert "GroupSubscribedToTopicException" in said
    assert stage.committed(CONSUMER) == {0: RECORDS, 1: RECORDS}


@pytest.mark.usefixtures("busy")
def test_it_deletes_groups_but_none_with_members(stage: Stage) -> None:
    stage.commit("deleted", 3)
    said = stage.command.run("--delete", "--group", "deleted", "--group", CLASSIC, "--group", CONSUMER)
    assert said.count("GroupNotEmptyException") == 2
    assert stage.committed("deleted") == {}
    assert "deleted" not in stage.command.run("--list").split()
