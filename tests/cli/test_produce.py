"""`ottla produce` against a real server: lines in, records out, exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.server_process import COMMAND, WAIT_S, ServerProcess, environment, invoke, serving


def records(server: ServerProcess, topic: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in server.succeed("consume", topic, "--json").splitlines()]


def test_each_line_is_a_record_and_the_last_needs_no_end(server: ServerProcess, topic: str) -> None:
    server.succeed("produce", topic, stdin=b"one\n\nthree")

    assert [record["value"] for record in records(server, topic)] == ["one", "", "three"]


def test_no_lines_are_no_records_and_no_failure(server: ServerProcess, topic: str) -> None:
    assert server.run("produce", topic, stdin=b"").returncode == 0


def test_the_positions_are_printed_in_the_order_of_the_lines(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "3")

    printed = server.succeed("produce", topic, "--partition", "2", "--json", stdin=b"a\nb\nc\n")

    assert [json.loads(line) for line in printed.splitlines()] == [
        {"topic": topic, "partition": 2, "offset": offset} for offset in range(3)
    ]


def test_without_being_asked_it_prints_nothing(server: ServerProcess, topic: str) -> None:
    assert server.succeed("produce", topic, stdin=b"quiet\n") == b""


def test_key_and_value_are_split_at_a_separator(server: ServerProcess, topic: str) -> None:
    server.succeed("produce", topic, "--key-separator", r"\t", stdin=b"k\tv\tw\n")

    (record,) = records(server, topic)
    assert (record["key"], record["value"]) == ("k", "v\tw")


def test_a_line_without_the_separator_ends_it_with_the_number_of_the_line(server: ServerProcess, topic: str) -> None:
    done = server.run("produce", topic, "--key-separator", ":", stdin=b"a:1\nbroken\nc:3\n")

    assert done.returncode == 1
    assert (
        done.stderr == b"ottla: record 2: there is no ':' in it, which ends the key; 1 other record(s) were written\n"
    )
    assert [record["value"] for record in records(server, topic)] == ["1"]


def test_records_of_one_key_go_to_one_partition_and_keep_their_order(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "4")
    server.succeed("produce", topic, "--key", "same", stdin=b"".join(b"%d\n" % n for n in range(50)))

    found = records(server, topic)
    assert len({record["partition"] for record in found}) == 1
    assert [record["value"] for record in found] == [str(n) for n in range(50)]


def test_headers_go_with_every_record(server: ServerProcess, topic: str) -> None:
    server.succeed("produce", topic, "--header", "a=1", "--header", "b==", stdin=b"x\n")

    assert records(server, topic)[0]["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "="}]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_carries_the_records(codec: str, server: ServerProcess, topic: str) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(1000))
    server.succeed("produce", topic, "--compression", codec, stdin=lines)

    assert server.succeed("consume", topic) == lines


@pytest.mark.parametrize(("acks", "offset"), [("all", 0), ("1", 0), ("0", None)])
def test_without_an_acknowledgement_nobody_knows_the_offset(
    acks: str, offset: int | None, server: ServerProcess, topic: str
) -> None:
    server.succeed("topics", "create", topic)

    printed = server.succeed("produce", topic, "--acks", acks, "--json", stdin=b"x\n")

    assert json.loads(printed)["offset"] == offset


def test_a_file_is_read_instead_of_standard_input(server: ServerProcess, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_bytes(b"from\nfile\n")

    server.succeed("produce", topic, "--file", str(tmp_path / "lines.txt"), stdin=b"not this\n")

    assert server.succeed("consume", topic) == b"from\nfile\n"


def test_a_file_that_is_missing_is_a_wrong_command(server: ServerProcess, topic: str, tmp_path: Path) -> None:
    done = server.run("produce", topic, "--file", str(tmp_path / "none"))

    assert done.returncode == 2
    assert b"No such file" in done.stderr


def test_a_whole_file_of_bytes_can_be_one_record(server: ServerProcess, topic: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10
    (tmp_path / "picture").write_bytes(content)

    server.succeed("produce", topic, "--whole", "--file", str(tmp_path / "picture"))

    assert server.succeed("consume", topic, "--output", "{value}") == content


def test_what_consume_prints_as_json_can_be_produced_again(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic, "--partitions", "3")
    server.succeed("topics", "create", f"{topic}-copy", "--partitions", "3")
    lines = b"".join(
        json.dumps(one).encode() + b"\n"
        for one in (
            {"key": "k", "value": None, "partition": 2, "timestamp": 1_700_000_000_000},
            {"key": None, "value": {"base64": "/w=="}, "headers": [{"name": "h", "value": None}], "partition": 1},
        )
    )
    server.succeed("produce", topic, "--input", "json", "--keep-partitions", stdin=lines)

    original = server.succeed("consume", topic, "--json")
    server.succeed("produce", f"{topic}-copy", "--input", "json", "--keep-partitions", stdin=original)
    copy = server.succeed("consume", f"{topic}-copy", "--json")

    assert sorted(copy.replace(b"-copy", b"").splitlines()) == sorted(original.splitlines())
    assert b'"partition":2,"offset":0,"timestamp":1700000000000,"key":"k","value":null' in original


def test_a_record_that_is_too_large_is_refused_by_the_server(server: ServerProcess, topic: str) -> None:
    done = server.run("produce", topic, stdin=b"x" * 2_000_000)

    assert done.returncode == 1
    assert b"record 1: " in done.stderr
    assert b"MESSAGE_TOO_LARGE" in done.stderr


def test_a_partition_that_is_not_there_is_refused(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)

    done = server.run("produce", topic, "--partition", "3", stdin=b"x\n")

    assert done.returncode == 1
    assert b"has no partition 3" in done.stderr
    assert records(server, topic) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--key", "k", "--key-separator", ":"),
        ("--key-separator", ""),
        ("--input", "json", "--key", "k"),
        ("--input", "json", "--whole"),
        ("--keep-partitions",),
        ("--header", "nothing"),
        ("--acks", "2"),
        ("--compression", "rar"),
    ],
)
def test_options_that_contradict_each_other_are_a_wrong_command(arguments: tuple[str, ...]) -> None:
    done = invoke("produce", "anything", *arguments, stdin=b"x\n", variables={"OTTLA_BOOTSTRAP": "127.0.0.1:1"})

    assert done.returncode == 2
    assert done.stderr


def test_an_interrupt_ends_it_although_the_server_does_not_answer(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.succeed("topics", "create", "stalled")
        with subprocess.Popen(
            [*COMMAND, "produce", "stalled"],
            stdin=subprocess.PIPE,
            env=environment(OTTLA_BOOTSTRAP=server.address),
        ) as process:
            assert process.stdin is not None
            process.stdin.write(b"first\n")
            process.stdin.flush()
            # What it wrote shows that it runs.
            server.succeed("consume", "stalled", "--follow", "--max", "1", "--timeout", str(WAIT_S))
            server.process.send_signal(signal.SIGSTOP)
            process.stdin.write(b"second\n")
            process.stdin.close()
            process.send_signal(signal.SIGINT)
            ended = process.wait(WAIT_S)
        server.process.send_signal(signal.SIGCONT)

    assert ended == -signal.SIGINT
