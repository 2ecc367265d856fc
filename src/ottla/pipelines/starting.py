"""Starts the queries of a pipeline: those of one output, and those that several share.

Under Spark Connect none is shared: it does not show its plans, which say what may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.pipelines.checkpoint_files import text_of
from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.frames import Frames
from ottla.pipelines.queries import QueryPlan, checkpoints_of, query_writer
from ottla.pipelines.remembered_queries import FILE, RememberedQueries, remembered_in
from ottla.pipelines.rows_out import RowsOut
from ottla.pipelines.shared_query import shared_writer
from ottla.pipelines.sharing import Remembered, SharedPlan, assigned, remembrance, shareable_source
from ottla.pipelines.spark_errors import problem_of
from ottla.pipelines.spec import AVAILABLE_NOW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ATTEMPTS_MAX = 5
TOO_BUSY = "Python worker failed to connect back"
"""What Spark says of a process that did not answer within ten seconds, as happens where many start on few cores."""


def queries_for(plans: Sequence[QueryPlan], frames: Frames) -> Sequence[QueryPlan | SharedPlan]:
    """The queries that write these outputs: as they were when the pipeline was started before, as far as they were."""
    checkpoints = checkpoints_of(frames.pipeline)
    if getattr(frames.spark, "_jvm", None) is None:
        path = f"{checkpoints}/{FILE}"
        text = text_of(frames.spark, path)
        if text is not None:
            refuse_unless_alone(plans, remembered_in(text, path=path))
        return plans
    kept = RememberedQueries(frames.spark, checkpoints)
    remembered = kept.read(plan.name for plan in plans)
    queries = assigned(
        plans, remembered, source_of=lambda plan: shareable_source(plan, frames), checkpoints=checkpoints
    )
    now = remembrance(queries, remembered)
    if now != remembered:
        kept.write(now)
    return queries


def refuse_unless_alone(plans: Sequence[QueryPlan], remembered: Mapping[str, Remembered]) -> None:
    """Raise for outputs that are not known to have queries of their own.

    One that has shared a query would begin anew, and write everything twice. One that is new might do so later: Spark
    Connect writes nothing down, so that nobody would remember it.
    """
    queries = remembered.values()
    alone = {output for query in queries if query.source is None for output in query.outputs}
    shared = {output for query in queries if query.source is not None for output in query.outputs}
    fix = "Run it on a Spark master, or begin anew: with other `checkpoints`, and with topics and tables that are empty"
    problems = [
        Problem(
            plan.place,
            f"`{plan.name}` has been written together with others, and Spark Connect cannot do that"
            if plan.name in shared
            else f"`{plan.name}` is new in a pipeline that was run without Spark Connect",
            fix,
        )
        for plan in plans
        if plan.name not in alone
    ]
    if problems:
        raise PipelineInvalid(problems)


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
        return started(writer.trigger(**trigger_of(trigger)))
    except PySparkException as e:
        raise PipelineInvalid([problem_of(e, plan.place, what=_what(plan), in_text=False)]) from e


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Under Spark Connect a query starts with the process that writes its batches: its start alone is tried again."""
    from pyspark.errors import PySparkException

    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return writer.start()
        except PySparkException as error:
            if TOO_BUSY not in str(error):
                raise
    return writer.start()


def trigger_of(trigger: str | None) -> dict[str, Any]:
    """As `DataStreamWriter.trigger` takes it."""
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"processingTime": trigger or "0 seconds"}


def _what(plan: QueryPlan | SharedPlan) -> str:
    if isinstance(plan, SharedPlan):
        return f"query `{plan.name}`"
    return f"sink `{plan.name}`" if plan.sink is not None else f"what `{plan.node}` sends away"
