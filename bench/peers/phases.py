"""A client in a process of its own that works when it is told to, and what each side computed meanwhile.

The client reads a line, `SECONDS`, works for about so long, and answers with one line of JSON. So it warms up and is
timed with the same connections, and what starting it costs is not in the figures. Knows no client.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.peers.contract import Broker, Load, Unmeasured
from bench.peers.launch import log_end
from bench.peers.threads import Threads
from bench.spark_cpu import Meter

ANSWER_S_MAX = 180.0
GROWTH_MIN = 1.05
"""How many times as fast a piece of the warm-up has to be for the broker to count as one that is still warming up."""
STILL_COUNT = 2
"""After how many pieces in a row without that it is warm."""
PIECES_MAX = 20
LOG_NAME = "client.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a client did in one phase."""

    records: int
    size_bytes: int
    wall_s: float
    figures: Mapping[str, float] = field(default_factory=dict)
    """What else it found, by name."""

    @property
    def rate(self) -> float:
        return self.records / self.wall_s

    def __add__(self, other: Done) -> Done:
        return Done(
            records=self.records + other.records,
            size_bytes=self.size_bytes + other.size_bytes,
            wall_s=self.wall_s + other.wall_s,
            figures={name: value + other.figures.get(name, 0.0) for name, value in self.figures.items()},
        )


def warmed(work: Callable[[float], Done], *, first_s: float, more_s: float) -> Done:
    """Work until it goes no faster; all that was done. A JIT needs longer the slower the machine is, and the client."""
    total = work(first_s)
    best, still = total.rate, 0
    for _ in range(PIECES_MAX):
        done = work(more_s)
        total += done
        still = 0 if done.rate > best * GROWTH_MIN else still + 1
        best = max(best, done.rate)
        if still == STILL_COUNT:
            break
    return total


class Client:
    """The side of whoever gives orders."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, seconds: float) -> Done:
        """One phase."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(seconds + ANSWER_S_MAX, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            raise Unmeasured(f"the client gave up: {log_end(self._log)}")
        return Done(**json.loads(line))


@contextmanager
def client(module: str, arguments: Mapping[str, object], directory: Path) -> Iterator[Client]:
    """`python -m bench.peers.MODULE ARGUMENTS` while the block runs; what it complains of goes to a file."""
    log = directory / LOG_NAME
    command = [sys.executable, "-m", f"bench.peers.{module}", json.dumps(arguments)]
    with open(log, "ab") as complaints:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True)
    try:
        yield Client(process, log)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def serve(work: Callable[[float], Done]) -> None:
    """The side of the client: each line is an order."""
    for line in sys.stdin:
        print(json.dumps(asdict(work(float(line)))), flush=True)


def metered(broker: Broker, clients: Sequence[int], work: Callable[[], Done]) -> tuple[Done, Load]:
    """Do the work, and see what broker and clients computed for it."""
    broker_cpu, client_cpu, threads = broker.meter(), [Meter(pid) for pid in clients], [Threads(pid) for pid in clients]
    done = work()
    broker_spent = broker_cpu.spent()
    client_cpu_s = sum(meter.seconds() for meter in client_cpu)
    client_thread_s = max((each.busiest_s() for each in threads), default=0.0)
    memory = broker.memory()
    return done, Load(
        wall_s=done.wall_s,
        broker_cpu_s=broker_spent.seconds,
        client_cpu_s=client_cpu_s,
        gigabytes=done.size_bytes / 1e9,
        rss_mb=memory.rss_mb,
        hwm_mb=memory.hwm_mb,
        client_thread_s=client_thread_s,
        broker_kernel_s=broker_spent.kernel_seconds,
    )
