"""`ottla export` and `ottla import`: whole topics out to Parquet and back in, by Spark.

Options in, a bar and a summary out; what is done, and how, is in `ottla.pipelines.transfer`, loaded when it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Isolation, connected
from ottla.cli.failures import MISUSED, CommandFailed, tell
from ottla.cli.moments import AtOffset, AtTime, Beginning, End, Last, Moment, parse_moment
from ottla.cli.output import AsJson, write_json, write_lines
from ottla.cli.sources import assignments
from ottla.clock import Clock, SystemClock
from ottla.errors import PartitionNotFound

if TYPE_CHECKING:
    from ottla.client.blocking.admin import Admin
    from ottla.pipelines.transfer.documents import SparkSession
    from ottla.pipelines.transfer.importing import Imported
    from ottla.pipelines.transfer.manifest import Export
    from ottla.pipelines.transfer.steps import Span
    from ottla.pipelines.transfer.topics import Topic

EXPORT_EXAMPLES = """\b
Examples:
  ottla export orders backup/orders
  ottla export orders backup/orders --partition 0 --from 2026-01-01 --until 2026-02-01
  ottla export orders s3a://bucket/orders --master spark://host:7077
"""
IMPORT_EXAMPLES = """\b
Examples:
  ottla import backup/orders orders --create
  ottla import backup/orders orders-by-key --route key
  ottla import tables/customers customers --key customer_id --value json
"""
STEP_RECORDS = 1_000_000


class FileFormat(StrEnum):
    """What files are written."""

    PARQUET = "parquet"


class Route(StrEnum):
    """Where imported records go."""

    KEEP = "keep"
    KEY = "key"


Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs; this machine, all cores, if not given.")
]
Remote = Annotated[str | None, typer.Option("--remote", metavar="URL", help="A server of Spark Connect (sc://...).")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's; repeatable.")
]
WhichRecords = Annotated[
    Isolation, typer.Option("--isolation", help="Whether records of transactions that failed are left out.")
]
StepRecords = Annotated[
    int, typer.Option("--step-records", min=1, metavar="N", help="Records at a time; what is done of them counts.")
]


def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to export.", show_default=False)],
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="Where to; empty, or with an export that was interrupted.", show_default=False
        ),
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this partition; repeatable.")
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="As with `ottla consume`: an offset, a time, -10m, ...")
    ] = "beginning",
    until: Annotated[
        str, typer.Option("--until", metavar="WHERE", help="The same; what lies there is not exported any more.")
    ] = "end",
    file_format: Annotated[FileFormat, typer.Option("--format", help="What files to write.")] = FileFormat.PARQUET,
    compression: Annotated[str, typer.Option("--compression", help="Of the files: zstd, snappy, gzip, none.")] = "zstd",
    isolation: WhichRecords = Isolation.READ_COMMITTED,
    step_records: StepRecords = STEP_RECORDS,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write a topic to Parquet files: keys, values, headers, offsets, times.

    A manifest, _ottla_export.json, is written last: a directory without it holds no whole export. Run the same command
    again to go on with one that was interrupted. What arrives after the start is not exported.
    """
    from ottla.pipelines.transfer import documents, exporting, topics

    clock = SystemClock()
    moments = _moment(start, "--from", clock), _moment(until, "--until", clock)
    with connected(bootstrap) as client, client.admin() as admin:
        found = topics.existing(admin, topic)
        numbers = _partitions(found, partition)
        spans = _spans(admin, found, numbers, *moments, isolation)
        asked = {"partitions": None if partition is None else str(numbers), "from": start, "until": until}
        wanted = exporting.Wanted(topic=found, spans=spans, isolation=isolation.value, asked=asked)
        with spark_session(master, remote, conf) as spark:
            place = documents.directory(directory, spark)
            planned = exporting.planned(admin, wanted, place, records_per_step=step_records, clock=clock)
            with bar_of(f"exporting {topic}", total=planned.offsets) as advance:
                made = exporting.exported(spark, bootstrap, planned, place, advance=advance, compression=compression)
    _tell_export(made, directory, as_json=as_json)


