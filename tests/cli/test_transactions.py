"""`ottla transactions` against a real server, and what other commands do with transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.blocking.producer import Producer
from tests.cli.server_process import ServerProcess, invoke


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with ottla.connect(server.address) as made:
        yield made


@pytest.fixture
def transactional_id(topic: str) -> str:
    return f"id-of-{topic}"


@pytest.fixture
def open_one(client: Client, topic: str, transactional_id: str) -> Iterator[Producer]:
    """A transaction that has written to one of two partitions, behind a record that is committed."""
    client.admin().create_topic(topic, partitions=2)
    client.producer().send(topic, b"plain", partition=1)
    with client.producer(transactional_id=transactional_id) as producer:
        producer.begin()
        producer.send(topic, b"open", partition=1)
        yield producer


def rows(output: bytes) -> list[list[str]]:
    return [line.split("\t") for line in output.decode().splitlines()[1:]]


def described(server: ServerProcess, name: str) -> dict[str, Any]:
    (found,) = json.loads(server.succeed("transactions", "describe", name, "--json"))
    assert isinstance(found, dict)
    return found


@pytest.mark.usefixtures("open_one")
def test_an_open_transaction_is_listed(server: ServerProcess, transactional_id: str) -> None:
    found = described(server, transactional_id)

    assert transactional_id in server.succeed("transactions", "list").decode().splitlines()
    (row,) = [row for row in rows(server.succeed("transactions", "list", "--long")) if row[0] == transactional_id]
    assert row[1:3] == ["Ongoing", str(found["producer_id"])]
    (listed,) = [
        each for each in json.loads(server.succeed("transactions", "list", "--json")) if each["id"] == transactional_id
    ]
    assert (listed["state"], listed["producer_id"]) == ("Ongoing", found["producer_id"])


@pytest.mark.parametrize(
    ("options", "is_there"),
    [
        (["--state", "ongoing"], True),
        (["--state", "CompleteCommit"], False),
        (["--older-than", "0ms"], True),
        (["--older-than", "1h"], False),
        (["--pattern", "id-of-.*"], True),
        (["--pattern", "id-of-"], False),
        (["--producer-id", "123456789"], False),
    ],
)
@pytest.mark.usefixtures("open_one")
def test_a_list_can_be_narrowed(
    server: ServerProcess, transactional_id: str, options: list[str], *, is_there: bool
) -> None:
    found = server.succeed("transactions", "list", *options).decode().splitlines()

    assert (transactional_id in found) is is_there


@pytest.mark.usefixtures("open_one")
def test_describing_shows_state_producer_and_partitions(
    server: ServerProcess, topic: str, transactional_id: str
) -> None:
    found = described(server, transactional_id)
    ((name, state, _, epoch, timeout, open_for, partitions),) = rows(
        server.succeed("transactions", "describe", transactional_id)
    )

    assert (found["state"], found["producer_epoch"], found["timeout_ms"]) == ("Ongoing", 0, 60_000)
    assert found["partitions"] == [{"topic": topic, "partition": 1}]
    assert (name, state, epoch, timeout, partitions) == (transactional_id, "Ongoing", "0", "60s", f"{topic}:1")
    assert open_for.endswith("s")


@pytest.mark.usefixtures("open_one")
def test_one_id_that_is_not_known_does_not_hide_the_others(server: ServerProcess, transactional_id: str) -> None:
    done = server.run("transactions", "describe", "nobody", transactional_id)

    assert done.returncode == 1
    assert b"nothing is known of transactional id nobody" in done.stderr
    assert len(rows(done.stdout)) == 1


@pytest.mark.usefixtures("open_one")
def test_describing_a_partition_shows_who_writes_to_it(server: ServerProcess, topic: str) -> None:
    place = ("--topic", topic, "--partition", "1")
    found = json.loads(server.succeed("transactions", "describe", *place, "--json"))
    table = rows(server.succeed("transactions", "describe", *place))

    assert sorted(each["open_since_offset"] is not None for each in found) == [False, True]
    assert sorted(row[5] for row in table) == ["", "1"]


@pytest.mark.usefixtures("open_one")
def test_aborting_by_id_says_what_it_did_and_fences(
    server: ServerProcess, topic: str, transactional_id: str, open_one: Producer
) -> None:
    said = server.succeed("transactions", "abort", transactional_id).decode()

    assert said.startswith(f"{transactional_id}: aborted in 1 partition(s); producer ")
    with pytest.raises(ottla.ProducerFenced):
        open_one.commit()
    assert described(server, transactional_id)["state"] in ("CompleteAbort", "Empty")
    read = server.succeed("consume", topic, "--isolation", "read_committed")
    assert read == b"plain\n"


@pytest.mark.usefixtures("open_one")
def test_aborting_what_is_not_open_says_so(server: ServerProcess, transactional_id: str, open_one: Producer) -> None:
    open_one.commit()

    (done,) = json.loads(server.succeed("transactions", "abort", transactional_id, "--json"))

    assert (done["id"], done["aborted"]) == (transactional_id, False)


def test_aborting_an_id_that_nobody_has_fails_and_names_it(server: ServerProcess) -> None:
    done = server.run("transactions", "abort", "nobody", "no-one")

    assert done.returncode == 1
    assert b"nobody:" in done.stderr
    assert b"no-one:" in done.stderr


def test_aborting_by_offset_ends_what_hangs_in_a_partition(
    server: ServerProcess, topic: str, open_one: Producer
) -> None:
    place = ("--topic", topic, "--partition", "1")
    wrong = server.run("transactions", "abort", *place, "--start-offset", "7")
    said = server.succeed("transactions", "abort", *place, "--start-offset", "1").decode()

    assert wrong.returncode == 1
    assert b"begin at [1]" in wrong.stderr
    assert said.startswith(f"{topic}-1: aborted the transaction of producer ")
    assert server.succeed("consume", topic, "--isolation", "read_committed") == b"plain\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["abort"],
        ["abort", "id", "--topic", "t", "--partition", "0", "--start-offset", "1"],
        ["abort", "--topic", "t", "--start-offset", "1"],
        ["abort", "--topic", "t", "--partition", "0"],
        ["abort", "id", "--start-offset", "1"],
        ["list", "--older-than", "soon"],
    ],
)
def test_a_command_that_cannot_be_is_refused_before_a_server_is_asked(arguments: list[str]) -> None:
    done = invoke("transactions", *arguments, variables={"OTTLA_BOOTSTRAP": "127.0.0.1:1"})

    assert done.returncode == 2


def test_a_state_that_does_not_exist_is_named(server: ServerProcess) -> None:
    done = server.run("transactions", "list", "--state", "nonsense")

    assert done.returncode == 1
    assert b"there is no state nonsense" in done.stderr


@pytest.mark.usefixtures("open_one")
def test_consume_waits_for_the_end_of_transactions_if_told_to(server: ServerProcess, topic: str) -> None:
    committed = server.succeed("consume", topic, "--isolation", "read_committed")
    everything = server.succeed("consume", topic)

    assert committed == b"plain\n"
    assert everything == b"plain\nopen\n"


@pytest.mark.usefixtures("open_one")
def test_the_lag_of_a_group_can_end_where_committed_records_do(
    server: ServerProcess, client: Client, topic: str
) -> None:
    client.admin().alter_group_offsets(topic, {(topic, 1): 0})

    for isolation, lag in (("read_committed", 1), ("read_uncommitted", 2)):
        (found,) = json.loads(server.succeed("groups", "describe", topic, "--isolation", isolation, "--json"))
        assert found["lag"] == lag


def test_produce_writes_all_of_its_input_in_one_transaction(
    server: ServerProcess, topic: str, transactional_id: str
) -> None:
    server.succeed("topics", "create", topic)

    server.succeed("produce", topic, "--transactional-id", transactional_id, stdin=b"a\nb\n")

    assert described(server, transactional_id)["state"] in ("PrepareCommit", "CompleteCommit")
    assert server.succeed("consume", topic, "--isolation", "read_committed", "--max", "2") == b"a\nb\n"


def test_produce_in_a_transaction_writes_nothing_when_a_record_fails(
    server: ServerProcess, topic: str, transactional_id: str
) -> None:
    server.succeed("topics", "create", topic)
    lines = b'{"value": "a"}\nthis is no JSON\n'

    done = server.run("produce", topic, "--transactional-id", transactional_id, "--input", "json", stdin=lines)

    assert done.returncode == 1
    assert b"record 2" in done.stderr
    assert b"nothing was written" in done.stderr
    assert server.succeed("consume", topic, "--isolation", "read_committed") == b""
