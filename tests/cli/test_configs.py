"""`ottla configs` and `ottla cluster` against a real server, and `ottla config` without one."""

from __future__ import annotations

import json

import pytest

from tests.cli.server_process import ServerProcess, invoke, serving


def test_a_config_that_is_set_takes_effect_at_once(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)
    server.succeed("configs", "set", "--topic", topic, "max.message.bytes=100", "retention.ms=5000")

    changed = json.loads(server.succeed("configs", "show", "--topic", topic, "--changed", "--json"))
    assert {entry["name"]: entry["value"] for entry in changed} == {"max.message.bytes": "100", "retention.ms": "5000"}
    assert server.run("produce", topic, stdin=b"x" * 200).returncode == 1


def test_a_config_that_is_unset_is_back_at_its_default(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--config", "retention.ms=5000")
    server.succeed("configs", "unset", "--topic", topic, "retention.ms")

    assert server.succeed("configs", "show", "--topic", topic, "retention.ms").splitlines()[1:] == [
        b"retention.ms\t604800000\tdefault"
    ]


def test_an_unknown_config_is_refused_with_the_nearest_known(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)

    done = server.run("configs", "set", "--topic", topic, "retention.m=5")

    assert done.returncode == 1
    assert b"did you mean retention.ms?" in done.stderr
    assert b"INVALID_CONFIG" in done.stderr


def test_a_change_that_is_only_tried_changes_nothing(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)
    server.succeed("configs", "set", "--topic", topic, "retention.ms=5000", "--dry-run")

    assert len(server.succeed("configs", "show", "--topic", topic, "--changed").splitlines()) == 1


def test_a_broker_can_be_told_while_it_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("told")) as server:
        server.succeed("configs", "set", "--broker", "1", "log.retention.ms=5000")
        server.succeed("topics", "create", "heir")

        shown = server.succeed("configs", "show", "--topic", "heir", "retention.ms").decode()

    assert shown.splitlines()[1].startswith("retention.ms\t5000\t")


def test_what_takes_a_restart_cannot_be_set_while_the_broker_runs(server: ServerProcess) -> None:
    done = server.run("configs", "set", "--broker", "1", "node.id=7")

    assert done.returncode == 1
    assert b"takes effect at a start only" in done.stderr


def test_a_broker_that_is_not_there_is_said_so(server: ServerProcess) -> None:
    done = server.run("configs", "show", "--broker", "9")

    assert done.returncode == 1
    assert b"there is no broker 9" in done.stderr


@pytest.mark.parametrize("owner", [(), ("--topic", "t", "--broker", "1")])
def test_configs_belong_to_exactly_one_owner(owner: tuple[str, ...]) -> None:
    done = invoke("configs", "show", *owner)

    assert done.returncode == 2
    assert b"--topic TOPIC or --broker ID" in done.stderr


def test_the_cluster_is_shown_with_its_broker(server: ServerProcess) -> None:
    found = json.loads(server.succeed("cluster", "--json"))

    host, port = server.address.split(":")
    assert found["brokers"] == [{"id": 1, "host": host, "port": int(port), "rack": None}]
    assert found["controller"] == 1
    assert found["cluster_id"] in server.succeed("cluster").decode()


def test_a_server_that_is_not_there_is_said_in_one_line() -> None:
    done = invoke("cluster", "--bootstrap", "127.0.0.1:1")

    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"is the server running? --bootstrap HOST:PORT names another" in done.stderr


def test_an_address_of_a_server_that_is_none_is_a_wrong_command() -> None:
    done = invoke("cluster", "--bootstrap", "here:there")

    assert done.returncode == 2
    assert done.stderr == b"ottla: address 'here:there' is not host:port\n"


def test_a_flag_names_another_server_than_the_environment(server: ServerProcess) -> None:
    done = invoke("cluster", "--bootstrap", server.address, variables={"OTTLA_BOOTSTRAP": "127.0.0.1:1"})

    assert done.returncode == 0


# --- without a server ------------------------------------------------------------------------------------


def test_only_what_was_changed_is_shown_where_that_is_asked() -> None:
    done = invoke("config", "show", "--changed", "--set", "num.partitions=4", variables={"OTTLA_NODE_ID": "7"})

    assert done.stdout.decode().splitlines() == [
        "NAME\tVALUE\tFROM",
        "node.id\t7\tenvironment (OTTLA_NODE_ID)",
        "num.partitions\t4\tflag",
    ]


def test_settings_in_json_have_their_types_and_sources() -> None:
    shown = json.loads(invoke("config", "show", "--json", "--set", "num.partitions=4").stdout)

    by_name = {one["name"]: one for one in shown}
    assert by_name["num.partitions"] == {
        "name": "num.partitions",
        "value": 4,
        "source": "flag",
        "given_as": "num.partitions",
    }
    assert by_name["delete.topic.enable"]["value"] is True


def test_every_setting_is_listed_with_its_meaning() -> None:
    listed = json.loads(invoke("config", "list", "--json").stdout)

    assert {"num.partitions", "listeners", "log.dir"} <= {one["name"] for one in listed}
    assert all(one["meaning"] for one in listed)


def test_one_setting_is_explained() -> None:
    explained = invoke("config", "help", "num.partitions").stdout.decode()

    assert explained.startswith("num.partitions (broker setting, int)\n")
    assert "default: 1" in explained
    assert "OTTLA_NUM_PARTITIONS" in explained


def test_a_config_of_topics_is_explained_too() -> None:
    assert b"the broker's log.retention.ms" in invoke("config", "help", "retention.ms").stdout


def test_a_setting_that_is_not_there_is_not_explained() -> None:
    done = invoke("config", "help", "num.partition")

    assert done.returncode == 2
    assert done.stderr == b"ottla: num.partition is no setting; did you mean num.partitions?\n"
