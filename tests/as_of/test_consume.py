"""`ottla consume --as-of` against a real server: what was there, up to where, and how to get the same again."""

from __future__ import annotations

import json
import re
import shlex

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.clock import SystemClock
from tests.as_of.load import under_load
from tests.cli.server_process import Done, ServerProcess

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000


def fill(server: ServerProcess, topic: str, *, base_ms: int) -> None:
    """Two partitions of five records each, a minute apart."""
    server.succeed("topics", "create", topic, "--partitions", "2")
    for partition in range(2):
        lines = [json.dumps({"value": f"{partition}{n}", "timestamp": base_ms + n * MINUTE_MS}) for n in range(5)]
        given = ("produce", topic, "--input", "json", "--partition", str(partition))
        server.succeed(*given, stdin="\n".join(lines).encode())


@pytest.fixture
def base_ms() -> int:
    return SystemClock().now_ms() - 60 * MINUTE_MS


@pytest.fixture
def filled(server: ServerProcess, topic: str, base_ms: int) -> str:
    fill(server, topic, base_ms=base_ms)
    return topic


def again(done: Done) -> list[str]:
    """The arguments that standard error says give the same again."""
    assert done.returncode == 0, done.stderr.decode()
    found = re.search(r"^ottla: to read the same again: (--as-of .*)$", done.stderr.decode(), re.MULTILINE)
    assert found is not None, done.stderr.decode()
    return shlex.split(found[1])


def test_the_same_is_read_twice_under_load(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "3")

    def connect() -> Client:
        return ottla.connect(server.address)

    with under_load(connect, topic, partitions=3) as load:
        first = server.run("consume", topic, "--as-of", "now", "--json")
        load.wait_for_more(6)
        second = server.run("consume", topic, *again(first), "--json")
        load.wait_for_more(1)
        later = server.run("consume", topic, "--as-of", "now", "--json")

    assert second.returncode == 0
    assert first.stdout
    assert first.stdout == second.stdout
    assert again(first) == again(second)
    assert len(later.stdout) > len(first.stdout)


def test_a_time_is_what_was_before_it(server: ServerProcess, filled: str, base_ms: int) -> None:
    done = server.run("consume", filled, "--as-of", str(base_ms + 2 * MINUTE_MS))

    assert done.stdout.split() == [b"00", b"01", b"10", b"11"]
    assert again(done) == ["--as-of", json.dumps({filled: {"0": 2, "1": 2}}, separators=(",", ":"))]


def test_so_long_ago_is_a_time(server: ServerProcess, filled: str) -> None:
    assert server.succeed("consume", filled, "--as-of", "-3510s").split() == [
        b"00",
        b"01",
        b"10",
        b"11",
    ]


def test_offsets_are_read_up_to(server: ServerProcess, filled: str) -> None:
    found = server.succeed("consume", filled, "--as-of", json.dumps({filled: {"0": 1, "1": 3}, "other": {"0": 9}}))

    assert found.split() == [b"00", b"10", b"11", b"12"]


def test_partitions_that_the_offsets_do_not_name_are_not_read(server: ServerProcess, filled: str) -> None:
    assert server.succeed("consume", filled, "--as-of", json.dumps({filled: {"1": 2}})).split() == [b"10", b"11"]


def test_one_partition_of_it_can_be_read(server: ServerProcess, filled: str) -> None:
    done = server.run("consume", filled, "--as-of", "now", "--partition", "1", "--max", "2")

    assert done.stdout.split() == [b"10", b"11"]
    assert json.loads(again(done)[1]) == {filled: {"1": 5}}


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("beginning", ["00", "01", "02", "10", "11", "12"]),
        ("2", ["02", "12"]),
        ("-1", ["02", "12"]),
        ("-99", ["00", "01", "02", "10", "11", "12"]),
        ("time", ["01", "02", "11", "12"]),
        ("-1m", []),
        ("7", []),
    ],
)
def test_reading_may_begin_elsewhere(
    server: ServerProcess, filled: str, base_ms: int, start: str, values: list[str]
) -> None:
    where = str(base_ms + MINUTE_MS) if start == "time" else start
    as_of = json.dumps({filled: {"0": 3, "1": 3}})

    assert server.succeed("consume", filled, "--as-of", as_of, "--from", where).decode().split() == values


def test_a_form_of_ones_own_is_printed(server: ServerProcess, filled: str) -> None:
    as_of = json.dumps({filled: {"0": 1}})

    assert server.succeed("consume", filled, "--as-of", as_of, "--output", "{partition}@{offset};") == b"0@0;"


def test_a_beginning_that_has_moved_is_told_of(server: ServerProcess, filled: str) -> None:
    with ottla.connect(server.address) as client:
        client.admin().delete_records({(filled, 0): 2, (filled, 1): 4})

    done = server.run("consume", filled, "--as-of", json.dumps({filled: {"0": 3, "1": 3}}))

    assert (done.returncode, done.stdout) == (0, b"02\n")
    assert f"{filled}-0 begins at offset 2 now".encode() in done.stderr
    assert f"{filled}-1: records of the snapshot are deleted (offsets all up to 2)".encode() in done.stderr


def test_a_topic_that_was_made_anew_is_noticed_by_a_pinned_snapshot(server: ServerProcess, filled: str) -> None:
    with ottla.connect(server.address) as client:
        text = client.snapshot(filled).to_json(pinned=True)
    server.succeed("topics", "delete", filled)
    fill(server, filled, base_ms=SystemClock().now_ms() - 60 * MINUTE_MS)

    done = server.run("consume", filled, "--as-of", text)

    assert (done.returncode, done.stdout) == (1, b"")
    assert b"was made anew since the snapshot was taken" in done.stderr


def test_committed_records_end_before_an_open_transaction(server: ServerProcess, filled: str) -> None:
    with ottla.connect(server.address) as client, client.producer(transactional_id=filled) as producer:
        producer.begin()
        producer.send_to(filled, 0, b"open")
        committed = server.run("consume", filled, "--as-of", "now", "--isolation", "read_committed")
        beyond = server.run(
            "consume", filled, "--as-of", json.dumps({filled: {"0": 6}}), "--isolation", "read_committed"
        )
        producer.commit()

    assert json.loads(again(committed)[1]) == {filled: {"0": 5, "1": 5}}
    assert beyond.returncode == 1
    assert b"a transaction is open before offset 6" in beyond.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--as-of", "yesterday"), 2, b"write now, a time"),
        (("--as-of", "now", "--follow"), 2, b"leave out --follow and --group"),
        (("--as-of", "now", "--group", "g"), 2, b"leave out --follow and --group"),
        (("--as-of", '{"elsewhere":{"0":1}}'), 2, b"says nothing of topic"),
        (("--as-of", '{"TOPIC":{"0":1}}', "--partition", "1"), 2, b"says nothing of TOPIC-1"),
        (("--as-of", '{"TOPIC":{"0":6}}'), 1, b"ends at 5, before offset 6"),
        (("--as-of", '{"TOPIC":{"2":0}}'), 1, b"has no partition 2"),
    ],
)
def test_what_cannot_be_read_is_refused(
    server: ServerProcess, filled: str, arguments: tuple[str, ...], code: int, said: bytes
) -> None:
    done = server.run("consume", filled, *(each.replace("TOPIC", filled) for each in arguments))

    assert (done.returncode, done.stdout) == (code, b"")
    assert said.replace(b"TOPIC", filled.encode()) in done.stderr
