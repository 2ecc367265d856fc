"""Consume, transform, produce under `kill -9`: every record is copied once and in order, whoever is killed.

Groups of copiers by several clients copy one topic, each group to a topic of its own. The server is killed while
transactions are open, and so are copiers in the middle of theirs. Others are frozen there, and go on when another has
taken their place. A read_committed reader follows each target all the time and must never see a record twice, too
early, or out of a transaction that did not hold. COPY_RECORDS says how many records there are (default 2,400),
COPY_SERVER_KILLS how often the server is killed (default 2), COPY_COPIER_KILLS how often a copier of each group is
(default 1), and COPY_ZOMBIES how many are frozen in all (default 2).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.groups.churn_topics import Topics
from tests.clients.server_process import Make, ServerProcess
from tests.clients.transactions import java_copier, kill_files, kill_reader
from tests.clients.transactions.copy_copier import RECEIPTS
from tests.clients.transactions.copy_reader import value_of
from tests.clients.transactions.copy_stage import SESSION_MS, Command, Group, Kills, Stage, Understand, stage
from tests.peers.tools import Tools
from tests.report import Report

RECORDS = int(os.environ.get("COPY_RECORDS", "2400"))
SERVER_KILLS = int(os.environ.get("COPY_SERVER_KILLS", "2"))
COPIER_KILLS = int(os.environ.get("COPY_COPIER_KILLS", "1"))
ZOMBIES = int(os.environ.get("COPY_ZOMBIES", "2"))
SEED = int(os.environ.get("COPY_SEED", "1"))
PARTITIONS = 6
TRANSACTION_RECORDS_MAX = 30
SECONDS_MAX = 120 + RECORDS // 200
ANSWER_SECONDS_MAX = 60
SOURCE = "orders"
SECTION = "copying under kill -9"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
GROUPS = {
    "java": (java_copier.CLIENT, java_copier.CLIENT),
    "mixed": ("confluent", "kafka-python"),
    "consumer": ("confluent-consumer", "ottla-consumer"),
    "aiokafka": ("aiokafka", "aiokafka"),
    "ottla": ("ottla", "ottla"),
}
"""Which copiers are in each group."""
NUMBERED = frozenset(GROUPS) - {"java"}
"""Those whose records tell which transaction they belong to."""


class Blow(Enum):
    """What may happen to a group."""

    SERVER_KILLED = auto()
    COPIER_KILLED = auto()
    COPIER_FROZEN = auto()


@dataclass(frozen=True)
class Plan:
    """What happens when a group has got so far."""

    progress: float
    group: str
    blow: Blow


def _plans() -> list[Plan]:
    names = list(GROUPS)
    of_server = [
        Plan((number + 1) / (SERVER_KILLS + 1), names[number % len(names)], Blow.SERVER_KILLED)
        for number in range(SERVER_KILLS)
    ]
    of_copiers = [
        Plan((number + 0.5) / (COPIER_KILLS + 0.5), name, Blow.COPIER_KILLED)
        for name in names
        for number in range(COPIER_KILLS)
    ]
    # From the last group on: the first is slow to find out that a member is gone.
    frozen = [
        Plan((number + 0.5) / (ZOMBIES + 1), names[-1 - number % len(names)], Blow.COPIER_FROZEN)
        for number in range(ZOMBIES)
    ]
    return of_server + of_copiers + frozen


def _fill(server: ServerProcess, topics: Topics) -> dict[int, list[bytes]]:
    """Make the topics and write the source; what is in each of its partitions."""
    topics.make(SOURCE, partitions=PARTITIONS)
    for group in GROUPS:
        topics.make(f"{SOURCE}.{group}", partitions=PARTITIONS)
        topics.make(f"{SOURCE}.{group}{RECEIPTS}", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True, "log_level": 0})
    written: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    for index in range(RECORDS):
        partition = index % PARTITIONS
        value = value_of(partition, len(written[partition]))
        written[partition].append(value)
        producer.produce(SOURCE, value, b"key %d" % (index % 97), partition=partition)
        producer.poll(0)
    assert producer.flush(ANSWER_SECONDS_MAX) == 0
    return written


def _carry_out(plans: list[Plan], kills: Kills, played: Stage) -> None:
    """All of it, each when its time has come."""
    groups = {group.name: group for group in played.groups}
    left = list(plans)

    def due() -> Iterator[Plan]:
        yield from (plan for plan in left if groups[plan.group].progress >= plan.progress)

    while left:
        played.wait(lambda: any(due()), seconds=SECONDS_MAX)
        plan = next(due())
        left.remove(plan)
        group = groups[plan.group]
        match plan.blow:
            case Blow.SERVER_KILLED:
                kills.kill_server(group)
            case Blow.COPIER_KILLED:
                kills.kill_copier(group)
            case Blow.COPIER_FROZEN:
                zombie = kills.make_zombie(group)
                # By then the other has the transactional id.
                played.wait(lambda group=group: group.copiers_are_started, seconds=SECONDS_MAX)  # type: ignore[misc]
                zombie.thaw()


def _check_group(group: Group, server: ServerProcess, topics: Topics, written: dict[int, list[bytes]]) -> None:
    """All that holds of a group once everything is copied."""
    seen = group.follower.seen
    assert seen.wrong == []
    assert group.follower.failures == []
    assert seen.torn() == []
    given_up = {event.facts["number"] for event in group.said("aborted")}
    assert given_up & seen.sizes.keys() == set(), "what was aborted is not seen"
    if group.name in NUMBERED:
        assert {event.facts["number"] for event in group.said("committed")} <= seen.sizes.keys()
        assert seen.sizes.total() == RECORDS
    target = f"{SOURCE}.{group.name}"
    assert kill_reader.committed(server, target, partitions=PARTITIONS, at_least=RECORDS) == written
    ends = {(SOURCE, number): len(values) for number, values in written.items()}
    assert topics.committed(group.name) == ends


@pytest.fixture(scope="module")
def tools(java: Path, kafka_jars: Path) -> Tools:
    return Tools(java, kafka_jars)


def test_every_record_is_copied_once_and_in_order_while_the_server_and_the_copiers_are_killed(
    make_server: Make, tools: Tools, tmp_path: Path, report_lines: Report
) -> None:
    server = make_server(settings=SETTINGS).start()
    topics = Topics(server.address)
    written = _fill(server, topics)
    kills = Kills(server, random.Random(SEED))
    foreign: dict[str, tuple[Command, Understand]] = {
        java_copier.CLIENT: (partial(java_copier.command, tools), java_copier.understand)
    }
    with stage(server, SOURCE, tmp_path / "copiers", partitions=PARTITIONS, records=RECORDS) as played:
        for name, clients in GROUPS.items():
            played.add_group(name, clients, foreign, transaction_records_max=TRANSACTION_RECORDS_MAX)
        _carry_out(_plans(), kills, played)
        played.wait(lambda: all(group.is_done for group in played.groups), seconds=SECONDS_MAX)
        topics.reconnect()
        ends = {(SOURCE, number): len(values) for number, values in written.items()}
        played.wait(lambda: all(topics.committed(name) == ends for name in GROUPS), seconds=ANSWER_SECONDS_MAX)
        for group in played.groups:
            _check_group(group, server, topics, written)
    server.terminate()

    for group in played.groups:
        told, said = kill_files.tally(server.data, group.name), group.tally()
        report_lines.say(
            SECTION,
            f"{group.name}: {RECORDS} records, {told.commits} commits, {told.aborts} aborts, {told.fences} fences by "
            f"the coordinator, {said['fenced']} copiers fenced, {said['trouble']} troubles, {said['fatal']} gave up",
        )
    report_lines.say(SECTION, ", ".join(f"{count} {what}" for what, count in kills.counts.items()) + f" (seed {SEED})")
    count, wrong = kill_files.torn(server.data, f"{SOURCE}.java")
    assert wrong == []
    assert count > RECORDS / TRANSACTION_RECORDS_MAX
    assert kills.counts["transactions open at kills of the server"] > 0
    assert kills.counts["kills of copiers with an open transaction"] > 0
