"""Tasks of the sink without a Spark around them, for tests that are about brokers and transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ottla.spark.exactly_once import BatchKey
from ottla.spark.options import WriteOptions, write_options
from ottla.spark.task_writing import Task


def sink_options(bootstrap: str, **more: str) -> WriteOptions:
    """Options of a streaming sink; `kafka_x_y` stands for `kafka.x.y`."""
    given = {"kafka.bootstrap.servers": bootstrap, "topic": "t"}
    given.update({name.replace("_", "."): value for name, value in more.items()})
    return write_options(given, streaming=True)


def task(batch_id: int, slot: int = 0, *, attempt: int = 0, query: str = "query", in_order: bool = True) -> Task:
    return Task(BatchKey(query, batch_id), slot, attempt, in_order)


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    """One Arrow batch for each value, as a slow query gives them."""
    for value in values:
        yield pa.record_batch({"value": pa.array([value]), "key": pa.array([value])})


def failing(*values: str) -> Iterator[pa.RecordBatch]:
    """Rows of a query that fails in the end."""
    yield from rows(*values)
    raise ZeroDivisionError("the query failed")
