"""The broker in a program against kafko, a log in Rust that lives in a program too: one send after the other, batches.

Neither has a socket. Each side is a program that is told by lines how much to append and answers how long it took, so
that starting it and talking to it cost nothing of the figures. kafko's program is ours, and is built from the
registry that the machine's cargo is set up for. Knows both programs; what they do inside is their business.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from select import select
from time import perf_counter

from bench.peers.contract import OURS, Broker, Load, Pace, Row, Session, Task, Turn, Turns, Unmeasured
from bench.peers.debian import install, installed, version
from bench.peers.launch import LOG_NAME, log_end, stop
from bench.peers.rounds import say
from bench.peers.store import STORE
from tests.peers.maven import PeerMissing

KAFKO = "kafko"
SOURCE = Path(__file__).resolve().with_name("kafko")
BUILD = STORE / "kafko"
RUST_MIN = (1, 85)
RUST_PACKAGES = (("cargo-web", "rustc-web"), ("cargo", "rustc"))
"""Debian 12 has a Rust that is new enough under the first names only, newer ones under the second."""
BUILD_S_MAX = 900
ANSWER_S_MAX = 60.0
VALUE_BYTES = 256
SIZES = ((1, None), (32, None), (1_024, 1.0))
"""Records of a call, and how many times kafko's rate is expected of us."""
ORDER_S = 0.1
"""About as long is one order."""
FIRST_RECORDS = 2_048
ACKNOWLEDGED = "page cache on both: ours acks=1, synced behind the answer; kafko never syncs by itself"


def sessions(pace: Pace) -> list[Session]:
    """Everything that is compared with kafko."""
    tasks = [_task(records, expected, pace) for records, expected in SIZES]
    return [Session(name=KAFKO, sides={OURS: ours, KAFKO: kafko}, tasks=tasks)]


def _task(records: int, expected: float | None, pace: Pace) -> Task:
    row = Row(
        id=f"{KAFKO}-send-{records}",
        group="In one program (kafko)",
        what="one send after the other" if records == 1 else f"send_batch of {records:,}",
        settings=f"records of {VALUE_BYTES} B, one partition, one call after the other, in the program itself",
        fsync=ACKNOWLEDGED,
        unit="records/s",
        expected=expected,
        peer=KAFKO,
    )
    take = partial(_take, row, records, pace)
    return Task(rows=(row,), take={OURS: take, KAFKO: take})


def _take(row: Row, records: int, pace: Pace, broker: Broker) -> Turns:
    # Nothing here compiles while it runs, so that little is enough to be warm.
    calls = _warm_up(broker, records, pace.again_s)
    meter = broker.meter()
    taken_s = sent = 0.0
    while taken_s < pace.timed_s:
        taken_s += _order(broker, records=records, calls=calls)
        sent += records * calls
    cpu_s, memory = meter.seconds(), broker.memory()
    _check_written(broker, sent * VALUE_BYTES)
    load = Load(
        wall_s=taken_s,
        broker_cpu_s=cpu_s,
        client_cpu_s=0.0,
        gigabytes=sent * VALUE_BYTES / 1e9,
        rss_mb=memory.rss_mb,
        hwm_mb=memory.hwm_mb,
    )
    return {row.id: Turn(value=sent / taken_s, load=load)}


def _warm_up(broker: Broker, records: int, seconds: float) -> int:
    """How many calls take about as long as one order should."""
    calls = max(FIRST_RECORDS // records, 1)
    taken_s = total_s = _order(broker, records=records, calls=calls)
    while total_s < seconds:
        calls = max(round(calls * ORDER_S / taken_s), 1)
        taken_s = _order(broker, records=records, calls=calls)
        total_s += taken_s
    return calls


def _order(broker: Broker, *, records: int, calls: int) -> float:
    """Have a program append, and hear how many seconds it took."""
    process = broker.process
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(b"%d %d\n" % (records, calls))
        process.stdin.flush()
        is_there, _, _ = select([process.stdout], [], [], ANSWER_S_MAX)
        line = process.stdout.readline() if is_there else b""
    except BrokenPipeError:
        line = b""
    if not line.strip():
        raise Unmeasured(f"{broker.side} gave up: {log_end(broker.directory / LOG_NAME)}")
    return int(line) / 1e9


def _check_written(broker: Broker, size_bytes: float) -> None:
    """Nobody is quick by writing nothing."""
    found = sum(path.stat().st_size for path in broker.directory.rglob("*") if path.is_file())
    if found < size_bytes:
        raise Unmeasured(f"{broker.side} was told to append {size_bytes:,.0f} B, and its files hold {found:,} B")


@contextmanager
def ours(directory: Path) -> Iterator[Broker]:
    """A program with `ottla.open`."""
    command = [sys.executable, "-m", "bench.peers.kafko_ours", str(directory / "data")]
    with _program(OURS, command, directory) as broker:
        yield broker


@contextmanager
def kafko(directory: Path) -> Iterator[Broker]:
    """A program with kafko."""
    with _program(KAFKO, [str(built()), str(directory / "data")], directory) as broker:
        yield broker


@contextmanager
def _program(side: str, command: list[str], directory: Path) -> Iterator[Broker]:
    log = directory / LOG_NAME
    begun = perf_counter()
    with open(log, "ab") as complaints:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            raise Unmeasured(f"{side} did not start: {log_end(log)}")
        started_s = perf_counter() - begun
        yield Broker(side=side, host="", port=0, process=process, directory=directory, started_s=started_s)
    finally:
        stop(process)
        process.stdin.close()
        process.stdout.close()


@cache
def built() -> Path:
    """kafko's program, built first if need be; raises PeerMissing where it cannot be."""
    cargo = _cargo()
    # A copy, so that what cargo writes beside the manifest does not get into the sources.
    shutil.copytree(SOURCE, BUILD / "source", dirs_exist_ok=True)
    say("building kafko's program: a minute, the first time")
    command = [str(cargo), "build", "--release", "--quiet", "--manifest-path", str(BUILD / "source" / "Cargo.toml")]
    command += ["--target-dir", str(BUILD / "target")]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"kafko's program was not built within {BUILD_S_MAX} s") from None
    if run.returncode != 0:
        raise PeerMissing(f"kafko's program could not be built: {' '.join(run.stderr.split())[-300:]}")
    return BUILD / "target" / "release" / "kafko-bench"


def _cargo() -> Path:
    """A cargo that is new enough, installed if there is none."""
    found = _new_enough()
    for packages in RUST_PACKAGES:
        if found is not None:
            break
        try:
            install(*packages)
        except PeerMissing as reason:
            say(str(reason))
        found = _new_enough()
    if found is None:
        wanted = ".".join(map(str, RUST_MIN))
        raise PeerMissing(f"kafko needs Rust {wanted} or newer (Debian 12: apt install cargo-web, newer ones: cargo)")
    return found


def _new_enough() -> Path | None:
    cargo = shutil.which("cargo")
    if cargo is None:
        return None
    return Path(cargo) if rust_version(version(Path(cargo), "--version")) >= RUST_MIN else None


def rust_version(text: str) -> tuple[int, int]:
    """From what cargo says of itself; 0.0 where it cannot be told."""
    found = re.search(r"(\d+)\.(\d+)\.\d+", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def described() -> str:
    """Its version and Rust's, for the page; raises PeerMissing where there is no Rust to build it with."""
    asked_for = tomllib.loads((SOURCE / "Cargo.toml").read_text(encoding="utf-8"))["dependencies"][KAFKO]
    return f"kafko {asked_for.lstrip('=')}, {version(installed('cargo'), '--version')}"
