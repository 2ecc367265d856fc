"""The broker in this process against a bare write or read of the same bytes: what `ottla.open` costs a program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import ottla
from bench.turns import Comparison, Side
from ottla.clock import SystemClock
from ottla.records.builder import build_batch

VALUE = bytes(256)
BATCHES = (32, 1_024)
READ_BATCHES = 16


@contextmanager
def comparisons(directory: Path) -> Iterator[list[Comparison]]:
    """`send` and `send_batch`, each beside a write of the batch that it becomes, and reading what they wrote."""
    file = os.open(directory / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        with ottla.open(directory / "embedded") as client, client.producer(acks=1) as producer:
            client.admin().create_topic("bench")
            rows = [
                _row("one send after the other", partial(producer.send, "bench", VALUE), file, count=1),
            ]
            for count in BATCHES:
                batch = [VALUE] * count
                rows.append(
                    _row(f"send_batch of {count:,}", partial(producer.send_batch, "bench", batch), file, count=count)
                )
            client.admin().create_topic("read")
            for _ in range(READ_BATCHES):
                producer.send_batch("read", [VALUE] * BATCHES[-1])
            with client.consumer() as consumer:
                consumer.assign([("read", 0)])
                rows.append(_reading(consumer, directory))
                yield rows
    finally:
        os.close(file)


def _row(what: str, work: Callable[[], object], file: int, *, count: int) -> Comparison:
    now_ms = SystemClock().now_ms()
    data = bytes(build_batch([(None, VALUE, now_ms, ())] * count))
    return Comparison(
        what,
        f"records of {len(VALUE)} B, acks=1, in this process",
        Side("ottla.open", work),
        ((Side("os.write", partial(os.write, file, data)), None),),
    )


def _reading(consumer: ottla.Consumer, directory: Path) -> Comparison:
    """Every record as an object of its own, beside a read of the bytes that they stand in."""
    path = next((directory / "embedded" / "read-0").glob("*.log"))
    file, size = os.open(path, os.O_RDONLY), path.stat().st_size
    expected = READ_BATCHES * BATCHES[-1]

    def consume() -> None:
        consumer.seek_to_beginning()
        count = 0
        while count < expected:
            count += len(consumer.poll(1_000))

    return Comparison(
        f"consume {expected:,} records",
        f"records of {len(VALUE)} B in batches of {BATCHES[-1]:,}, in this process",
        Side("ottla.open", consume),
        ((Side("os.pread", partial(os.pread, file, size, 0)), None),),
    )
