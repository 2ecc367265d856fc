"""How long a small durable producer waits while others keep the broker and its disk busy.

python -m bench.disturbance            one round, about a minute
python -m bench.disturbance --write    also writes docs/benchmarks/disturbance.md

The small producer sends one record of 100 bytes with acks=all at a fixed rate, whether the one before was answered
or not; each wait counts from when the record was due, so that a stalled broker is not spared. First alone, then
while a child process compacts a gigabyte and bulk producers write batches of 64 KB with acks=1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.sharedctypes import Synchronized as ValueClass
from multiprocessing.synchronize import Event as EventClass
from pathlib import Path

import ottla
from bench import append
from bench.network import REQUESTS, connect, produce_frame, run, start_process
from scripts import machine

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "disturbance.md"
SMALL_BYTES = 100
BULK_BYTES = 64_000
RATE = 200
"""Records a second of the small producer: well below what it could do alone."""
ALONE_S = 20
BULK_PRODUCERS = 2
COMPACTED_MB = 1_024
KEYS = 4_000
FILL_RECORDS = 500
VALUE_BYTES = 1_000
ALLOWED_TIMES = 3
ALLOWED_MS = 25


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the small producer waited for its acknowledgements."""

    sorted_ms: list[float]

    def at(self, share: float) -> float:
        return self.sorted_ms[min(int(len(self.sorted_ms) * share), len(self.sorted_ms) - 1)]

    def line(self, what: str) -> str:
        figures = " | ".join(f"{self.at(share):.2f} ms" for share in (0.5, 0.99, 0.999))
        return f"| {what} | {len(self.sorted_ms):,} | {figures} | {self.sorted_ms[-1]:.2f} ms |"


@dataclass(frozen=True, slots=True)
class Measured:
    """One round."""

    alone: Waits
    busy: Waits
    bulk_mb_per_s: float
    compacted_mb: float


def main() -> int:
    """Measure, print, and store the page if told to."""
    parser = argparse.ArgumentParser(prog="python -m bench.disturbance", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, default=PAGE.parents[2] / ".cache" / "bench", help="a real disk")
    parser.add_argument("--megabytes", type=int, default=COMPACTED_MB, help="how much is compacted")
    parser.add_argument("--write", action="store_true", help=f"store the page in {PAGE.name}")
    options = parser.parse_args()
    with append.workplace(options.directory) as directory:
        disk = append.describe_disk(directory)
        measured = _measure(directory, megabytes=options.megabytes)
    alone, busy = measured.alone, measured.busy
    allowed_ms = ALLOWED_TIMES * alone.at(0.999) + ALLOWED_MS
    verdict = "met" if busy.at(0.999) <= allowed_ms else "NOT MET"
    text = (
        "# A small durable producer among busy neighbours\n\n"
        f"Taken on {datetime.now(UTC):%-d %B %Y} by `python -m bench.disturbance --write`. {RATE} records of "
        f"{SMALL_BYTES} B a second, acks=all, on disk before the answer; each wait counts from "
        f"when the record was due. Busy: a child compacts {measured.compacted_mb:,.0f} MB while {BULK_PRODUCERS} "
        f"producers write batches of {BULK_BYTES:,} B with acks=1, {measured.bulk_mb_per_s:.0f} MB/s together.\n\n"
        f"- {machine.describe()}\n- {disk}\n\n"
        "| | records | p50 | p99 | p99.9 | longest |\n|---|---|---|---|---|---|\n"
        f"{alone.line('alone')}\n{busy.line('busy')}\n\n"
        f"Allowed at p99.9: {ALLOWED_TIMES} times alone plus {ALLOWED_MS} ms, so {allowed_ms:.1f} ms: {verdict}.\n"
    )
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
        print(f"Written: docs/benchmarks/{PAGE.name}")
    return 0 if verdict == "met" else 1


