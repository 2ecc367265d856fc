"""Starts the queries of a pipeline: those of one output, and those that several share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.frames import Frames
from ottla.pipelines.queries import QueryPlan, checkpoints_of, query_writer
from ottla.pipelines.remembered_queries import RememberedQueries
from ottla.pipelines.rows_out import RowsOut
from ottla.pipelines.shared_query import shared_writer
from ottla.pipelines.sharing import SharedPlan, assigned, remembrance, shareable_source
from ottla.pipelines.spark_errors import problem_of
from ottla.pipelines.spec import AVAILABLE_NOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.streaming.query import StreamingQuery


def queries_for(plans: Sequence[QueryPlan], frames: Frames) -> Sequence[QueryPlan | SharedPlan]:
    """The queries that write these outputs: as they were when the pipeline was started before, as far as they were."""
    if getattr(frames.spark, "_jvm", None) is None:
        # Spark Connect shows neither its plans nor its files, so that every output has a query of its own.
        return plans
    checkpoints = checkpoints_of(frames.pipeline)
    kept = RememberedQueries(frames.spark, checkpoints)
    remembered = kept.read(plan.name for plan in plans)
    queries = assigned(
        plans, remembered, source_of=lambda plan: shareable_source(plan, frames), checkpoints=checkpoints
    )
    now = remembrance(queries, remembered)
    if now != remembered:
        kept.write(now)
    return queries


def start(
    plan: QueryPlan | SharedPlan,
    frames: Frames,
    *,
    trigger: str | None,
    hold_file: str | None = None,
    rows_out: RowsOut | None = None,
) -> StreamingQuery:
    """Start a query. `trigger` is `available-now`, an interval, or None: as soon as there is news.

    While `hold_file` exists, the query's topics say that there is no news, so that it comes to rest after a batch.
    `rows_out` is told the rows of batches that Spark does not count.
    """
    from pyspark.errors import PySparkException

    counts = rows_out or RowsOut()
    held = frames.held_by(hold_file) if hold_file is not None else frames
    try:
        made = shared_writer(plan, held, counts) if isinstance(plan, SharedPlan) else query_writer(plan, held, counts)
        writer = made.queryName(plan.name).option("checkpointLocation", plan.checkpoint)
        return writer.trigger(**trigger_of(trigger)).start()
    except PySparkException as e:
        raise PipelineInvalid([problem_of(e, plan.place, what=_what(plan), in_text=False)]) from e


def trigger_of(trigger: str | None) -> dict[str, Any]:
    """As `DataStreamWriter.trigger` takes it."""
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"processingTime": trigger or "0 seconds"}


def _what(plan: QueryPlan | SharedPlan) -> str:
    if isinstance(plan, SharedPlan):
        return f"query `{plan.name}`"
    return f"sink `{plan.name}`" if plan.sink is not None else f"what `{plan.node}` sends away"
