"""Programs that need a Spark of their own: run to their end in a fresh process, as a user would run them."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.clients.transactions.kill_producer import pause
from tests.peers import spark_start

ROOT = Path(__file__).resolve().parents[2]
PROGRAM_SECONDS_MAX = 600
CONNECT_PORT = 15002
"""Of every Spark Connect server that a program starts for itself."""
LOOK_SECONDS = 0.1


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """As in a new shell: nothing of the Spark that this process may have, and our package on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "OTTLA"))}
    quick = {name: value for name, value in os.environ.items() if name == spark_start.VARIABLE}
    return {**kept, **quick, "PYTHONPATH": str(ROOT / "src"), **(more or {})}


def run(command: Sequence[str], directory: Path, *, more: Mapping[str, str] | None = None) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(
        list(command),
        cwd=directory,
        env=environment(more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    # What Java says at length comes after what Python said, or before it.
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[:8000]}\n...\n{done.stderr[-4000:]}"
    return done.stdout


def run_python(source: str, directory: Path, *arguments: str, more: Mapping[str, str] | None = None) -> str:
    """What a Python program prints, given as text."""
    program = directory / "program.py"
    program.write_text(source, encoding="utf-8")
    return run([sys.executable, str(program), *arguments], directory, more=more)


@contextmanager
def connect_port() -> Iterator[None]:
    """The port of Spark Connect's local servers, for one test at a time."""
    with open(Path(tempfile.gettempdir(), "ottla-tests-spark-connect.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        deadline = time.monotonic() + PROGRAM_SECONDS_MAX
        while not _is_free(CONNECT_PORT):
            assert time.monotonic() < deadline, f"port {CONNECT_PORT} is taken, and Spark Connect knows no other"
            pause(LOOK_SECONDS)
        yield


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("::", port))
        except OSError:
            return False
    return True
