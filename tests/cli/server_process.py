"""A real `ottla serve` in a process of its own, and the other commands run against it.

`run` starts a process, as a shell does. `invoke` runs a command in this one, which is many times quicker and
differs only in what belongs to a process: pipes, signals, and what is imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from ottla.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "ottla")
WAIT_S = 60
"""Long enough for a machine that is busy with other tests; nothing waits so long when all is well."""

Done = subprocess.CompletedProcess[bytes]


def environment(**variables: str) -> dict[str, str]:
    """The caller's environment without Ottla's variables, and with these."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    return {**plain, "PYTHONPATH": str(ROOT / "src"), **variables}


class ServerProcess:
    """One server. `address` is where it is."""

    def __init__(self, process: subprocess.Popen[str], log: Path, ready_line: str) -> None:
        self.process = process
        self.log = log
        self.ready_line = ready_line
        self.address = ready_line.removeprefix("ready ").rstrip("\n")

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        self.process.send_signal(by)
        return self.process.wait(WAIT_S)

    def run(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Run another command, in this process, with this server as its bootstrap."""
        return invoke(*arguments, stdin=stdin, variables={"OTTLA_BOOTSTRAP": self.address})

    def succeed(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """The same, where anything but success is a failure of the test; returns standard output."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


def invoke(*arguments: str, stdin: bytes = b"", variables: Mapping[str, str] | None = None) -> Done:
    """Run `ottla` to its end in this process."""
    result = CliRunner().invoke(app, arguments, input=stdin, env=variables, prog_name="ottla")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(arguments, result.exit_code, result.stdout_bytes, result.stderr_bytes)


def run(
    *arguments: str, stdin: bytes = b"", variables: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Done:
    """Run `ottla` to its end in a process of its own."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        env=environment(**(variables or {})),
        cwd=cwd,
        timeout=WAIT_S,
        check=False,
    )


@contextmanager
def serving(
    directory: Path, *arguments: str, variables: Mapping[str, str] | None = None, listen: Sequence[str] | None = None
) -> Iterator[ServerProcess]:
    """A server that is ready, with its data and its log below `directory`; ended when the block is left."""
    log = directory / "serve.log"
    flags = ("--listen", "127.0.0.1:0") if listen is None else listen
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--data-dir", str(directory / "data"), *flags, *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment(**(variables or {})),
        )
    try:
        assert process.stdout is not None
        ready_line = process.stdout.readline()
        assert ready_line.startswith("ready "), log.read_text(encoding="utf-8")
        yield ServerProcess(process, log, ready_line)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
