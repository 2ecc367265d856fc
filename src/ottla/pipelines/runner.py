"""Runs a pipeline on Spark.

    outcome = run(load(Path("orders.yaml")))                          # until it is stopped
    outcome = run(pipeline, spark=spark, once=True)                   # what is there now, and no more
    with opened(pipeline, bootstrap="127.0.0.1:9092") as runner:      # for programs that look at it meanwhile
        threading.Thread(target=runner.run).start()

Puts together the session, the frames, the queries, the claim that there is no other run, and the link by which the run
is told of; `run_loop` does the rest.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from ottla.client.blocking.client import Client, connect
from ottla.client.errors import NoBrokerReachable
from ottla.client.values import OffsetSpec
from ottla.clock import Clock, SystemClock
from ottla.errors import OttlaError
from ottla.pipelines.checking import analysed, missing_topics, settings_placed
from ottla.pipelines.claims import AlreadyRunning, claim, is_gone, whereabouts
from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.frames import Frames
from ottla.pipelines.graph import graph
from ottla.pipelines.progress import CONTROL_TOPIC, Offsets, RunProgress, moment
from ottla.pipelines.progress_link import CLIENT_SETTINGS, ProgressLink
from ottla.pipelines.progress_topics import end_of
from ottla.pipelines.queries import QueryPlan, planned
from ottla.pipelines.restarts import RESTARTS_MAX
from ottla.pipelines.rows_out import RowsOut
from ottla.pipelines.run_loop import STOP_TIMEOUT_MS, Accounts, OnProgress, Outcome, Runner
from ottla.pipelines.sharing import SharedPlan
from ottla.pipelines.spec import AVAILABLE_NOW, Pipeline
from ottla.pipelines.starting import queries_for, start
from ottla.pipelines.supervision import Startable, Totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["AlreadyRunning", "Outcome", "Runner", "Totals", "bootstrap_of", "opened", "run", "session_for"]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
STOP_LOOK_S = 0.2
SESSION_SETTINGS = {
    # A query that does not come to its end is left behind, so that the others can be stopped.
    "spark.sql.streaming.stopTimeout": "60s",
    # How far a query is, is told again soon after its last batch.
    "spark.sql.streaming.noDataProgressEventInterval": "2s",
}
"""Of sessions that are made here; what the pipeline's file says comes before it."""

_logger = logging.getLogger(__name__)


def run(
    pipeline: Pipeline,
    *,
    spark: SparkSession | None = None,
    bootstrap: str | None = None,
    stop: threading.Event | None = None,
    on_progress: OnProgress | None = None,
    restarts_max: int = RESTARTS_MAX,
    once: bool = False,
    force: bool = False,
    check: bool = True,
    stop_timeout_ms: int = STOP_TIMEOUT_MS,
) -> Outcome:
    """Run a pipeline until it is stopped, all its queries have ended, or one fails too often in a row.

    `stop`: set it, from any thread, to let the run end where its batches end. `check`: before anything starts, see that
    the topics are there and that Spark takes all that is declared. `force`: although another run seems to be there.
    """
    with opened(
        pipeline,
        spark=spark,
        bootstrap=bootstrap,
        on_progress=on_progress,
        restarts_max=restarts_max,
        once=once,
        force=force,
        check=check,
        stop_timeout_ms=stop_timeout_ms,
    ) as runner:
        if stop is None:
            return runner.run()
        watcher = threading.Thread(target=_pass_on, args=(stop, runner), name="ottla-pipeline-stop", daemon=True)
        watcher.start()
        try:
            return runner.run()
        finally:
            watcher.join()


def _pass_on(stop: threading.Event, runner: Runner) -> None:
    """Hand the caller's wish on, as long as there is a run that it could concern."""
    while not runner.has_ended.is_set():
        if stop.wait(STOP_LOOK_S):
            runner.stop()
            return


@contextmanager
def opened(
    pipeline: Pipeline,
    *,
    spark: SparkSession | None = None,
    bootstrap: str | None = None,
    on_progress: OnProgress | None = None,
    restarts_max: int = RESTARTS_MAX,
    once: bool = False,
    force: bool = False,
    check: bool = True,
    stop_timeout_ms: int = STOP_TIMEOUT_MS,
    master: str | None = None,
    remote: str | None = None,
    clock: Clock | None = None,
    new_id: Callable[[], UUID] = uuid4,
) -> Iterator[Runner]:
    """A run that is ready to begin: `runner.run()` does. Raises `AlreadyRunning` if there is one, unless forced.

    Without `spark` it gets a session of its own, on `master` or `remote` or else on this machine, for as long as it is
    open.
    """
    ticks = clock or SystemClock()
    address = bootstrap_of(pipeline, bootstrap)
    is_once = once or pipeline.trigger == AVAILABLE_NOW
    shape = graph(pipeline)
    plans = planned(pipeline, shape)
    with ExitStack() as stack:
        client = stack.enter_context(connect(address, client_id=f"ottla-pipeline-{pipeline.name}", **CLIENT_SETTINGS))
        if check and (problems := missing_topics(pipeline, client)):
            raise PipelineInvalid(problems)
        mine = _introduced(pipeline, plans, new_id(), ticks)
        claimed = stack.enter_context(_claimed(client, address, mine, clock=ticks, force=force))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-pipeline-"))
        hold_file = Path(directory) / "hold"
        if spark is None:
            with settings_placed(pipeline):
                spark = session_for(pipeline, master=master, remote=remote)
            stack.callback(spark.stop)
        if check:
            analysed(pipeline, shape, spark)
        frames = Frames(pipeline, shape, spark, bootstrap=address, hold_file=str(hold_file))
        stack.callback(frames.close)
        accounts = stack.enter_context(_listening(frames.spark))
        trigger = AVAILABLE_NOW if is_once else pipeline.trigger
        claimed.runner = Runner(
            mine,
            [_startable(query, frames, trigger, hold_file) for query in queries_for(plans, frames)],
            clock=ticks,
            hold_file=hold_file,
            link=claimed.link,
            accounts=accounts,
            ends_now=lambda topics: _ends(client, topics),
            on_progress=on_progress,
            restarts_max=restarts_max,
            once=is_once,
            stop_timeout_ms=stop_timeout_ms,
        )
        yield claimed.runner


