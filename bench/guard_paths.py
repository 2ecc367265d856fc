"""The paths that the guard watches: each is a piece of our work beside a bare one, and a look at what came of it.

A broker comes as a command that serves a data directory and prints `ready HOST:PORT`, so that whoever doubts the
guard can hand it a broken one. Knows how each path is measured and checked; what a ratio is worth is not known here.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ottla
from bench.guard_client import (
    ANSWER_S_MAX,
    BrokenPath,
    Line,
    Load,
    check_kept,
    connect,
    create_topic,
    fetch,
    produce,
)
from bench.turns import Side, take_turns
from ottla.clock import SystemClock
from ottla.errors import OttlaError
from ottla.records.builder import build_batch
from ottla.storage.disk import OsDisk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

Serve = Callable[[Path], Sequence[str]]
"""The command that serves a data directory."""
ROOT = Path(__file__).resolve().parents[1]
"""From where the bare broker is found."""
START_S_MAX = 30.0
CONNECTIONS = 16
APPEND_BYTES = 64_000
VALUE_BYTES = 256
RECORDS = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    rounds: int = 3
    turn_ms: int = 200
    requests: int = 160
    """In one timed call; divides by the number of connections."""
    is_once: bool = False
    """One call a turn: enough to see whether a path is broken, too little to see how fast it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """A path over the socket on which records are produced."""

    size: int
    acks: int
    connections: int = 1
    is_read: bool = False
    """Whether reading the records back is what is timed."""


OVER_SOCKETS = {
    "produce-100": Produced(size=100, acks=1),
    "produce-64000": Produced(size=64_000, acks=1),
    "durable-16": Produced(size=100, acks=-1, connections=CONNECTIONS),
    "fetch-64000": Produced(size=64_000, acks=-1, is_read=True),
}
SETTINGS = {
    "produce-100": "requests of 100 B, acks=1, page cache, one connection, window 5; against the bare broker",
    "produce-64000": "requests of 64,000 B, acks=1, page cache, one connection, window 5; against the bare broker",
    "durable-16": "requests of 100 B, acks=all, fsync before the answer on both, 16 connections, window 5 each; "
    "against the bare broker",
    "fetch-64000": "the newest batch of 64,000 B, one connection, window 5; against the bare broker",
    "append": "batches of 64,000 B to a log, page cache; against os.write",
    "send-batch-1024": "1,024 records of 256 B in this process, acks=1; against os.write of the same batch",
}
PATHS = tuple(SETTINGS)


def serve(directory: Path) -> list[str]:
    """Our own broker."""
    place = ["--data-dir", str(directory), "--listen", "127.0.0.1:0"]
    return [sys.executable, "-m", "ottla", "serve", *place, "--log-level", "warning"]


def measure(path: str, directory: Path, *, serve: Serve = serve, effort: Effort) -> float:
    """How fast our side of a path is, as a share of the bare side. Raises BrokenPath when it does not do its work."""
    directory = directory.resolve()
    directory.mkdir(parents=True)
    try:
        if path in OVER_SOCKETS:
            ratio = _over_sockets(path, OVER_SOCKETS[path], directory, serve, effort)
        elif path == "append":
            ratio = _append(directory, effort)
        else:
            ratio = _send_batch(directory, effort)
    except (ConnectionResetError, BrokenPipeError) as error:
        raise BrokenPath(f"{path}: the connection was closed: {error!r}") from error
    except OSError as error:
        raise BrokenPath(f"{path}: {error!r}") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return ratio


def _over_sockets(path: str, kind: Produced, directory: Path, serve: Serve, effort: Effort) -> float:
    load = Load.of(f"guard-{path}", size=kind.size, acks=kind.acks)
    bare = [sys.executable, "-m", "bench.bare_broker", str(directory / "bare"), *(["--sync"] if kind.acks < 0 else [])]
    command = serve(directory / "data")
    with ExitStack() as stack:
        address = stack.enter_context(_started(command))
        create_topic(stack.enter_context(connect(address)), load.topic)
        ours = _lines(stack, address, load, kind.connections)
        theirs = _lines(stack, stack.enter_context(_started(bare)), load, kind.connections)
        ratio = _ratio(_work(ours, kind, effort), _work(theirs, kind, effort), effort)
        check_kept(ours[0].connection, load, sum(line.acknowledged for line in ours))
    # Every broker that answered was killed. What it had acknowledged was in files, so another one finds it.
    with _started(serve(directory / "data")) as address, connect(address) as connection:
        check_kept(connection, load, sum(line.acknowledged for line in ours))
    return ratio


