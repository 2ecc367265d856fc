"""A client that leaves a transaction open, as a program of its own, so that it can be killed in the middle.

`python -m ... <client> <address> <transactional id> <topic> <partition>` says `open` when its record is in the log, and
then waits until it is killed or nobody is there any more who could.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.clients.server_process import ROOT
from tests.clients.transactions.clients import connect
from tests.clients.transactions.raw_producer import Place

TIMEOUT_MS = 120_000
VALUE = b"left open"


def leave_open(name: str, address: str, transactional_id: str, place: Place, log: Path) -> None:
    """Run the program and kill it with its transaction open."""
    command = [sys.executable, "-m", __name__, name, address, transactional_id, place.topic, str(place.partition)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with (
        open(log, "ab") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"open\n", log.read_text(encoding="utf-8")
        finally:
            process.kill()


def main(name: str, address: str, transactional_id: str, topic: str, partition: str) -> None:
    # What a client prints by itself goes where its log goes.
    said = os.dup(1)
    os.dup2(2, 1)
    # Far longer than the test: whoever sees the transaction aborted sees it because of the next producer.
    producer = connect(name, address).producer(transactional_id, timeout_ms=TIMEOUT_MS)
    producer.begin()
    producer.send(Place(topic, int(partition)), VALUE)
    producer.flush()
    os.write(said, b"open\n")
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
