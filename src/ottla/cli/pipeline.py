"""`ottla pipeline`: check, plan, run, status, stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import connected
from ottla.cli.failures import FAILED, MISUSED, CommandFailed, tell
from ottla.cli.output import AsJson, write_json, write_lines, write_table
from ottla.clock import SystemClock

if TYPE_CHECKING:
    from ottla.pipelines.display import View
    from ottla.pipelines.progress_topics import Standing
    from ottla.pipelines.run_loop import Outcome, Runner
    from ottla.pipelines.spec import Pipeline

_CHECK_EXAMPLES = """\b
Examples:
  ottla pipeline check orders.yaml
  ottla pipeline check orders.yaml --quick
"""
_PLAN_EXAMPLES = """\b
Examples:
  ottla pipeline plan orders.yaml
  ottla pipeline plan orders.yaml --svg orders.svg
"""
_RUN_EXAMPLES = """\b
Examples:
  ottla pipeline run orders.yaml
  ottla pipeline run orders.yaml --once
  ottla pipeline run orders.yaml --master spark://host:7077
  ottla pipeline run orders.yaml --bootstrap host:9092 --restarts 20 > run.log
"""
_STATUS_EXAMPLES = """\b
Examples:
  ottla pipeline status orders.yaml
  ottla pipeline status orders.yaml --json
"""
_STOP_EXAMPLES = """\b
Examples:
  ottla pipeline stop orders.yaml
  ottla pipeline stop orders.yaml --timeout 300
"""

_OF_SPARK = ("pyspark.", "py4j.")
"""Where errors come from that Spark raises."""

app = typer.Typer(help="Check, draw, run, watch and stop pipelines on Spark.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline: a .yaml or .py file.", show_default=False)]
PipelineBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="OTTLA_BOOTSTRAP",
        help="A server of the cluster; several with commas. Comes before what the file says.",
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="The Spark to run on: local[4], spark://host:7077, yarn, ..."),
]
Remote = Annotated[str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host:15002.")]


@app.command("check", epilog=_CHECK_EXAMPLES)
def check(
    file: File,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="Only the file itself: no server is asked, and no Spark started.")
    ] = False,
    bootstrap: PipelineBootstrap = None,
    master: Master = None,
    remote: Remote = None,
) -> None:
    """Say all that is wrong with a pipeline, each with its line and the fix; nothing is run."""
    _refuse_both(master, remote)
    with problems_told():
        pipeline = _loaded(file)
        if not is_quick:
            _check_deeply(pipeline, bootstrap, master, remote)
    write_lines([f"{file}: fine"])


@app.command("plan", epilog=_PLAN_EXAMPLES)
def plan(
    file: File,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="OUT", help="Draw it into this file instead.", show_default=False)
    ] = None,
) -> None:
    """Draw a pipeline: what is read, what becomes of it, and where it goes."""
    with problems_told():
        from ottla.pipelines import drawing
        from ottla.pipelines.graph import graph

        pipeline = _loaded(file)
        shape = graph(pipeline)
        if svg is None:
            write_lines(drawing.text(pipeline, shape).splitlines())
        else:
            svg.write_text(drawing.svg(pipeline, shape), encoding="utf-8")
            write_lines([f"{svg}: drawn"])


@app.command("run", epilog=_RUN_EXAMPLES)
def run(
    file: File,
    bootstrap: PipelineBootstrap = None,
    master: Master = None,
    remote: Remote = None,
    is_once: Annotated[bool, typer.Option("--once", help="Work through what is there now, and end.")] = False,
    restarts: Annotated[
        int,
        typer.Option("--restarts", min=0, metavar="N", help="Restarts of a query in a row, without a batch between."),
    ] = 5,
    stop_timeout: Annotated[
        int, typer.Option("--stop-timeout", min=1, metavar="SECONDS", help="How long a stop waits for batches to end.")
    ] = 60,
    is_forced: Annotated[bool, typer.Option("--force", help="Start although another run seems to be there.")] = False,
) -> None:
    """Run a pipeline until Ctrl-C, which stops it where its batches end; a second one stops it at once.

    A query that fails is started again, after longer and longer pauses; after too many failures in a row all are
    stopped.
    """
    _refuse_both(master, remote)
    with problems_told(), ExitStack() as stack:
        from ottla.pipelines.runner import opened

        pipeline = _loaded(file)
        view = view_of(f"pipeline {pipeline.name}")
        runner = stack.enter_context(
            opened(
                pipeline,
                bootstrap=bootstrap,
                master=master,
                remote=remote,
                on_progress=view.update,
                restarts_max=restarts,
                once=is_once,
                force=is_forced,
                stop_timeout_ms=stop_timeout * 1_000,
            )
        )
        # After the session, since Spark takes the interrupt for itself.
        stack.enter_context(_signals(runner))
        with view:
            outcome = runner.run()
    _tell_outcome(pipeline, outcome)
    if outcome.state == "failed":
        raise typer.Exit(FAILED)


@app.command("status", epilog=_STATUS_EXAMPLES)
def status(file: File, as_json: AsJson = False, bootstrap: PipelineBootstrap = None) -> None:
    """Show how a pipeline and its queries stand, as they told last."""
    with problems_told():
        from ottla.pipelines.progress_topics import standing
        from ottla.pipelines.runner import bootstrap_of

        pipeline = _loaded(file)
        with connected(bootstrap_of(pipeline, bootstrap)) as client:
            found = standing(client, pipeline.name)
    if found.run is None:
        raise CommandFailed(f"nothing is known of pipeline {pipeline.name}: it has not run against this server")
    if as_json:
        write_json({**asdict(found.run), "state": _state(found), "queries": [asdict(one) for one in _in_order(found)]})
        return
    from ottla.pipelines.display import COLUMNS, cells

    write_table(("pipeline", "state", "since", "run", "error"), [_run_row(found)])
    write_table((*COLUMNS, "last error"), [(*cells(one), one.error) for one in _in_order(found)])


@app.command("stop", epilog=_STOP_EXAMPLES)
def stop(
    file: File,
    timeout: Annotated[
        int, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to wait until it has stopped.")
    ] = 120,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Ask a running pipeline to stop where its batches end, and wait until it has."""
    with problems_told():
        from ottla.pipelines.runner import bootstrap_of
        from ottla.pipelines.stopping import NotRunning, StillRunning, stopped

        pipeline = _loaded(file)
        with connected(bootstrap_of(pipeline, bootstrap)) as client:
            try:
                last = stopped(client, pipeline.name, clock=SystemClock(), timeout_ms=timeout * 1_000)
            except (NotRunning, StillRunning) as error:
                raise CommandFailed(str(error)) from error
    write_lines([f"{pipeline.name}: {last.state}" + (f": {last.error}" if last.error else "")])
    if last.state == "failed":
        raise typer.Exit(FAILED)