def _lines(stack: ExitStack, address: str, load: Load, count: int) -> list[Line]:
    return [Line(stack.enter_context(connect(address)), load) for _ in range(count)]


def _work(lines: list[Line], kind: Produced, effort: Effort) -> Callable[[], object]:
    """What is timed; the first requests are sent here, so that whoever refuses them never gets to the timing."""
    produce(lines, len(lines))
    if not kind.is_read:
        return partial(produce, lines, effort.requests)
    return partial(fetch, lines[0].connection, lines[0].load, offset=lines[0].last_offset, requests=effort.requests)


def _append(directory: Path, effort: Effort) -> float:
    batch = Load.of("guard-append", size=APPEND_BYTES, acks=1).batch
    log = Log.open(OsDisk(), str(directory / "log"), config=LogConfig(), clock=SystemClock())
    appended = 0

    def append() -> None:
        nonlocal appended
        log.append(batch, leader_epoch=0)
        appended += 1

    try:
        with _bare_write(directory, batch) as write:
            ratio = _ratio(append, write, effort)
        written = sum(file.stat().st_size for file in (directory / "log").glob("*.log"))
        if log.end_offset != appended or written != appended * len(batch):
            raise BrokenPath(f"append: {appended} batches became {log.end_offset} offsets and {written} bytes")
    finally:
        log.close()
    return ratio


def _send_batch(directory: Path, effort: Effort) -> float:
    value = os.urandom(VALUE_BYTES)
    batch = bytes(build_batch([(None, value, SystemClock().now_ms(), ())] * RECORDS))
    sent = 0
    try:
        with ottla.open(directory / "data") as client, client.producer(acks=1) as producer:
            client.admin().create_topic("guard")

            def send() -> None:
                nonlocal sent
                last = producer.send_batch("guard", [value] * RECORDS)[-1]
                sent += RECORDS
                if last.offset != sent - 1:
                    raise BrokenPath(f"send_batch: the last of {sent} records got offset {last.offset}")

            with _bare_write(directory, batch) as write:
                ratio = _ratio(send, write, effort)
        with ottla.open(directory / "data") as client, client.consumer() as consumer:
            consumer.assign([("guard", 0)])
            consumer.seek("guard", 0, offset=sent - RECORDS)
            _check_records(consumer, value, last=sent - 1)
    except OttlaError as error:
        raise BrokenPath(f"send_batch: {error}") from error
    return ratio


def _check_records(consumer: ottla.Consumer, value: bytes, *, last: int) -> None:
    """The last batch must come to the last record, each with the value that was sent."""
    while True:
        records = consumer.poll(int(ANSWER_S_MAX * 1_000))
        if not records or any(record.value != value for record in records):
            raise BrokenPath("send_batch: the records that were acknowledged did not come back")
        if records[-1].offset == last:
            return


def _ratio(ours: Callable[[], object], bare: Callable[[], object], effort: Effort) -> float:
    sides = [Side("ours", ours), Side("bare", bare)]
    timings = take_turns(sides, rounds=effort.rounds, turn_ms=effort.turn_ms, is_once=effort.is_once)
    return timings[1].median_ns / timings[0].median_ns


@contextmanager
def _bare_write(directory: Path, batch: bytes) -> Iterator[Callable[[], object]]:
    file = os.open(directory / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield partial(os.write, file, batch)
    finally:
        os.close(file)


@contextmanager
def _started(command: Sequence[str]) -> Iterator[str]:
    """A broker in a process of its own, and where it says that it listens; it is killed afterwards."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            is_there, _, _ = select.select([process.stdout], [], [], START_S_MAX)
            words = process.stdout.readline().decode().split() if is_there else []
            if not words:
                raise BrokenPath(f"{command[0]} did not say within {START_S_MAX:g} s that it is ready")
            yield words[-1]
        finally:
            process.kill()
