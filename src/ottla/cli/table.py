"""`ottla table`: topics as tables of Parquet files; create, show, compact, vacuum."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, connected
from ottla.cli.failures import FAILED, MISUSED, CommandFailed, tell
from ottla.cli.output import AsJson, write_json, write_lines, write_table
from ottla.cli.pipeline import view_of
from ottla.cli.progress import progress
from ottla.errors import TopicNotFound

if TYPE_CHECKING:
    from ottla.pipelines.run_loop import Outcome, Runner
    from ottla.pipelines.spec import Pipeline
    from ottla.pipelines.tables.commits import Commit, State
    from ottla.pipelines.tables.table import LoggedTable

_CREATE_EXAMPLES = """\b
Examples:
  ottla table create orders --path tables/orders --format json \\
      --schema "order_id BIGINT, amount DOUBLE, event_time TIMESTAMP" --partition-by "date(event_time)"
  ottla table create users --path tables/users --format json --schema "name STRING, email STRING" --by-key
  ottla table create clicks --path tables/clicks --once
"""
_SHOW_EXAMPLES = """\b
Examples:
  ottla table show tables/orders
  ottla table show tables/orders --json
"""
_COMPACT_EXAMPLES = """\b
Examples:
  ottla table compact tables/orders
  ottla table compact tables/orders --file-mb 128
"""
_VACUUM_EXAMPLES = """\b
Examples:
  ottla table vacuum tables/orders
  ottla table vacuum tables/orders --grace-minutes 10
"""
COMMITS_SHOWN = 10

app = typer.Typer(help="Keep topics as tables of Parquet files, and look after such tables.", no_args_is_help=True)

TablePath = Annotated[str, typer.Argument(metavar="PATH", help="The table's directory.", show_default=False)]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="The Spark to run on: local[4], yarn, ...")]


@app.command("create", epilog=_CREATE_EXAMPLES)
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)],
    path: Annotated[str, typer.Option("--path", metavar="DIR", help="Where the table is kept.", show_default=False)],
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="What the values are: json, csv, avro or raw.")
    ] = "raw",
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="DDL", help="Of json and csv: `id BIGINT, name STRING`.")
    ] = None,
    schema_file: Annotated[str | None, typer.Option("--schema-file", metavar="FILE", help="Of avro.")] = None,
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", metavar="COLUMNS", help="With commas; also `date(column)`.")
    ] = None,
    keys: Annotated[
        str | None, typer.Option("--keys", metavar="COLUMNS", help="With commas; a row replaces that of the same keys.")
    ] = None,
    is_by_key: Annotated[
        bool, typer.Option("--by-key", help="The last record of each key; one without a value deletes its row.")
    ] = False,
    order: Annotated[
        str | None, typer.Option("--order", metavar="SQL", help="With --keys: of rows of a key the greatest counts.")
    ] = None,
    is_once: Annotated[bool, typer.Option("--once", help="Take what is there now, and end.")] = False,
    trigger: Annotated[
        str | None, typer.Option("--trigger", metavar="INTERVAL", help="How often a batch is begun: `5 seconds`.")
    ] = None,
    master: Master = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Keep a topic as a table: from the log's start, then what comes, until Ctrl-C; the same command goes on later.

    Records that are not of the format go to the topic TOPIC.bad, as they were.
    """
    from ottla.pipelines.errors import PipelineInvalid
    from ottla.pipelines.tables.from_topic import InvalidRequest, TopicTable, bad_topic, pipeline_of

    wanted = TopicTable(
        topic=topic,
        path=str(Path(path).absolute()) if "://" not in path else path,
        format=format_,
        schema=schema,
        schema_file=schema_file,
        partition_by=_columns(partition_by),
        keys=_columns(keys),
        by_key=is_by_key,
        order=order,
        trigger=trigger,
    )
    try:
        pipeline = pipeline_of(wanted, directory=Path.cwd())
        if (bad := bad_topic(pipeline)) is not None:
            with connected(bootstrap) as client, client.admin() as admin:
                # The topic itself is looked up first, or a slip of the pen would make a topic for its bad records.
                if admin.describe_topic(topic) is None:
                    raise TopicNotFound(topic)
                admin.get_or_create_topic(bad)
        outcome = _run(pipeline, bootstrap=bootstrap, master=master, is_once=is_once)
    except InvalidRequest as error:
        raise CommandFailed(str(error), MISUSED) from None
    except PipelineInvalid as error:
        for problem in error.problems:
            tell(f"{problem.what}. {problem.fix}")
        raise typer.Exit(MISUSED) from None
    if outcome.error is not None:
        tell(f"table {path}: {outcome.error}")
    _show_short(path)
    if outcome.state == "failed":
        raise typer.Exit(FAILED)


@app.command("show", epilog=_SHOW_EXAMPLES)
def show(path: TablePath, as_json: AsJson = False) -> None:
    """Show what a table holds: its schema, its versions, its files, and the queries that write to it."""
    from ottla.pipelines.tables import open_log

    log = open_log(path)
    commits = log.commits()[-COMMITS_SHOWN:]
    if as_json:
        write_json(_described(path, log.state, commits))
        return
    _write_state(path, log.state)
    columns = ("version", "time", "kind", "application", "batch", "files", "rows")
    write_table(columns, [_commit_row(commit) for commit in commits])


