"""Streaming queries that run over what is there now, end, and tell what each of their batches was given."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, Row

QUERY_SECONDS_MAX = 120


class QueryTooLong(AssertionError):
    """A query that had to end did not."""


def batches_now(frame: DataFrame, checkpoint: Path) -> dict[int, list[Row]]:
    """Run a streaming frame with the trigger AvailableNow: the rows of each micro-batch, by batch id.

    The same checkpoint again goes on where the last run ended.
    """
    seen: dict[int, list[Row]] = {}

    def keep(batch: DataFrame, batch_id: int) -> None:
        seen[batch_id] = batch.collect()

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(QUERY_SECONDS_MAX):
        query.stop()
        raise QueryTooLong(f"still running after {QUERY_SECONDS_MAX} s: {query.status}")
    return seen


def available_now(frame: DataFrame, checkpoint: Path) -> list[Row]:
    """All rows that `batches_now` gives, in the order of the batches."""
    return [row for _, rows in sorted(batches_now(frame, checkpoint).items()) for row in rows]


def write_now(frame: DataFrame, checkpoint: Path, options: dict[str, str], *, sink: str = "ottla") -> None:
    """Write a streaming frame to a sink with the trigger AvailableNow, to its end."""
    query = (
        frame.writeStream.format(sink)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(QUERY_SECONDS_MAX):
        query.stop()
        raise QueryTooLong(f"still running after {QUERY_SECONDS_MAX} s: {query.status}")
