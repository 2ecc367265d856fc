"""`ottla consume` against a real server: where it begins, when it ends, what it prints."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.cli.server_process import COMMAND, WAIT_S, ServerProcess, environment, invoke

START_MS = 1_700_000_000_000


@pytest.fixture(scope="session")
def numbered(server: ServerProcess) -> str:
    """A topic of one partition with the values 0 to 9, a second apart. Nobody writes to it."""
    topic = "numbered"
    server.succeed("topics", "create", topic, "--partitions", "1", "--config", "retention.ms=-1")
    lines = [json.dumps({"value": str(n), "timestamp": START_MS + n * 1000}) for n in range(10)]
    server.succeed("produce", topic, "--input", "json", stdin="\n".join(lines).encode())
    return topic


@pytest.mark.parametrize(
    ("where", "first"),
    [
        ("beginning", 0),
        ("0", 0),
        ("7", 7),
        ("offset:7", 7),
        ("-3", 7),
        ("-99", 0),
        (str(START_MS + 7000), 7),
        (str(START_MS + 6001), 7),
        ("2023-11-14T22:13:27Z", 7),
        ("time:0", 0),
        ("-99999d", 0),
        ("-1m", 10),
        ("10", 10),
        ("55", 10),
    ],
)
def test_reading_begins_where_it_was_told(where: str, first: int, server: ServerProcess, numbered: str) -> None:
    assert server.succeed("consume", numbered, "--from", where).split() == [b"%d" % n for n in range(first, 10)]


def test_it_stops_after_as_many_records_as_were_wanted(server: ServerProcess, numbered: str) -> None:
    assert server.succeed("consume", numbered, "--max", "3") == b"0\n1\n2\n"


def test_fewer_records_than_wanted_are_fine_at_the_end(server: ServerProcess, numbered: str) -> None:
    assert len(server.succeed("consume", numbered, "--max", "99").split()) == 10


def test_only_the_partitions_that_were_named_are_read(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "3")
    for partition in range(3):
        server.succeed("produce", topic, "--partition", str(partition), stdin=b"%d\n" % partition)

    found = server.succeed("consume", topic, "--partition", "0", "--partition", "2")

    assert sorted(found.split()) == [b"0", b"2"]


def test_all_partitions_are_read_to_their_ends(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "3")
    lines = [b"%d" % n for n in range(3000)]
    server.succeed("produce", topic, "--key-separator", ":", stdin=b"\n".join(b"%b:%b" % (n, n) for n in lines))

    assert sorted(server.succeed("consume", topic).split()) == sorted(lines)


def test_a_topic_without_records_is_read_at_once(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "3")

    assert server.succeed("consume", topic) == b""


def test_a_form_of_ones_own_is_printed_as_it_is(server: ServerProcess, topic: str) -> None:
    server.succeed("produce", topic, "--key", "k", "--header", "h=1", stdin=b"v\n")

    found = server.succeed("consume", topic, "--output", r"{topic}/{partition}@{offset}\t{key}={value};{headers}|")

    assert found == f"{topic}/0@0\tk=v;h=1|".encode()


def test_a_follower_sees_what_is_written_later(server: ServerProcess, topic: str) -> None:
    server.succeed("produce", topic, stdin=b"before\nlast\n")
    with _following(server, topic, "--from", "-1", "--max", "2") as process:
        assert process.stdout is not None
        # Its first line shows that it is there.
        assert process.stdout.readline() == b"last\n"
        server.succeed("produce", topic, stdin=b"later\n")

        assert process.stdout.readline() == b"later\n"
        assert process.wait(WAIT_S) == 0


def test_a_follower_is_ended_by_an_interrupt_without_a_word(server: ServerProcess, numbered: str) -> None:
    with _following(server, numbered) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)

        assert process.wait(WAIT_S) == -signal.SIGINT
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_follower_ends_when_nothing_came_for_so_long(server: ServerProcess, numbered: str) -> None:
    done = server.run("consume", numbered, "--follow", "--timeout", "0.2")

    assert done.returncode == 0
    assert len(done.stdout.split()) == 10


def test_too_few_records_in_time_are_a_failure(server: ServerProcess, numbered: str) -> None:
    done = server.run("consume", numbered, "--follow", "--max", "11", "--timeout", "0.2")

    assert done.returncode == 1
    assert done.stderr == b"ottla: only 10 of 11 records came before nothing did for 0.2 s\n"


def test_a_topic_that_is_not_there_fails_and_is_not_created(server: ServerProcess, topic: str) -> None:
    done = server.run("consume", topic)

    assert done.returncode == 1
    assert b"there is no topic" in done.stderr
    assert topic not in server.succeed("topics", "list").decode().splitlines()


def test_a_partition_that_is_not_there_fails(server: ServerProcess, numbered: str) -> None:
    done = server.run("consume", numbered, "--partition", "1")

    assert done.returncode == 1
    assert b"has no partition 1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "yesterday"), b"write beginning, end"),
        (("--from", "end"), b"add --follow"),
        (("--json", "--output", "{value}"), b"leave one of them out"),
        (("--output", "{valeu}"), b"{valeu} is no part of a record"),
        (("--max", "0"), b"--max"),
    ],
)
def test_options_that_mean_nothing_are_a_wrong_command(arguments: tuple[str, ...], said: bytes) -> None:
    done = invoke("consume", "anything", *arguments, variables={"OTTLA_BOOTSTRAP": "127.0.0.1:1"})

    assert done.returncode == 2
    assert said in done.stderr


def _following(server: ServerProcess, topic: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "consume", topic, "--follow", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(OTTLA_BOOTSTRAP=server.address),
    )


def test_a_group_goes_on_where_it_was_and_tells_how_far_it_is(server: ServerProcess, numbered: str) -> None:
    first = server.succeed("consume", numbered, "--group", "readers", "--max", "4")
    rest = server.succeed("consume", numbered, "--group", "readers")
    described = json.loads(server.succeed("groups", "describe", "readers", "--json"))

    assert first.split() == [b"%d" % n for n in range(4)]
    assert rest.split() == [b"%d" % n for n in range(4, 10)]
    assert server.succeed("consume", numbered, "--group", "readers") == b""
    (group,) = described
    (position,) = group["partitions"]
    assert (position["committed"], position["lag"]) == (10, 0)


@pytest.mark.parametrize("option", [("--partition", "0"), ("--from", "-3")])
def test_a_group_is_given_its_partitions_and_its_place(
    option: tuple[str, str], server: ServerProcess, numbered: str
) -> None:
    refused = server.run("consume", numbered, "--group", "readers", *option)
    assert refused.returncode == 2
    assert b"--group" in refused.stderr