# --- parts of commands --------------------------------------------------------------------------------


@contextmanager
def problems_told() -> Iterator[None]:
    """A line for each problem of a file, and the exit code for what cannot be."""
    from ottla.pipelines.errors import PipelineInvalid

    try:
        yield
    except PipelineInvalid as error:
        for problem in error.problems:
            tell(str(problem))
        raise typer.Exit(MISUSED) from None
    except Exception as error:
        if not type(error).__module__.startswith(_OF_SPARK):
            raise
        # Pages of Java help nobody on a terminal.
        from ottla.pipelines.error_lines import line_that_matters

        raise CommandFailed(line_that_matters(error)) from error


def _loaded(file: Path) -> Pipeline:
    from ottla.pipelines.graph import graph
    from ottla.pipelines.reading import load

    pipeline = load(file)
    for warning in graph(pipeline).warnings:
        tell(f"warning: {warning}")
    return pipeline


def _check_deeply(pipeline: Pipeline, bootstrap: str | None, master: str | None, remote: str | None) -> None:
    """All that only a server and Spark know, told at once."""
    from ottla.pipelines.checking import analysed, missing_topics, settings_placed
    from ottla.pipelines.errors import PipelineInvalid
    from ottla.pipelines.graph import graph
    from ottla.pipelines.runner import bootstrap_of, session_for

    with connected(bootstrap_of(pipeline, bootstrap)) as client:
        problems = missing_topics(pipeline, client)
    with settings_placed(pipeline):
        spark = session_for(pipeline, master=master, remote=remote)
    try:
        analysed(pipeline, graph(pipeline), spark)
    except PipelineInvalid as error:
        problems += error.problems
    finally:
        spark.stop()
    if problems:
        raise PipelineInvalid(problems)


def _refuse_both(master: str | None, remote: str | None) -> None:
    if master is not None and remote is not None:
        raise CommandFailed("give --master or --remote, not both", MISUSED)


def view_of(title: str) -> View:
    """What shows a run: a table that is kept up to date on a terminal, lines elsewhere."""
    from ottla.pipelines.display import Lines, LiveTable

    if not sys.stdout.isatty():
        return Lines(lambda line: write_lines([line]), SystemClock())
    from rich.console import Console

    return LiveTable(title, Console())


@contextmanager
def _signals(runner: Runner) -> Iterator[None]:
    """The first signal asks for a stop, the second for one at once, the third ends the process."""
    count = 0
    before: dict[int, Any] = {}

    def asked(number: int, frame: object) -> None:
        nonlocal count
        count += 1
        if count == 1:
            tell("stopping where the batches end; once more stops at once")
            runner.stop()
        elif count == 2:
            runner.stop(at_once=True)
        else:
            _restore(before)
            signal.raise_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, asked)
    try:
        yield
    finally:
        _restore(before)


def _restore(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _tell_outcome(pipeline: Pipeline, outcome: Outcome) -> None:
    for name, totals in outcome.totals.items():
        parts = [_count(totals.rows_in, "row in", "rows in")]
        if totals.rows_out is not None:
            parts.append(_count(totals.rows_out, "row out", "rows out"))
        parts.append(_count(totals.batches, "batch", "batches"))
        if totals.restarts:
            parts.append(_count(totals.restarts, "restart", "restarts"))
        write_lines([f"{name}: {', '.join(parts)}"])
    for name in outcome.unfinished:
        tell(f"{name} was stopped in the middle of a batch, which the next run does again")
    if outcome.error is not None:
        tell(f"pipeline {pipeline.name} failed: {outcome.error}")


def _in_order(found: Standing) -> list[Any]:
    order = found.run.queries if found.run is not None else ()
    known = [found.queries[name] for name in order if name in found.queries]
    return known + [one for name, one in found.queries.items() if name not in order]


def _state(found: Standing) -> str:
    """`lost`: its last word was not an end, and that is long ago."""
    from ottla.pipelines.claims import SILENCE_MS

    assert found.run is not None, "it was found"
    is_silent = SystemClock().now_ms() - found.run_at_ms > SILENCE_MS
    return "lost" if found.is_running and is_silent else found.run.state


def _run_row(found: Standing) -> tuple[str | None, ...]:
    assert found.run is not None, "it was found"
    run = found.run
    return (run.pipeline, _state(found), run.at, run.run, run.error)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
