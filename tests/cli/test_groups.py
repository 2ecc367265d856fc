"""`ottla groups` against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client.blocking.client import Client
from tests.cli.server_process import ServerProcess

T0_MS = 1_700_000_000_000


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with ottla.connect(server.address) as made:
        yield made


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def read(client: Client, topic: str, group: str) -> None:
    """A topic of two partitions with ten records each, of which the group has read 6 and 3."""
    client.admin().create_topic(topic, partitions=2)
    with client.producer() as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=T0_MS + number * 1_000)
    client.admin().alter_group_offsets(group, {(topic, 0): 6, (topic, 1): 3})


def offsets(client: Client, group: str) -> dict[int, int]:
    return {key.partition: entry.offset for key, entry in client.admin().group_offsets(group).items()}


def described(server: ServerProcess, group: str) -> dict[str, Any]:
    (found,) = json.loads(server.succeed("groups", "describe", group, "--json"))
    assert isinstance(found, dict)
    return found


def rows(output: bytes) -> list[list[str]]:
    return [line.split("\t") for line in output.decode().splitlines()[1:]]


@pytest.mark.usefixtures("read")
def test_a_group_that_has_committed_is_listed(server: ServerProcess, group: str) -> None:
    assert group in server.succeed("groups", "list").decode().splitlines()
    assert [group, "Empty", "classic"] in rows(server.succeed("groups", "list", "--long"))
    assert {"name": group, "state": "Empty", "kind": "classic"} in json.loads(
        server.succeed("groups", "list", "--json")
    )


@pytest.mark.usefixtures("read")
def test_a_list_can_be_narrowed_by_state_and_kind(server: ServerProcess, group: str) -> None:
    assert group in server.succeed("groups", "list", "--state", "empty", "--kind", "classic").decode().splitlines()
    assert group not in server.succeed("groups", "list", "--state", "stable").decode().splitlines()
    assert group not in server.succeed("groups", "list", "--kind", "consumer").decode().splitlines()


@pytest.mark.usefixtures("read")
def test_describing_shows_the_lag_of_every_partition(server: ServerProcess, topic: str, group: str) -> None:
    assert server.succeed("groups", "describe", group).decode().splitlines() == [
        "GROUP\tSTATE\tTOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tMEMBER\tHOST\tCLIENT",
        f"{group}\tEmpty\t{topic}\t0\t6\t10\t4\t\t\t",
        f"{group}\tEmpty\t{topic}\t1\t3\t10\t7\t\t\t",
    ]
    found = described(server, group)
    assert (found["state"], found["kind"], found["lag"], found["members"]) == ("Empty", "classic", 11, [])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.usefixtures("read")
def test_describing_shows_the_members_and_what_they_read(
    server: ServerProcess, client: Client, topic: str, group: str, protocol: str
) -> None:
    with client.consumer(group=group, protocol=protocol) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            consumer.poll(100)

        found = described(server, group)
        members = rows(server.succeed("groups", "describe", group, "--members"))

    assert (found["state"], found["kind"], found["lag"]) == ("Stable", protocol, 11)
    (member,) = found["members"]
    assert (member["client"], member["topics"]) == ("ottla", [topic])
    assert [part["partition"] for part in member["partitions"]] == [0, 1]
    assert [part["member"] for part in found["partitions"]] == [member["id"]] * 2
    ((name, _, instance, client_id, _, partitions, topics),) = members
    assert (name, instance, client_id, partitions, topics) == (group, "", "ottla", f"{topic}:0,1", topic)


def test_a_group_that_is_not_there_cannot_be_described(server: ServerProcess, group: str) -> None:
    done = server.run("groups", "describe", group)

    assert done.returncode == 1
    assert b"there is no group" in done.stderr


@pytest.mark.usefixtures("read")
def test_one_group_that_is_not_there_does_not_hide_the_others(server: ServerProcess, group: str) -> None:
    done = server.run("groups", "describe", "no-such-group", group)

    assert done.returncode == 1
    assert b"no-such-group" in done.stderr
    assert len(rows(done.stdout)) == 2


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("--to", "earliest"), {0: 0, 1: 0}),
        (("--to", "beginning"), {0: 0, 1: 0}),
        (("--to", "latest"), {0: 10, 1: 10}),
        (("--to", "4"), {0: 4, 1: 4}),
        (("--to", "-2"), {0: 8, 1: 8}),
        (("--to", "2023-11-14T22:13:30Z"), {0: 5, 1: 5}),
        (("--to", str(T0_MS + 10_500)), {0: 6, 1: 5}),
        (("--to", "-1h"), {0: 10, 1: 10}),
        (("--to", "PT1H"), {0: 10, 1: 10}),
        (("--to", "P36500D"), {0: 0, 1: 0}),
        (("--shift-by", "-2"), {0: 4, 1: 1}),
        (("--shift-by", "1"), {0: 7, 1: 4}),
    ],
)
@pytest.mark.usefixtures("read")
def test_a_group_is_reset_to_where_it_was_told(
    server: ServerProcess, client: Client, group: str, where: tuple[str, ...], expected: dict[int, int]
) -> None:
    shown = server.succeed("groups", "reset", group, *where)

    assert offsets(client, group) == expected
    assert [(int(row[1]), int(row[3])) for row in rows(shown)] == sorted(expected.items())


@pytest.mark.usefixtures("read")
def test_a_dry_run_shows_the_same_and_changes_nothing(
    server: ServerProcess, client: Client, topic: str, group: str
) -> None:
    shown = server.succeed("groups", "reset", group, "--to", "latest", "--dry-run")

    assert rows(shown) == [[topic, "0", "6", "10"], [topic, "1", "3", "10"]]
    assert offsets(client, group) == {0: 6, 1: 3}


@pytest.mark.usefixtures("read")
def test_only_the_partitions_that_are_named_are_reset(
    server: ServerProcess, client: Client, topic: str, group: str
) -> None:
    server.succeed("groups", "reset", group, "--to", "earliest", "--topic", f"{topic}:1")

    assert offsets(client, group) == {0: 6, 1: 0}


@pytest.mark.usefixtures("read")
def test_an_offset_that_is_not_there_becomes_the_nearest_that_is(
    server: ServerProcess, client: Client, topic: str, group: str
) -> None:
    done = server.run("groups", "reset", group, "--to", "99", "--topic", topic)

    assert done.returncode == 0
    assert b"99" in done.stderr
    assert offsets(client, group) == {0: 10, 1: 10}


@pytest.mark.usefixtures("read")
def test_a_plan_that_was_written_down_is_carried_out(
    server: ServerProcess, client: Client, topic: str, group: str, tmp_path: Path
) -> None:
    plan = server.succeed("groups", "reset", group, "--to", "2", "--dry-run", "--csv")
    assert plan.decode().splitlines() == [f"{topic},0,2", f"{topic},1,2"]
    (tmp_path / "plan.csv").write_bytes(plan)

    server.succeed("groups", "reset", group, "--from-file", str(tmp_path / "plan.csv"))

    assert offsets(client, group) == {0: 2, 1: 2}


@pytest.mark.usefixtures("read")
def test_a_plan_comes_from_standard_input_and_may_name_groups(
    server: ServerProcess, client: Client, topic: str, group: str
) -> None:
    plan = f'"{group}",{topic},0,9\nother,{topic},0,1\n\n'

    shown = server.succeed("groups", "reset", group, "--from-file", "-", "--json", stdin=plan.encode())

    assert json.loads(shown) == [{"topic": topic, "partition": 0, "before": 6, "after": 9}]
    assert offsets(client, group) == {0: 9, 1: 3}


@pytest.mark.usefixtures("read")
def test_a_group_that_never_was_starts_where_it_is_put(
    server: ServerProcess, client: Client, topic: str, group: str
) -> None:
    server.succeed("groups", "reset", f"{group}-new", "--to", "5", "--topic", topic)

    assert offsets(client, f"{group}-new") == {0: 5, 1: 5}


@pytest.mark.usefixtures("read")
def test_a_group_with_members_is_neither_reset_nor_deleted(
    server: ServerProcess, client: Client, topic: str, group: str
) -> None:
    with client.consumer(group=group, protocol="consumer") as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(100)

        reset = server.run("groups", "reset", group, "--to", "earliest")
        deleted = server.run("groups", "delete", group)

    assert (reset.returncode, deleted.returncode) == (1, 1)
    assert b"1 member(s)" in reset.stderr
    assert b"stop them" in deleted.stderr
    assert offsets(client, group) == {0: 6, 1: 3}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--to", "earliest", "--shift-by", "1"),
        ("--to", "sometime"),
        ("--to", "earliest", "--csv", "--json"),
        ("--from-file", "-", "--topic", "t"),
        ("--from-file", "-"),
    ],
)
@pytest.mark.usefixtures("read")
def test_a_reset_that_cannot_be_meant_is_refused(
    server: ServerProcess, client: Client, group: str, arguments: tuple[str, ...]
) -> None:
    done = server.run("groups", "reset", group, *arguments, stdin=b"t,0\n")

    assert done.returncode == 2
    assert done.stderr.startswith(b"ottla: ")
    assert offsets(client, group) == {0: 6, 1: 3}


@pytest.mark.usefixtures("read")
def test_a_reset_of_a_topic_that_is_not_there_says_so(server: ServerProcess, group: str) -> None:
    done = server.run("groups", "reset", group, "--to", "earliest", "--topic", "no-such-topic")

    assert done.returncode == 1
    assert b"no-such-topic" in done.stderr


@pytest.mark.usefixtures("read")
def test_a_deleted_group_is_gone_with_its_positions(server: ServerProcess, client: Client, group: str) -> None:
    server.succeed("groups", "delete", group)

    assert group not in server.succeed("groups", "list").decode().splitlines()
    assert offsets(client, group) == {}


def test_deleting_a_group_that_is_not_there_fails_unless_that_does_not_matter(
    server: ServerProcess, group: str
) -> None:
    done = server.run("groups", "delete", group)

    assert done.returncode == 1
    assert b"there is no group" in done.stderr
    assert server.run("groups", "delete", group, "--if-exists").returncode == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
@pytest.mark.parametrize("command", [("describe",), ("delete",), ("reset", "--to", "earliest")])
def test_a_name_that_no_group_can_have_is_a_mistake(server: ServerProcess, name: str, command: tuple[str, ...]) -> None:
    done = server.run("groups", *command, name)

    assert done.returncode == 2
    assert b"cannot be a group's name" in done.stderr


@pytest.mark.parametrize("command", ["list", "describe", "reset", "delete"])
def test_every_command_explains_itself_with_examples(server: ServerProcess, command: str) -> None:
    shown = server.succeed("groups", command, "--help").decode()

    assert "Examples:" in shown
    assert f"ottla groups {command}" in shown