def bootstrap_of(pipeline: Pipeline, given: str | None = None) -> str:
    """Where the broker is: as given, or as the environment or the pipeline's file say."""
    return given or os.environ.get("OTTLA_BOOTSTRAP") or pipeline.bootstrap or DEFAULT_BOOTSTRAP


def session_for(pipeline: Pipeline, *, master: str | None = None, remote: str | None = None) -> SparkSession:
    """A Spark session for a pipeline, with the settings of its file."""
    from ottla.spark.sessions import session

    settings: Mapping[str, object] = {**SESSION_SETTINGS, **pipeline.spark}
    return session(f"ottla {pipeline.name}", master=master, remote=remote, config=settings)


def _introduced(pipeline: Pipeline, plans: Sequence[QueryPlan], run_id: UUID, clock: Clock) -> RunProgress:
    here = whereabouts()
    return RunProgress(
        pipeline=pipeline.name,
        run=run_id.hex[:12],
        state="starting",
        at=moment(clock.now_ms()),
        place=here.place,
        process=here.process,
        queries=tuple(plan.name for plan in plans),
    )


@dataclass(slots=True)
class _Claimed:
    """What a run has once it has claimed its pipeline."""

    link: ProgressLink | None
    runner: Runner | None = None


@contextmanager
def _claimed(client: Client, address: str, mine: RunProgress, *, clock: Clock, force: bool) -> Iterator[_Claimed]:
    """Claim the pipeline for this run and tell of it. A broker that does not let us is no reason not to run."""
    here = whereabouts()
    pause = threading.Event()
    try:
        control_start = end_of(client, CONTROL_TOPIC)
        claim(
            client,
            mine,
            clock=clock,
            pause=lambda delay_ms: pause.wait(delay_ms / 1_000),
            gone=lambda other: is_gone(other, here),
            force=force,
        )
    except (AlreadyRunning, NoBrokerReachable):
        raise
    except OttlaError as error:
        _logger.warning("nothing is told of this run, and a second one would not be noticed: %s", error)
        yield _Claimed(None)
        return
    link = ProgressLink(
        lambda: connect(address, client_id="ottla-pipeline-progress", **CLIENT_SETTINGS),
        mine,
        control_start=control_start,
    )
    claimed = _Claimed(link)
    try:
        yield claimed
    finally:
        if claimed.runner is None or not claimed.runner.has_ended.is_set():
            link.tell(replace(mine, state="failed", at=moment(clock.now_ms()), error="it came to no start"))
        link.close()


def _startable(plan: QueryPlan | SharedPlan, frames: Frames, trigger: str | None, hold_file: Path) -> Startable:
    rows_out = RowsOut()

    def begin() -> StreamingQuery:
        # Spark looks sources in Python up in the session that is active in the thread, and a frame makes it so.
        frames.spark.createDataFrame([], "nothing INT")
        return start(plan, frames, trigger=trigger, hold_file=str(hold_file), rows_out=rows_out)

    return Startable(plan.name, begin, rows_out.of)


@contextmanager
def _listening(spark: SparkSession) -> Iterator[Accounts]:
    """What Spark tells of every batch. Asking for the last one alone would miss those in between."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    accounts = Accounts()

    class Listener(StreamingQueryListener):
        """Puts them where the run finds them."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Known already."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            accounts.put(event.progress)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Asked for when it is needed."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """Seen by who looks at the query."""

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        yield accounts
    finally:
        spark.streams.removeListener(listener)


def _ends(client: Client, topics: Sequence[str]) -> Offsets:
    """Where topics end now, for who reads what is committed."""
    admin = client.admin()
    counts = {topic: admin.partition_count(topic) or 0 for topic in topics}
    wanted: dict[tuple[str, int], int] = {
        (topic, partition): OffsetSpec.LATEST for topic, count in counts.items() for partition in range(count)
    }
    found: dict[str, dict[str, int]] = {topic: {} for topic in topics}
    for place, offset in admin.list_offsets(wanted, isolation="read_committed").items():
        found[place.topic][str(place.partition)] = 0 if offset is None else offset.offset
    return found
