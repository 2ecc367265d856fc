"""Exactly-once writing in `foreachBatch`, for what a sink of Spark's Python API is refused: update mode.

    frame.writeStream.outputMode("update").foreachBatch(exactly_once_batches("totals", {...})).start()

A batch is known by the application id and the number that Spark gives it, so one that Spark repeats after a crash is
written once. Runs on the driver; under Spark Connect on the server, to which it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.spark.errors import InvalidOption
from ottla.spark.options import WriteOptions, write_options
from ottla.spark.writer import application_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPECULATION = "spark.speculation"


class ExactlyOnceBatches:
    """Writes each batch once. Plain data, so that it can be sent to where it runs."""

    def __init__(self, application_id: str, options: Mapping[str, object]) -> None:
        self._options = {name: _text(value) for name, value in options.items()}
        self._options["txnAppId"] = application_id
        # A mistake shows when the query is put together, not in its first batch.
        application_key(self._checked(0))

    def _checked(self, batch_id: int) -> WriteOptions:
        return write_options({**self._options, "txnVersion": str(batch_id)}, streaming=False)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch; nothing is written if it is there already."""
        options = self._checked(batch_id)
        if options.guarantee != "at-least-once":
            _require_no_speculation(frame)
            _refuse_stale(options)
        writer = frame.write.format("ottla").options(**self._options).option("txnVersion", batch_id)
        writer.mode("append").save()


def exactly_once_batches(
    application_id: str, options: Mapping[str, object] | None = None, **more: object
) -> ExactlyOnceBatches:
    """A function for `foreachBatch` that writes each batch with these options of the sink, exactly once.

    `application_id` is yours to choose: one for each query, the same over its restarts, and another one when you begin
    with a new checkpoint. One query may write to several topics under one id, but to each of them once in a batch.
    Options with a dot in their name go into `options`.
    """
    return ExactlyOnceBatches(application_id, {**(options or {}), **more})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_no_speculation(frame: DataFrame) -> None:
    if frame.sparkSession.conf.get(SPECULATION, "false") == "true":
        raise InvalidOption(
            SPECULATION,
            "two attempts of one task would keep fencing each other's transaction",
            fix=f"Set {SPECULATION} to false, or deliveryGuarantee to at-least-once",
        )


def _refuse_stale(options: WriteOptions) -> None:
    """Raise if this batch was committed before others that are committed too.

    If it is the last one, the job runs all the same, and its tasks skip what they are given: Spark insists that the
    whole frame is gone through, since its state depends on it.
    """
    from ottla.client.transport import run_now
    from ottla.spark import exactly_once, pool
    from ottla.spark.task_writing import reach

    query_id, version = application_key(options), options.application_version
    assert query_id is not None, "it was set"
    assert version is not None, "it was set"
    with pool.borrowed(options.connection) as link:
        reach(link, options)
        # Of other brokers the tasks find out too, and say so.
        if run_now(exactly_once.queries(link).serves_group_commits()):
            exactly_once.is_committed(link, exactly_once.BatchKey(query_id, version), in_order=True)