def _measure(directory: Path, *, megabytes: int) -> Measured:
    with ExitStack() as stack:
        data = directory / "data"
        command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
        command += ["--set", "log.cleaner.backoff.ms=200", "--set", "log.segment.bytes=134217728"]
        process, bootstrap = start_process(stack, command)
        client = stack.enter_context(ottla.connect(bootstrap))
        admin = client.admin()
        for topic in ("small", "bulk"):
            admin.create_topic(topic)
        # Compaction is held back until it is wanted, and then has everything to do at once.
        admin.create_topic("keyed", configs={"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"})
        _fill(client, megabytes=megabytes)
        before = _bytes_of(data / "keyed-0")
        connection = connect(stack, bootstrap)
        # What the filling has left to the system must not disturb those who are to be alone.
        os.sync()
        _small(connection, seconds=2)
        alone = _small(connection, seconds=ALONE_S)
        until, sent_bytes = multiprocessing.Event(), multiprocessing.Value("q", 0)
        bulk = [
            multiprocessing.Process(target=_bulk, args=(bootstrap, until, sent_bytes)) for _ in range(BULK_PRODUCERS)
        ]
        for producer in bulk:
            producer.start()
        admin.alter_configs(topic="keyed", set={"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.01"})
        _await_child(process.pid)
        began = time.monotonic()
        waits: list[float] = []
        while _children(process.pid):
            waits += _small(connection, seconds=1).sorted_ms
        seconds = time.monotonic() - began
        until.set()
        for producer in bulk:
            producer.join()
        after = _bytes_of(data / "keyed-0")
        print(f"compaction took {seconds:.0f} s: {before >> 20} MB became {after >> 20} MB", file=sys.stderr)
        assert after < before, "nothing was compacted"
        return Measured(alone, Waits(sorted(waits)), sent_bytes.value / 1e6 / seconds, before / (1 << 20))


def _fill(client: ottla.Client, *, megabytes: int) -> None:
    """Records whose keys come again and again, so that compaction has much to read and much to drop."""
    value = os.urandom(VALUE_BYTES)
    with client.producer(acks=1) as producer:
        for first in range(0, (megabytes << 20) // VALUE_BYTES, FILL_RECORDS):
            keys = (b"%08d" % ((first + at) % KEYS) for at in range(FILL_RECORDS))
            producer.send_batch("keyed", [ottla.NewRecord(value, key=key) for key in keys])


def _bulk(bootstrap: str, until: EventClass, sent_bytes: ValueClass[int]) -> None:
    """As fast as the broker takes it, with the window full."""
    with ExitStack() as stack:
        connection = connect(stack, bootstrap)
        frame = produce_frame(topic="bulk", size=BULK_BYTES, acks=1)
        while not until.is_set():
            run(connection, frame)
            with sent_bytes.get_lock():
                sent_bytes.value += REQUESTS * BULK_BYTES


def _children(process: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def _await_child(process: int) -> None:
    deadline = time.monotonic() + 60
    while not _children(process):
        assert time.monotonic() < deadline, "compaction did not begin"
        time.sleep(0.05)


def _bytes_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.log"))


def _small(connection: socket.socket, *, seconds: float) -> Waits:
    """Send on time, whatever has been answered by then; answers are counted as they come."""
    frame = produce_frame(topic="small", size=SMALL_BYTES, acks=-1)
    count = int(seconds * RATE)
    answered: list[float] = []

    def take() -> None:
        for _ in range(count):
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            connection.recv(size, socket.MSG_WAITALL)
            answered.append(time.perf_counter())

    taking = threading.Thread(target=take)
    taking.start()
    began = time.perf_counter()
    due = [began + number / RATE for number in range(count)]
    for at in due:
        while (rest := at - time.perf_counter()) > 0:
            time.sleep(rest)
        connection.sendall(frame)
    taking.join()
    return Waits(sorted((came - at) * 1_000 for came, at in zip(answered, due, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