def import_(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="An export, or any Parquet files.", show_default=False)
    ],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.", show_default=False)],
    create: Annotated[
        bool, typer.Option("--create", help="Make the topic, with the partitions and configs that were exported.")
    ] = False,
    route: Annotated[
        Route, typer.Option("--route", help="An export's records keep their partitions, or go where their keys belong.")
    ] = Route.KEEP,
    now: Annotated[bool, typer.Option("--now", help="The records get the time of the import, not their own.")] = False,
    key: Annotated[str | None, typer.Option("--key", metavar="COLUMN", help="Of other tables: the key.")] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="COLUMN|json", help="The value; json: all columns, as an object.")
    ] = None,
    timestamp: Annotated[str | None, typer.Option("--timestamp", metavar="COLUMN", help="The time.")] = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="COLUMN", help="Records of one key come in this order.")
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "--as", metavar="NAME", help="A name for this import: the same files under another name are written again."
        ),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Import what there is of an export that is not whole.")
    ] = False,
    verify: Annotated[bool, typer.Option(help="Look at all files of an export first.")] = True,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write an export, or other Parquet files, to a topic; each record once, also when it is run again after a crash.

    Partition, order, headers and times of an export are kept. Of other tables the columns key, value and headers are
    written, or what the options name.
    """
    from ottla.pipelines.transfer import documents, importing

    with connected(bootstrap) as client, client.admin() as admin, spark_session(master, remote, conf) as spark:
        place = documents.directory(directory, spark)
        found = importing.export_in(place, force=force)
        if found is None:
            mapping = importing.Mapping(key=key, value=value, timestamp=timestamp, order=order)
            target = _target(admin, topic, None, create=create)
            done = importing.import_table(spark, bootstrap, admin, place, target, mapping, name=name)
        else:
            if key or value or timestamp or order:
                raise CommandFailed(
                    "--key, --value, --timestamp and --order are for other tables: leave them out", MISUSED
                )
            if verify:
                importing.verify(spark, found, place)
            target = _target(admin, topic, found, create=create)
            importing.refuse_misfit(found, target, routing=route.value)
            if not now:
                _warn_of_stamps(admin, target)
                _warn_of_age(admin, found, target, SystemClock())
            with bar_of(f"importing {topic}", total=found.offsets) as advance:
                done = importing.import_export(
                    spark,
                    bootstrap,
                    admin,
                    found,
                    place,
                    target,
                    routing=route.value,
                    keeps_time=not now,
                    name=name,
                    advance=advance,
                )
    _tell_import(done, directory, topic, as_json=as_json)


# --- the way there ----------------------------------------------------------------------------------------


def _moment(text: str, option: str, clock: Clock) -> Moment:
    try:
        return parse_moment(text, now_ms=clock.now_ms())
    except ValueError as e:
        raise CommandFailed(f"{option}: {e}", MISUSED) from e


def _partitions(topic: Topic, asked: Sequence[int] | None) -> list[int]:
    numbers = sorted(set(topic.partitions if asked is None else asked))
    if numbers[-1] >= topic.partition_count:
        raise PartitionNotFound(topic.name, numbers[-1])
    return numbers


def _spans(
    admin: Admin, topic: Topic, numbers: Sequence[int], first: Moment, last: Moment, isolation: Isolation
) -> tuple[Span, ...]:
    from ottla.pipelines.transfer import topics
    from ottla.pipelines.transfer.steps import between

    starts = topics.starts(admin, topic.name, numbers)
    ends = topics.ends(admin, topic.name, numbers, isolation=isolation.value)

    def resolved(moment: Moment) -> dict[int, int]:
        if isinstance(moment, AtTime):
            found = topics.at(admin, topic.name, dict.fromkeys(numbers, moment.timestamp_ms), isolation=isolation.value)
        else:
            found = {number: _offset(moment, starts[number], ends[number]) for number in numbers}
        return {number: min(max(found.get(number, ends[number]), starts[number]), ends[number]) for number in numbers}

    return between(resolved(first), resolved(last))


def _offset(moment: Moment, start: int, end: int) -> int:
    match moment:
        case Beginning():
            return start
        case AtOffset(offset):
            return offset
        case Last(count):
            return end - count
        case _:
            assert isinstance(moment, End), "times are asked for elsewhere"
            return end


def _target(admin: Admin, name: str, export: Export | None, *, create: bool) -> Topic:
    from ottla.pipelines.transfer import topics

    found = topics.found(admin, name)
    if found is not None:
        return found
    if not create:
        raise CommandFailed(f"there is no topic {name!r}; --create makes it")
    if export is None:
        admin.create_topic(name)
    else:
        admin.create_topic(name, partitions=export.partition_count, configs=export.configs)
    return topics.existing(admin, name)


def _warn_of_stamps(admin: Admin, topic: Topic) -> None:
    from ottla.pipelines.transfer import topics

    if topics.stamps_arrival(admin, topic.name):
        tell(
            f"topic {topic.name!r} gives records the time at which they arrive (message.timestamp.type=LogAppendTime): "
            "they do not keep theirs"
        )


def _warn_of_age(admin: Admin, export: Export, topic: Topic, clock: Clock) -> None:
    """Records keep their times: those that are older than the topic keeps anything go as they come."""
    configs = admin.describe_configs(topic=topic.name)
    policy, retention = configs.get("cleanup.policy"), configs.get("retention.ms")
    kept_ms = int(retention.value or -1) if retention is not None else -1
    if kept_ms < 0 or policy is None or "delete" not in (policy.value or ""):
        return
    oldest_ms = min((each.first_timestamp_ms for each in export.partitions or ()), default=None)
    if oldest_ms is not None and oldest_ms < clock.now_ms() - kept_ms:
        tell(
            f"some records are older than topic {topic.name!r} keeps any (retention.ms={kept_ms}), and will be deleted "
            "by it. Raise retention.ms, or give them the time of the import with --now"
        )


def spark_session(
    master: str | None, remote: str | None, conf: Sequence[str] | None
) -> AbstractContextManager[SparkSession]:
    """A session for one command."""
    from ottla.pipelines.transfer.sessions import transferring

    if master is not None and remote is not None:
        raise CommandFailed("--master and --remote say two things: leave one of them out", MISUSED)
    return transferring(master=master, remote=remote, config=assignments(conf or (), option="--conf"))


@contextmanager
def bar_of(doing: str, *, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal: there is nothing else to look at. Elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda count: bar.advance(task, count)


# --- summaries --------------------------------------------------------------------------------------------


def _tell_export(made: Export, directory: str, *, as_json: bool) -> None:
    size = sum(each.bytes for each in made.partitions or ())
    if as_json:
        write_json({"topic": made.topic, "directory": directory, "records": made.rows, "bytes": size, "id": made.id})
        return
    write_lines(
        [f"exported {made.rows:,} records of topic {made.topic}, {size:,} bytes of keys and values, to {directory}"]
    )


def _tell_import(done: Imported, directory: str, topic: str, *, as_json: bool) -> None:
    if as_json:
        write_json({"directory": directory, "topic": topic, "records": done.rows, "records_before": done.rows_before})
        return
    before = f"; {done.rows_before:,} were there already, by an earlier run of this import" if done.rows_before else ""
    write_lines([f"imported {done.rows:,} records from {directory} to topic {topic}{before}"])
