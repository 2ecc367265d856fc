"""`ottla topics` against a real server."""

from __future__ import annotations

import json

from tests.cli.server_process import ServerProcess


def test_a_topic_that_was_created_is_listed(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)

    assert topic in server.succeed("topics", "list").decode().splitlines()


def test_the_list_in_json_has_the_names(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)

    assert {"name": topic} in json.loads(server.succeed("topics", "list", "--json"))


def test_a_topic_gets_the_partitions_and_configs_it_was_created_with(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "3", "--config", "cleanup.policy=compact")

    assert len(json.loads(server.succeed("topics", "describe", topic, "--json"))[0]["partitions"]) == 3
    shown = server.succeed("configs", "show", "--topic", topic, "cleanup.policy").decode()
    assert shown.splitlines()[1:] == ["cleanup.policy\tcompact\tset"]


def test_creating_says_what_was_made_in_json(server: ServerProcess, topic: str) -> None:
    (made,) = json.loads(server.succeed("topics", "create", topic, "--partitions", "2", "--json"))

    assert (made["name"], made["partitions"]) == (topic, 2)
    assert len(made["id"]) == 36


def test_a_topic_that_is_there_cannot_be_created(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)

    done = server.run("topics", "create", topic)

    assert done.returncode == 1
    assert b"TOPIC_ALREADY_EXISTS" in done.stderr


def test_a_topic_that_is_there_may_stay_as_it_is(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)

    assert server.run("topics", "create", topic, "--if-not-exists").returncode == 0


def test_more_copies_than_brokers_are_refused(server: ServerProcess, topic: str) -> None:
    done = server.run("topics", "create", topic, "--replication-factor", "2")

    assert done.returncode == 1
    assert b"INVALID_REPLICATION_FACTOR" in done.stderr
    assert topic not in server.succeed("topics", "list").decode().splitlines()


def test_no_partitions_at_all_are_refused(server: ServerProcess, topic: str) -> None:
    assert server.run("topics", "create", topic, "--partitions", "0").returncode == 1
    assert topic not in server.succeed("topics", "list").decode().splitlines()


def test_one_topic_that_cannot_be_created_does_not_keep_the_others_from_it(server: ServerProcess, topic: str) -> None:
    done = server.run("topics", "create", "not/a/name", topic)

    assert done.returncode == 1
    assert b"not/a/name" in done.stderr
    assert topic in server.succeed("topics", "list").decode().splitlines()


def test_describing_shows_where_partitions_begin_and_end(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)
    server.succeed("produce", topic, stdin=b"one\ntwo\n")

    assert server.succeed("topics", "describe", topic).decode().splitlines() == [
        "TOPIC\tPARTITION\tLEADER\tREPLICAS\tIN-SYNC\tSTART\tEND",
        f"{topic}\t0\t1\t1\t1\t0\t2",
    ]


def test_describing_a_topic_that_is_not_there_fails_and_does_not_create_it(server: ServerProcess, topic: str) -> None:
    done = server.run("topics", "describe", topic)

    assert done.returncode == 1
    assert done.stdout == b""
    assert b"there is no topic" in done.stderr
    assert topic not in server.succeed("topics", "list").decode().splitlines()


def test_a_deleted_topic_is_gone(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)
    server.succeed("topics", "delete", topic)

    assert topic not in server.succeed("topics", "list").decode().splitlines()


def test_a_topic_that_is_created_anew_begins_at_offset_zero(server: ServerProcess, topic: str) -> None:
    server.succeed("produce", topic, stdin=b"old\n")
    server.succeed("topics", "delete", topic)
    server.succeed("topics", "create", topic)

    server.succeed("produce", topic, stdin=b"new\n")

    assert server.succeed("consume", topic, "--output", r"{offset} {value}\n") == b"0 new\n"


def test_deleting_what_is_not_there_fails_unless_that_is_fine(server: ServerProcess, topic: str) -> None:
    assert server.run("topics", "delete", topic).returncode == 1
    assert server.run("topics", "delete", topic, "--if-exists").returncode == 0


def test_partitions_can_be_added(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "1")
    server.succeed("topics", "add-partitions", topic, "4")

    assert len(server.succeed("topics", "describe", topic).splitlines()) == 1 + 4


def test_partitions_cannot_be_taken_away(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "3")

    done = server.run("topics", "add-partitions", topic, "2")

    assert done.returncode == 1
    assert b"INVALID_PARTITIONS" in done.stderr
