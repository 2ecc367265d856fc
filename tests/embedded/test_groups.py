"""Groups of a broker inside this program: positions that outlive the program."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client.blocking.client import Client

QUICK = {"group.consumer.session.timeout.ms": 1_500, "group.consumer.heartbeat.interval.ms": 200}
PATIENT = {"group.consumer.session.timeout.ms": 60_000, "group.initial.rebalance.delay.ms": 0}
"""A member that died is missed only after a minute: longer than any of these tests waits."""
SECONDS_MAX = 60


def read(client: Client, group: str | None, how_many: int, **settings: Any) -> list[int]:
    """What a consumer that subscribes gets, and commits."""
    found: list[int] = []
    with client.consumer(group=group, **settings) as consumer:
        consumer.subscribe(["t"])
        for record in consumer.records(idle_ms=SECONDS_MAX * 1_000):
            found.append(int(record.value or b""))
            if len(found) == how_many:
                break
        consumer.commit()
    return found


def test_a_group_goes_on_where_it_committed_before_the_program_ended(tmp_path: Path) -> None:
    with ottla.open(tmp_path / "data") as client, client.producer() as producer:
        producer.send_batch("t", [b"%d" % number for number in range(10)])
        assert read(client, "g", 4) == [0, 1, 2, 3]

    with ottla.open(tmp_path / "data") as client:
        assert read(client, "g", 6) == [4, 5, 6, 7, 8, 9]


def test_an_anonymous_consumer_begins_at_the_beginning_every_time(tmp_path: Path) -> None:
    with ottla.open(tmp_path / "data") as client, client.producer() as producer:
        producer.send_batch("t", [b"0", b"1"])
        assert read(client, None, 2) == [0, 1]

    with ottla.open(tmp_path / "data") as client:
        assert read(client, None, 2) == [0, 1]


def test_groups_read_everything_independently_of_each_other(tmp_path: Path) -> None:
    with ottla.open(tmp_path / "data") as client, client.producer() as producer:
        producer.send_batch("t", [b"0", b"1", b"2"])

        assert read(client, "a", 2) == [0, 1]
        assert read(client, "b", 3) == [0, 1, 2]
        assert read(client, "a", 1) == [2]


def test_a_group_joins_at_once_by_default(tmp_path: Path) -> None:
    with ottla.open(tmp_path / "data") as client, client.producer() as producer:
        producer.send("t", b"0")
        with client.consumer(group="g") as consumer:
            consumer.subscribe(["t"])
            consumer.poll(20_000)

            described = client.admin().describe_group("g")

    assert described is not None
    assert described.kind == "consumer"


COMMIT_AND_DIE = f"""
import os, signal, sys, ottla
client = ottla.open(sys.argv[1], config={PATIENT!r})
with client.producer() as producer:
    producer.send_batch("t", [b"%d" % number for number in range(10)])
if sys.argv[2] == "assign":
    consumer = client.consumer(group="g")
    consumer.assign([("t", 0)])
else:
    consumer = client.consumer(group="g", protocol=sys.argv[2], session_timeout_ms=60_000)
    consumer.subscribe(["t"])
for record in consumer:
    if record.value == b"5":
        consumer.commit()
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("way", ["consumer", "classic", "assign"])
def test_a_commit_survives_the_death_of_the_program_and_its_members_are_not_waited_for(
    tmp_path: Path, way: str
) -> None:
    script = [sys.executable, "-c", COMMIT_AND_DIE, str(tmp_path / "data"), way]
    died = subprocess.run(script, timeout=SECONDS_MAX, check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    with ottla.open(tmp_path / "data", config=PATIENT) as client:
        assert {entry.offset for entry in client.admin().group_offsets("g").values()} == {6}
        protocol = "consumer" if way == "assign" else way
        assert read(client, "g", 4, protocol=protocol) == [6, 7, 8, 9]


def test_closing_the_client_closes_its_members(tmp_path: Path) -> None:
    client = ottla.open(tmp_path / "data", config=QUICK)
    client.admin().create_topic("t")
    consumer = client.consumer(group="g")
    consumer.subscribe(["t"])
    consumer.poll(100)

    client.close()

    assert consumer.is_closed
    with ottla.open(tmp_path / "data", config=QUICK) as again:
        described = again.admin().describe_group("g")
        assert described is None or described.members == ()
