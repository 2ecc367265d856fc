"""What Spark is given to write with: rows go out in the tasks, the driver commits.

Holds plain data only, since Spark pickles it. What runs in a task is in `task_writing`, loaded there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.client.values import OpenTransaction
from ottla.spark.collector import settle
from ottla.spark.errors import InvalidOption
from ottla.spark.options import WriteOptions
from ottla.spark.sink_columns import check_columns

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""The local properties in which Spark tells a task which query and batch it works for."""
APPLICATION_CHARACTERS_MAX = 500
SLASH = "/"
"""Stands between a query's id and the number of a slot."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    query_id: str | None = None
    """None: at-least-once, or nothing to write; there is nothing to commit."""
    batch_id: int = 0
    transaction: OpenTransaction | None = None
    was_replay: bool = False
    has_fenced: bool = False

    @property
    def key(self) -> tuple[str, int] | None:
        """What its batch is known by; None: it does not matter."""
        return None if self.query_id is None else (self.query_id, self.batch_id)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        check_columns(schema, topic=options.topic)
        self._options = options
        # Spark makes one for each batch, in workers that it uses again.
        settle("planning")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows."""
        from ottla.spark.task_writing import Task, write

        written = write(iterator, self._options, Task.of_stream())
        settle("writing")
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Make a batch count."""
        _commit(messages, self._options, is_lasting=True)
        settle("committing")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Drop what is left of a batch that failed.

        Spark does not say here which query this is, so that a task must have. If none has, the query's next run fences
        what there is.
        """
        told = [message.key for message in messages if isinstance(message, Written) and message.key is not None]
        if told:
            _abort(told[0], self._options, tasks=len(messages), is_final=False)


class BatchWriter(DataSourceArrowWriter):
    """The sink of a batch: all of it counts, or nothing, where the broker can do that."""

    def __init__(self, schema: StructType, options: WriteOptions, *, new_uuid: Callable[[], UUID] = uuid4) -> None:
        check_columns(schema, topic=options.topic)
        self._options = options
        self._query_id = application_key(options) or str(new_uuid())
        self._batch_id = options.application_version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows."""
        from ottla.spark.task_writing import Task, write

        return write(iterator, self._options, Task.of_batch(self._query_id, self._batch_id))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all of it count."""
        _commit(messages, self._options, is_lasting=self._options.application_id is not None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop all of it."""
        is_final = self._options.application_id is None
        _abort((self._query_id, self._batch_id), self._options, tasks=len(messages), is_final=is_final)


def application_key(options: WriteOptions) -> str | None:
    """What the batches of an application are known by; None: it did not say who it is.

    The topic is part of it, so that one batch may be written to several topics under one application id. It stands
    first: no topic has a colon in its name, so that no two pairs come to the same key.
    """
    name = options.application_id
    if name is None:
        return None
    if not 0 < len(name) <= APPLICATION_CHARACTERS_MAX or SLASH in name:
        raise InvalidOption(
            "txnAppId", f"{name[:40]!r} must have 1 to {APPLICATION_CHARACTERS_MAX} characters and no {SLASH!r}"
        )
    return f"{options.topic or ''}:{name}"


def _commit(messages: Sequence[WriterCommitMessage | None], options: WriteOptions, *, is_lasting: bool) -> None:
    told = [message for message in messages if isinstance(message, Written)]
    if any(message.transaction is not None for message in told):
        from ottla.spark.task_writing import commit

        commit(told, options, is_lasting=is_lasting)


def _abort(key: tuple[str, int], options: WriteOptions, *, tasks: int, is_final: bool) -> None:
    if options.guarantee != "at-least-once":
        from ottla.spark.exactly_once import BatchKey
        from ottla.spark.task_writing import abort

        abort(BatchKey(*key), options, tasks=tasks, is_final=is_final)