@app.command("compact", epilog=_COMPACT_EXAMPLES)
def compact(
    path: TablePath,
    file_mb: Annotated[int, typer.Option("--file-mb", min=1, help="Files below this size are put together.")] = 32,
    master: Master = None,
) -> None:
    """Put small files of a table together, and merge the changes that wait; writers and readers go on meanwhile."""
    from ottla.pipelines.tables import open_log

    state = open_log(path).state
    before = len(state.live) + len(state.changes)
    with _session(master), progress("compacting", total=before) as advance:
        gone = _opened(path, state, file_bytes_min=file_mb * 1024 * 1024).compact(advance)
    write_lines([f"{path}: {gone:,} files fewer"])


@app.command("vacuum", epilog=_VACUUM_EXAMPLES)
def vacuum(
    path: TablePath,
    grace_minutes: Annotated[
        int, typer.Option("--grace-minutes", min=0, help="Readers of versions from before then lose their files.")
    ] = 60,
) -> None:
    """Delete the files that the table does not hold any more, and what crashes have left."""
    from ottla.pipelines.tables import open_log

    done = _opened(path, open_log(path).state).vacuum(grace_ms=grace_minutes * 60_000)
    write_lines([f"{path}: {done.files:,} files deleted, {done.bytes:,} bytes; {done.commits:,} old commits"])


# --- parts of commands --------------------------------------------------------------------------------


def _columns(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _run(pipeline: Pipeline, *, bootstrap: str, master: str | None, is_once: bool) -> Outcome:
    from ottla.pipelines.runner import opened

    view = view_of(pipeline.name)
    with ExitStack() as stack:
        runner = stack.enter_context(
            opened(pipeline, bootstrap=bootstrap, master=master, once=is_once, on_progress=view.update)
        )
        # After the session, since Spark takes the interrupt for itself.
        stack.enter_context(_stopping(runner))
        stack.enter_context(view)
        return runner.run()


@contextmanager
def _stopping(runner: Runner) -> Iterator[None]:
    """The first signal asks for a stop where a batch ends, the next one for a stop at once."""
    asked = 0

    def stop(number: int, frame: object) -> None:
        nonlocal asked
        asked += 1
        runner.stop(at_once=asked > 1)

    before: dict[int, Any] = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _session(master: str | None) -> Iterator[None]:
    from ottla.spark import session

    spark = session("ottla table", master=master)
    try:
        yield
    finally:
        spark.stop()


def _opened(path: str, state: State, *, file_bytes_min: int = 32 * 1024 * 1024) -> LoggedTable[Any]:
    """A table as it was made, for what changes none of its rows."""
    from ottla.pipelines.tables import open_table

    return open_table(
        path,
        partition_by=state.partition_by,
        keys=state.keys,
        order=state.order,
        file_bytes_min=file_bytes_min,
    )


def _show_short(path: str) -> None:
    from ottla.pipelines.tables import NoTable, open_log

    try:
        _write_state(path, open_log(path).state)
    except NoTable:
        write_lines([f"{path}: nothing has come yet"])


def _write_state(path: str, state: State) -> None:
    from ottla.pipelines.tables import schemas

    assert state.schema is not None, "the table was written"
    write_lines(
        [
            f"{path}: version {state.version}, {state.rows:,} rows in {len(state.live):,} files, {state.bytes:,} bytes",
            f"partitioned by: {', '.join(state.partition_by) or 'nothing'}",
            f"keys: {', '.join(state.keys) or 'none; rows are appended'}",
        ]
    )
    if state.changes:
        waiting = sum(one.rows for one in state.changes.values())
        write_lines([f"not merged yet: {waiting:,} changes in {len(state.changes):,} files"])
    if state.expired:
        write_lines([f"no longer held: {len(state.expired):,} files, which `ottla table vacuum` deletes"])
    write_table(("column", "type"), [(one["name"], schemas.text(one["type"])) for one in state.schema["fields"]])
    last = [(name, runs[-1][1]) for name, runs in state.batches.items()]
    write_table(("application", "last batch"), last)


def _described(path: str, state: State, commits: list[Commit]) -> dict[str, Any]:
    return {
        "path": path,
        "version": state.version,
        "time": _time(state.time_ms),
        "rows": state.rows,
        "bytes": state.bytes,
        "schema": state.schema,
        "partition_by": state.partition_by,
        "keys": state.keys,
        "order": state.order,
        "files": [asdict(one) for one in state.live.values()],
        "changes": [asdict(one) for one in state.changes.values()],
        "expired": [asdict(one.file) for one in state.expired.values()],
        "applications": [{"application": name, "batches": runs} for name, runs in state.batches.items()],
        "commits": [{**asdict(one), "schema": None} for one in commits],
    }


def _commit_row(commit: Commit) -> tuple[str | int | None, ...]:
    rows = sum(one.rows for one in commit.added) - sum(one.rows for one in commit.removed)
    rows += sum(one.rows for one in commit.changes_added)
    files = f"+{len(commit.added) + len(commit.changes_added)} -{len(commit.removed) + len(commit.changes_removed)}"
    return (commit.version, _time(commit.time_ms), commit.kind, commit.application, commit.batch_id, files, rows)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
