"""Real clients in groups under churn: every record is processed, and no partition has two owners.

CHURN_ROUNDS says how many things happen to each group (default: each once), CHURN_SEED which and in which order.
Members are processes of their own, which are killed with `kill -9` like the machines that they stand for.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.clients.groups import churn_checks
from tests.clients.groups.churn import BROKER_SETTINGS, KINDS, Churn, Kind
from tests.clients.groups.churn_members import company
from tests.clients.groups.churn_topics import Topics, Watch
from tests.clients.server_process import Make
from tests.report import Report

ROUNDS = int(os.environ.get("CHURN_ROUNDS", "0"))
SEED = int(os.environ.get("CHURN_SEED", "1"))
SECTION = "groups under churn"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_group_under_churn_processes_everything_and_gives_no_partition_to_two(
    kind: Kind, make_server: Make, tmp_path: Path, report_lines: Report
) -> None:
    server = make_server(settings=BROKER_SETTINGS).start()
    topics = Topics(server.address)
    chance = random.Random(f"{SEED} {kind.name}")
    with company(tmp_path / "members") as members:
        churn = Churn(server.address, kind, company=members, topics=topics, chance=chance)
        with Watch(server.address, churn.group) as watch:
            churn.run(ROUNDS or churn.action_count)
        lives = members.lives

    seen = churn_checks.processed(lives)
    assert set(seen) == set(topics.produced.items())
    assert churn_checks.double_owners_in_a_generation(lives) == []
    assert churn_checks.overlapping_tenures(lives) == []
    assert watch.looks > 0
    assert watch.doubles == []
    assert watch.failures == []
    counts = churn_checks.counts(lives)
    report_lines.say(
        SECTION,
        f"{kind.name}: {len(churn.done)} events (seed {SEED}), {len(lives)} members, {counts['assigned']} assignments, "
        f"{counts['lost']} losses, {len(topics.produced)} records, {seen.total() - len(seen)} of them again, "
        f"{counts['committed']} commits, {watch.looks} looks",
    )
