"""The broker in this process against a bare append of the same bytes: what `ottla.open` costs a program."""

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


@contextmanager
def comparisons(directory: Path) -> Iterator[list[Comparison]]:
    """`send` and `send_batch`, each beside a write of the batch that it becomes."""
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
