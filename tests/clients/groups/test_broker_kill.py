"""`kill -9` of the broker under 20 members that commit: no commit that was acknowledged is taken back, and all go on.

BROKER_KILL_ROUNDS says how often (default 2). The members are frozen while the broker is asked what it remembers, so
that none of them can commit again what might have been lost.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.clients.groups import churn_checks
from tests.clients.groups.churn import BROKER_SETTINGS
from tests.clients.groups.churn_members import Company, Life, company
from tests.clients.groups.churn_topics import Topics
from tests.clients.groups.members import Spec
from tests.clients.server_process import Make, ServerProcess
from tests.report import Report

ROUNDS = int(os.environ.get("BROKER_KILL_ROUNDS", "2"))
SEED = int(os.environ.get("BROKER_KILL_SEED", "1"))
SECONDS_MAX = 120
SESSION_MS = 6_000
SETTINGS = {**BROKER_SETTINGS, "group.consumer.session.timeout.ms": str(SESSION_MS)}
TOPIC = "orders"
PARTITIONS = 8
RECORDS_AT_ONCE = 50
RECORDS_AHEAD_MAX = 2_000
"""How far the slowest group may be behind before it gets more to do."""
SECTION = "kill -9 under groups"

GROUPS = {
    "range": ("confluent-range",) * 4,
    "cooperative": ("confluent-cooperative", "kafka-python-cooperative") * 2,
    "consumer": ("confluent-consumer",) * 4,
    "mixed-range": ("kafka-python-range", "aiokafka-range") * 2,
    "both-protocols": ("confluent-range", "confluent-consumer", "aiokafka-range", "confluent-consumer"),
}


def _lives(members: Company, group: str) -> list[Life]:
    return [life for life in members.lives if life.spec.group == group]


def _start_members(members: Company, server: ServerProcess) -> None:
    for group, clients in GROUPS.items():
        for number, client in enumerate(clients):
            members.start(
                Spec(
                    name=f"{group}-{number}-{client}",
                    client=client,
                    address=server.address,
                    group=group,
                    topics=(TOPIC,),
                    instance=f"{group}-static" if number == 0 else None,
                    session_ms=SESSION_MS,
                )
            )


def _wait_for_commits(members: Company, topics: Topics, each: int) -> None:
    """Send records until every member has had a commit acknowledged, and every group some of them."""
    before = {life.spec.name: life.tally["committed"] for life in members.lives}

    def commits(life: Life) -> int:
        return life.tally["committed"] - before.get(life.spec.name, 0)

    def have_all_committed() -> bool:
        members.revive_the_fallen()
        living = [member.life for member in members.living]
        of_groups = [sum(commits(life) for life in living if life.spec.group == group) for group in GROUPS]
        if all(commits(life) > 0 for life in living) and min(of_groups) >= each:
            return True
        slowest = min(churn_checks.counts(_lives(members, group))["processed"] for group in GROUPS)
        if topics.sent < slowest + RECORDS_AHEAD_MAX:
            topics.send((TOPIC,), RECORDS_AT_ONCE)
        return False

    def account() -> str:
        return "\n".join(f"{life.spec.name}: {dict(life.tally)}, before: {before}" for life in members.lives)

    members.news.wait_for_answer(have_all_committed, seconds=SECONDS_MAX, what=account)


def _kill_and_check(server: ServerProcess, members: Company, topics: Topics) -> None:
    server.kill()
    for member in members.living:
        member.freeze()
    server.start()
    topics.reconnect()
    for group in GROUPS:
        acknowledged = churn_checks.acknowledged_commits(_lives(members, group))
        assert acknowledged
        assert churn_checks.went_backwards(acknowledged, topics.committed(group)) == [], group
    for member in members.living:
        member.thaw()


def _finish(members: Company, topics: Topics) -> None:
    topics.finish()
    everything = set(topics.produced.items())

    def are_all_done() -> bool:
        members.revive_the_fallen()
        return all(set(churn_checks.processed(_lives(members, group))) == everything for group in GROUPS)

    def left() -> str:
        return str({group: len(everything - set(churn_checks.processed(_lives(members, group)))) for group in GROUPS})

    members.news.wait_for_answer(are_all_done, seconds=SECONDS_MAX, what=left)
    ends = topics.ends()
    members.news.wait_for_answer(
        lambda: all(topics.committed(group) == ends for group in GROUPS),
        seconds=SECONDS_MAX,
        what=lambda: f"ends {ends}, committed { {group: topics.committed(group) for group in GROUPS} }",
    )
    living = members.living
    for member in living:
        member.ask_to_leave()
    for member in living:
        assert member.join() == 0, member.last_words()


def test_no_acknowledged_commit_is_taken_back_when_the_broker_is_killed_and_every_group_goes_on(
    make_server: Make, tmp_path: Path, report_lines: Report
) -> None:
    chance = random.Random(SEED)
    server = make_server(settings=SETTINGS).start()
    topics = Topics(server.address)
    topics.make(TOPIC, partitions=PARTITIONS)
    for group in GROUPS:
        topics.commit_beginnings(group)
    with company(tmp_path / "members") as members:
        _start_members(members, server)
        for _ in range(ROUNDS):
            _wait_for_commits(members, topics, each=chance.randrange(5, 20))
            _kill_and_check(server, members, topics)
        _wait_for_commits(members, topics, each=5)
        _finish(members, topics)

    for group in GROUPS:
        lives = _lives(members, group)
        assert churn_checks.double_owners_in_a_generation(lives) == [], group
        assert churn_checks.overlapping_tenures(lives) == [], group
        seen, counts = churn_checks.processed(lives), churn_checks.counts(lives)
        report_lines.say(
            SECTION,
            f"{group}: {ROUNDS} kills (seed {SEED}), {len(lives)} members, {len(topics.produced)} records, "
            f"{seen.total() - len(seen)} processings again, {counts['committed']} commits, "
            f"{counts['assigned']} assignments, {counts['lost']} losses, {counts['trouble']} troubles",
        )
