"""Starts a broker as a process, waits until it answers, and ends it in order. Knows no peer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

from bench.peers.contract import Broker, Unmeasured

HOST = "127.0.0.1"
START_S_MAX = 120.0
STOP_S_MAX = 60.0
LOOK_AGAIN_S = 0.005
LOG_NAME = "broker.log"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def launched(
    side: str,
    command: Sequence[str],
    *,
    port: int,
    directory: Path,
    answers: Callable[[str, int], bool],
    environment: Mapping[str, str] | None = None,
) -> Iterator[Broker]:
    """A broker on `port` while the block runs. What it prints goes to a file in `directory`.

    `answers` asks it something that only a broker that serves can answer; it is asked again and again, so that the
    start of every side is timed in the same way.
    """
    log = directory / LOG_NAME
    with open(log, "ab") as output:
        begun = perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else {**os.environ, **environment},
        )
        try:
            while not _asks(answers, port):
                if process.poll() is not None or perf_counter() - begun > START_S_MAX:
                    raise Unmeasured(f"{side} did not start: {log_end(log)}")
                sleep(LOOK_AGAIN_S)
            started_s = perf_counter() - begun
            yield Broker(side=side, host=HOST, port=port, process=process, directory=directory, started_s=started_s)
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """In order, and by force if that takes too long."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_end(log: Path) -> str:
    """The last words of a broker, in one line."""
    return " / ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])[-500:]


def _asks(answers: Callable[[str, int], bool], port: int) -> bool:
    try:
        return answers(HOST, port)
    except OSError:
        return False
