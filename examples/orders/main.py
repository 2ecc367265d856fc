"""The main job: a broker, a shop that sends orders, and a pipeline on Spark that deals with them. `make run` runs it.

    python -m examples.orders.main                      until Ctrl-C
    RUN_SECONDS=60 python -m examples.orders.main       ends by itself
    RUN_KILL_BROKER=1 RUN_SECONDS=60 ...                kills the broker half-way and starts it again
    python -m examples.orders.main --rate 60000         how much this machine stands: does "waiting" stay small?

At the end it reads everything that came out and checks that it adds up with what was sent; it exits with 1 if not.
The pipeline is all in pipeline.yaml. What it is run by is the same `ottla pipeline run` that you would use.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from examples.orders.job import Job, Settings

PARTITIONS = 4
RATE = 20_000
SPEED = 60.0
USUAL_PORT = 9092


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop, and check."""
    settings, named = parsed(arguments)
    directory = _empty(named)
    job = Job(settings, directory)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: job.interrupted())
    with _errors_to(directory / "spark.log"):
        code = job.run()
    if named is not None or code == 1:
        print(f"Broker, tables, checkpoints and logs are in {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return code


def parsed(arguments: Sequence[str] | None) -> tuple[Settings, Path | None]:
    """Options, and the environment where they are silent."""
    parser = argparse.ArgumentParser(prog="make run", description="A broker, a shop and a pipeline on Spark, live.")
    parser.add_argument("directory", nargs="?", type=Path, help="keep broker, tables and checkpoints there")
    parser.add_argument(
        "--seconds",
        type=float,
        default=os.environ.get("RUN_SECONDS") or None,
        help="end by itself, so long after Spark has started",
    )
    parser.add_argument("--rate", type=int, default=os.environ.get("RUN_RATE") or RATE, help="orders per second")
    parser.add_argument("--speed", type=float, default=SPEED, help="seconds in the shop per second")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="partitions of the topic of orders")
    parser.add_argument("--listen", help="where the broker listens; 127.0.0.1:9092 if it is free, else anywhere")
    parser.add_argument(
        "--kill-broker",
        action="store_true",
        default=os.environ.get("RUN_KILL_BROKER", "0") not in ("", "0"),
        help="kill the broker half-way and start it again",
    )
    options = parser.parse_args(arguments)
    if options.kill_broker and options.seconds is None:
        parser.error("half-way to where? --kill-broker needs --seconds (RUN_SECONDS)")
    if options.rate < 1 or options.partitions < 1 or options.speed <= 0 or (options.seconds or 1) <= 0:
        parser.error("rate, partitions, speed and seconds are above 0")
    settings = Settings(
        rate=options.rate,
        speed=options.speed,
        partitions=options.partitions,
        seconds=options.seconds,
        kill_broker=options.kill_broker,
        listen=options.listen or _usual_address(),
    )
    return settings, options.directory


def _usual_address() -> str:
    """Where every tool looks for a broker unless told otherwise, if nobody else is there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return "127.0.0.1:0"
    return f"127.0.0.1:{USUAL_PORT}"


def _empty(named: Path | None) -> Path:
    """The directory of this run."""
    if named is None:
        return Path(tempfile.mkdtemp(prefix="ottla-"))
    if named.exists() and any(named.iterdir()):
        sys.exit(f"{named} is not empty; a run counts from nothing, so give it a directory of its own")
    named.mkdir(parents=True, exist_ok=True)
    return named.resolve()


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Spark and its workers write to our standard error, whatever we say, and would spoil the picture."""
    ours, kept = sys.stderr.fileno(), os.dup(sys.stderr.fileno())
    with log.open("ab") as file:
        os.dup2(file.fileno(), ours)
    try:
        yield
    finally:
        os.dup2(kept, ours)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
