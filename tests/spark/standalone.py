"""A cluster of Spark's own on this machine: a master and one worker, each a process, as Spark's scripts start them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.clients.transactions.kill_producer import pause
from tests.spark.kills.driver_process import DriverProcess
from tests.spark.programs import environment

READY_SECONDS_MAX = 120
LOOK_SECONDS = 0.1
ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = "Successfully registered with master"


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """The address of a master whose one worker has two cores; both are gone after the block."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    words = ["bash", str(Path(spark.origin).with_name("bin") / "spark-class")]
    # A worker hands its own environment on to its executors, and those to their Pythons.
    around = environment({"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable})
    started: list[DriverProcess] = []

    def start(kind: str, *arguments: str) -> DriverProcess:
        command = [*words, f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--host", "127.0.0.1", "--port", "0"]
        process = DriverProcess(
            [*command, "--webui-port", "0", *arguments],
            log=directory / f"{kind.lower()}.log",
            environment=around,
            cwd=directory,
        )
        started.append(process)
        return process

    try:
        master = start("Master")
        address = _said(master, lambda text: (found := ADDRESS.search(text)) and found.group(1))
        worker = start("Worker", "--cores", "2", "--memory", "1g", "--work-dir", str(directory / "work"), address)
        _said(worker, lambda text: REGISTERED if REGISTERED in text else None)
        yield address
    finally:
        for process in reversed(started):
            process.kill()


def _said(process: DriverProcess, find: Callable[[str], str | None]) -> str:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while (found := find(process.said)) is None:
        assert process.is_alive, process.said
        assert time.monotonic() < deadline, process.said
        pause(LOOK_SECONDS)
    return found
