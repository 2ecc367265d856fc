"""The rows as they are defined: every one that is asked for, each with its own id, its policy and its expectation."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import conditions, latency, raw_client
from bench.peers.__main__ import PARTS, thinned, unknown
from bench.peers.contract import KAFKA, NOT_PRODUCED, OURS, QUICK, Pace, Row, Session, Turn
from bench.peers.memory import parse_status
from bench.peers.policies import EVEN
from bench.peers.store import Store
from bench.peers.threads import busiest_ticks
from ottla.protocol.connection import ServerConnection
from ottla.protocol.messages.produce import ProduceRequest
from ottla.records.reader import read_batch
from tests.peers.maven import PeerMissing


@pytest.fixture
def sessions(tmp_path: Path) -> list[Session]:
    return [session for part in PARTS.values() for session in part(Pace(), Store(tmp_path))]


@pytest.fixture
def rows(sessions: list[Session]) -> list[Row]:
    return [row for session in sessions for task in session.tasks for row in task.rows]


def test_no_two_rows_share_an_id(rows: list[Row]) -> None:
    ids = [row.id for row in rows]

    assert len(set(ids)) == len(ids)


def test_every_row_that_produces_names_its_fsync_policy(rows: list[Row]) -> None:
    producing = [row for row in rows if row.id.startswith(("raw-", "produce-", "transactions-", "cpu-", "growth-"))]

    assert producing
    assert all(row.fsync != NOT_PRODUCED for row in producing)


def test_with_acks_1_every_size_spread_and_number_of_producers_is_expected_to_be_level(rows: list[Row]) -> None:
    expected = {row.id: row.expected for row in rows}

    for size in (100, 1_000, 10_000):
        for partitions in (1, 6, 100):
            assert expected[f"produce-java-acks1-{size}b-{partitions}p"] == 1.0
            for producers in (1, 50):
                assert expected[f"produce-librdkafka-acks1-{size}b-{partitions}p-{producers}x"] == 1.0


@pytest.mark.parametrize(
    ("row_id", "expected"),
    [
        ("raw-acks1-100b-1c", 3.0),
        ("raw-acks1-100b-8c", 1.3),
        ("raw-acks1-1000b-8c", 1.3),
        ("raw-fsync-1000b-16c", 3.0),
        ("startup-new", 5.0),
        ("memory-idle", 5.0),
        ("cpu-librdkafka-1000b", 3.0),
        ("fetch-cold-librdkafka-1000b-1x", 1.0),
        ("fetch-tail-librdkafka-1000b-20x", 1.0),
        ("latency-acks1-50-p50", 1.0),
        ("latency-fsync-80-p99.9", 1.0),
        ("kafko-send-1024", 1.0),
    ],
)
def test_what_is_expected_of_a_row_stands_in_it(rows: list[Row], row_id: str, expected: float) -> None:
    assert {row.id: row.expected for row in rows}[row_id] == expected


def test_every_task_is_done_by_us_and_by_the_peer_that_its_rows_name(sessions: list[Session]) -> None:
    for session in sessions:
        for task in session.tasks:
            assert all({OURS, row.peer} <= set(task.take) for row in task.rows)
            assert set(task.take) <= set(session.sides)


def test_a_run_that_tries_things_out_takes_the_ends_of_one_session_of_each_kind(sessions: list[Session]) -> None:
    thin = thinned(sessions)

    names = [session.name for session in thin]
    assert [name for name in names if name.startswith("produce")] == [
        "produce with librdkafka, acks1",
        "produce with Java, acks1",
    ]
    assert {"raw", "start", "fetch with Java"} <= set(names)
    assert [name for name in names if name.startswith(("latency", "the most"))] == [
        "the most that each side bears, acks1",
        "latency, acks1 at 50 %",
    ]
    assert all(1 <= len(session.tasks) <= 2 for session in thin)


def test_rows_are_unknown_that_were_never_measured_or_lie_too_far_apart(
    sessions: list[Session], tmp_path: Path
) -> None:
    store, (raw, *_) = Store(tmp_path / "kept"), sessions
    known, spread_out, *never = [row for task in raw.tasks for row in task.rows]
    for row, values in ((known, (10.0, 10.0, 10.0)), (spread_out, (10.0, 10.0, 20.0))):
        for side in (OURS, row.peer):
            for value in values:
                store.add(row, side, Turn(value=value))

    assert unknown([raw], store) == [spread_out.id, *(row.id for row in never)]


def test_each_load_is_waited_at_in_a_session_of_its_own_behind_the_maximum_it_is_a_share_of(tmp_path: Path) -> None:
    waits = latency.sessions(Pace(), Store(tmp_path))

    assert all(len(session.tasks) == 1 for session in waits)
    assert [session.tasks[0].rows[0].id.removesuffix("-p50") for session in waits] == [
        f"latency-{load}-{policy.key}" if load == "most" else f"latency-{policy.key}-{load}"
        for policy in EVEN
        for load in ("most", "50", "80")
    ]


def test_latencies_are_looked_at_below_what_either_side_bore_in_any_of_its_rounds(
    rows: list[Row], tmp_path: Path
) -> None:
    store, (policy, *_) = Store(tmp_path / "kept"), EVEN
    most = next(row for row in rows if row.id == latency.maximum_id(policy))
    for side, values in ((OURS, (240.0, 250.0, 230.0)), (KAFKA, (200.0, 120.0, 210.0))):
        for value in values:
            store.add(most, side, Turn(value=value))

    assert latency.rate_of(store, policy, 50) == 60.0


def test_a_quick_run_is_told_by_its_pace_and_has_a_single_round() -> None:
    assert QUICK.is_quick
    assert QUICK.rounds == 1


def test_both_sides_of_an_even_policy_promise_the_same_by_a_setting_of_one_of_them() -> None:
    settings = {policy.key: sorted(name for configs in policy.configs.values() for name in configs) for policy in EVEN}

    assert settings == {"acks1": [], "os": ["ottla.acks.all"], "fsync": ["flush.messages"]}


def test_a_raw_request_holds_one_batch_for_its_partition_that_the_broker_can_check() -> None:
    asked = raw_client.Asked(
        host="h", port=1, topic="t", partitions=2, connections=1, window=5, acks=-1, size=100, records=3
    )

    (request,) = ServerConnection().receive(raw_client.frame(asked, 1))

    assert isinstance(request.message, ProduceRequest)
    (topic,) = request.message.topic_data
    (partition,) = topic.partition_data
    assert (request.message.acks, topic.name, partition.index) == (-1, "t", 1)
    assert partition.records is not None
    assert [len(record.value or b"") for record in read_batch(partition.records)] == [100, 100, 100]


def test_the_commands_on_the_page_name_no_place_of_this_machine() -> None:
    text = "\n".join(conditions.commands())

    assert str(Path.cwd()) not in text
    assert str(Path.home()) not in text
    assert "kafka.Kafka server.properties" in text


def test_a_peer_that_is_not_there_now_keeps_the_words_of_the_run_that_measured_it() -> None:
    def absent() -> str:
        raise PeerMissing("not installed")

    described = {"Redis server": absent, "nats-server": lambda: "nats-server: v2", "kafko": absent}
    kept = ["a machine", "Redis server v=7", "nats-server: v1"]

    assert conditions.others(kept, described) == ["Redis server v=7", "nats-server: v2"]


def test_memory_is_read_from_what_the_kernel_tells_of_a_process() -> None:
    assert parse_status("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n") == (1.0, 2.0)
    assert parse_status("Name:\tzombie\n") == (0.0, 0.0)


def test_the_busiest_thread_is_the_one_that_computed_most_since_the_first_look() -> None:
    assert busiest_ticks({1: 100, 2: 5}, {1: 101, 2: 25, 3: 7}) == 20
    assert busiest_ticks({1: 5}, {}) == 0
