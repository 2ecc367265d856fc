"""Commands as parts of shell pipelines, and on terminals."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.server_process import COMMAND, WAIT_S, Done, ServerProcess, environment, invoke, run

OTTLA = shlex.join(COMMAND)


def shell(server: ServerProcess, script: str) -> Done:
    """Run a script of bash in which `ottla` is a command and every failure in a pipe counts."""
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; ottla() {{ {OTTLA} "$@"; }}; {script}'],
        capture_output=True,
        env=environment(OTTLA_BOOTSTRAP=server.address),
        timeout=WAIT_S,
        check=False,
    )


def on_a_terminal(arguments: list[str], server: ServerProcess, *, stdout: int | None, stderr: int | None) -> bytes:
    """Run a command with a terminal where None stands; returns what appeared on it."""
    shown, terminal = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=terminal if stdout is None else stdout,
        stderr=terminal if stderr is None else stderr,
        env=environment(OTTLA_BOOTSTRAP=server.address, TERM="xterm", COLUMNS="80"),
    ) as process:
        os.close(terminal)
        pieces = []
        # A terminal that nobody has open any more is an error to read, not an end.
        while piece := _read_terminal(shown):
            pieces.append(piece)
        assert process.wait(WAIT_S) == 0
    os.close(shown)
    return b"".join(pieces)


def test_what_goes_in_by_a_pipe_comes_out_by_a_pipe(server: ServerProcess, topic: str) -> None:
    done = shell(server, f"seq 1 1000 | ottla produce {topic} && ottla consume {topic} | tail -n 2")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"999\n1000\n", b"")


def test_a_reader_who_has_had_enough_is_no_failure(server: ServerProcess, topic: str) -> None:
    server.succeed("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(20_000)))

    done = shell(server, f"ottla consume {topic} | head -n 1")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n", b"")


def test_a_failure_in_front_of_a_pipe_is_seen_by_the_shell(server: ServerProcess, topic: str) -> None:
    done = shell(server, f"ottla consume {topic} | cat")

    assert done.returncode == 1
    assert b"there is no topic" in done.stderr


def test_a_topic_is_copied_by_a_pipe(server: ServerProcess, topic: str) -> None:
    script = (
        f"seq 1 100 | ottla produce {topic}; ottla consume {topic} --json | ottla produce {topic}-copy --input json"
    )
    assert shell(server, script).returncode == 0

    assert server.succeed("consume", f"{topic}-copy") == server.succeed("consume", topic)


def test_output_that_cannot_be_written_is_a_failure(server: ServerProcess, topic: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    server.succeed("topics", "create", topic)

    done = shell(server, "ottla topics list >/dev/full")

    assert done.returncode == 1
    assert done.stderr == b"ottla: No space left on device: the disk is full; make room and try again\n"


def test_streams_that_are_closed_are_no_failure(server: ServerProcess, topic: str) -> None:
    assert (
        shell(server, f"ottla produce {topic} <&- && ottla topics list >&- && ottla topics list 2>&-").returncode == 0
    )


def test_in_a_pipe_nothing_is_drawn(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)

    done = run("topics", "describe", topic, "--bootstrap", server.address)

    assert b"\x1b" not in done.stdout
    assert b"TOPIC\tPARTITION\t" in done.stdout


def test_on_a_terminal_a_table_is_drawn(server: ServerProcess, topic: str) -> None:
    server.succeed("topics", "create", topic)

    shown = on_a_terminal(["topics", "describe", topic], server, stdout=None, stderr=subprocess.DEVNULL)

    assert b"\x1b[1m" in shown
    assert b"\t" not in shown


def test_long_work_shows_how_far_it_is_on_a_terminal_only(server: ServerProcess, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_bytes(b"a line\n" * 1000)
    work = ["produce", topic, "--file", str(tmp_path / "lines.txt")]

    shown = on_a_terminal(work, server, stdout=subprocess.DEVNULL, stderr=None)

    assert f"to {topic[:20]}".encode() in shown
    assert server.run(*work).stderr == b""


def test_every_command_has_help_with_examples() -> None:
    commands = [
        "serve",
        "produce",
        "consume",
        "cluster",
        *(f"topics {verb}" for verb in ("list", "create", "describe", "delete", "add-partitions")),
        *(f"configs {verb}" for verb in ("show", "set", "unset")),
        *(f"config {verb}" for verb in ("show", "list", "help")),
    ]

    for command in commands:
        done = invoke(*command.split(), "--help")
        assert done.returncode == 0
        assert f"  ottla {command}".encode() in done.stdout.partition(b"Examples:\n")[2], command


def test_a_command_that_is_not_there_is_refused_with_the_nearest() -> None:
    done = invoke("topic", "list")

    assert done.returncode == 2
    assert b"Did you mean" in done.stderr


def _read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""
