"""Kafka's own consumer in groups under churn, by both protocols, alone and beside Python clients.

CHURN_ROUNDS says how many things happen to each group (default: each once), CHURN_SEED in which order.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.clients.groups.churn_members import News
from tests.clients.groups.churn_topics import Topics
from tests.clients.groups.members import Spec
from tests.clients.server_process import Make
from tests.clients.tools.java_members import CLIENTS, CONSUMER_PROTOCOL, java_member
from tests.clients.tools.listened import ListenedMember
from tests.clients.tools.rounds import BROKER_SETTINGS, Begin, Rounds, examined, python_member
from tests.peers.tools import Tools
from tests.report import Report

ROUNDS = int(os.environ.get("CHURN_ROUNDS", "0")) or 4
SEED = int(os.environ.get("CHURN_SEED", "1"))
SECTION = "groups under churn"
KINDS = {
    "java-cooperative": ("java-cooperative",),
    "java-consumer": (CONSUMER_PROTOCOL,),
    "java-and-python": ("kafka-python-range", "java-range", CONSUMER_PROTOCOL, "confluent-range"),
}
"""Which clients are in a group."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_java_consumers_under_churn_processes_everything_and_gives_no_partition_to_two(
    kind: str, tools: Tools, make_server: Make, tmp_path: Path, report_lines: Report
) -> None:
    server = make_server(settings=BROKER_SETTINGS).start()
    topics = Topics(server.address)
    chance = random.Random(f"{SEED} {kind}")

    def begin_java(spec: Spec, news: News, directory: Path) -> ListenedMember:
        return java_member(spec, tools, news, directory)

    clients: dict[str, Begin] = {name: begin_java if name in CLIENTS else python_member for name in KINDS[kind]}
    directory = tmp_path / "members"
    with Rounds(kind, server.address, clients, topics=topics, directory=directory, chance=chance) as churn:
        churn.run(ROUNDS)
    written, line = examined(churn, topics, server)
    report_lines.say(SECTION, f"{line} (seed {SEED})")
    # Whoever speaks the new protocol makes the group one of the new kind, and stays beside the others.
    assert (written.generations["consumer"] > 0) == (CONSUMER_PROTOCOL in KINDS[kind])
    assert (written.generations["classic"] > 0) == (KINDS[kind] != (CONSUMER_PROTOCOL,))
