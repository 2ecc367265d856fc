"""`ottla repartition`: a topic copied into one with another number of partitions, by Spark.

Options in, a bar and a summary out; what is done, and how, is in `ottla.pipelines.transfer`, loaded when it is needed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Isolation, connected
from ottla.cli.failures import FAILED, MISUSED, CommandFailed, explained, tell
from ottla.cli.output import AsJson, write_json, write_lines
from ottla.cli.transfer import STEP_RECORDS, Conf, Master, Remote, StepRecords, WhichRecords, bar_of, spark_session
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.blocking.admin import Admin
    from ottla.pipelines.transfer.documents import Directory, SparkSession
    from ottla.pipelines.transfer.journal import Journal
    from ottla.pipelines.transfer.positions import Move
    from ottla.pipelines.transfer.repartitioning import Copy

EXAMPLES = """\b
Examples:
  ottla repartition orders orders-12 --partitions 12
  ottla repartition orders orders-12 --partitions 12 --follow
  ottla repartition orders orders-12 --partitions 12 --groups
"""

LAG_MAX = 1_000
ROUNDS_MAX = 20
FOLLOW_SECONDS = 1.0


class Choice(StrEnum):
    """How the new partition of a record is chosen."""

    KEY = "key"
    ROUND_ROBIN = "round-robin"


def repartition(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to copy.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The topic to make of it.", show_default=False)],
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="How many the new one has.", show_default=False)
    ],
    by: Annotated[
        Choice, typer.Option("--by", help="Where records go: by key, as Kafka's clients send them, or in turn.")
    ] = Choice.KEY,
    map_: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="DIR",
            help="For the journal and the map of offsets; .ottla/repartition/TOPIC-to-NEW if not given.",
        ),
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Then move all groups that have a position in TOPIC.")
    ] = False,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="Then move this group; repeatable.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what arrives, until it is interrupted.")] = False,
    lag_max: Annotated[
        int, typer.Option("--lag", min=0, metavar="N", help="Stop when no more than this is missing.")
    ] = LAG_MAX,
    isolation: WhichRecords = Isolation.READ_COMMITTED,
    step_records: StepRecords = STEP_RECORDS,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Copy a topic into a new one with another number of partitions; each record once, order per key is kept.

    Run it again to copy what has arrived since, also after a crash. To change over: stop those who write to TOPIC, run
    it once more, stop the readers, run it with --groups, and start all of them with NEW.
    """
    from ottla.pipelines.transfer import documents, repartitioning, topics

    if follow and (groups or group):
        raise CommandFailed("--follow has no end at which groups could be moved: run it again with --groups", MISUSED)
    wait = threading.Event().wait
    with connected(bootstrap) as client, client.admin() as admin, spark_session(master, remote, conf) as spark:
        place = documents.directory(map_ or f".ottla/repartition/{topic}-to-{new}", spark)
        old = topics.existing(admin, topic)
        journal = repartitioning.opened(
            admin, old, new, place, partition_count=partitions, by=by.value, isolation=isolation.value
        )
        if topics.stamps_arrival(admin, new):
            tell(
                f"topic {new!r} gives records the time at which they arrive (message.timestamp.type=LogAppendTime, as "
                f"{topic!r} has it): the copies do not keep theirs"
            )
        copy = repartitioning.Copy(spark, bootstrap, admin, journal, place, wait=wait)
        # After the session, since Spark takes the interrupt for itself.
        with _until_interrupted() if follow else nullcontext() as is_to_end:
            lag = _rounds(copy, is_to_end, lag_max=lag_max, step_records=step_records, wait=wait)
        moves, failures = _move_groups(spark, admin, copy, place, groups=groups, named=group or (), wait=wait)
    _tell_repartition(copy.journal, lag, moves, str(place), as_json=as_json)
    if failures:
        raise typer.Exit(FAILED)


# --- rounds and groups ------------------------------------------------------------------------------------


@contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Whether the end was asked for by a signal; a second one ends the command at once, and the next goes on."""
    asked = 0

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise KeyboardInterrupt

    before: dict[int, Any] = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked > 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _rounds(
    copy: Copy,
    is_to_end: Callable[[], bool] | None,
    *,
    lag_max: int,
    step_records: int,
    wait: Callable[[float], object],
) -> int:
    """Copy until little is missing, or, if there is somebody who may ask for the end, until then; returns how much."""
    from ottla.pipelines.transfer.steps import total

    copy.finish_step()
    if is_to_end is not None:
        return _follow(copy, is_to_end, step_records=step_records, wait=wait)
    rounds = 0
    while True:
        behind = copy.behind()
        if rounds and total(behind) <= lag_max:
            return total(behind)
        if rounds == ROUNDS_MAX:
            raise CommandFailed(
                f"after {rounds} rounds {total(behind)} records are still missing: they arrive faster than they are "
                "copied. Stop or slow down those who write, or give Spark more cores, and run it again"
            )
        if not behind:
            return 0
        with bar_of(f"copying {copy.journal.topic}, round {rounds + 1}", total=total(behind)) as advance:
            copy.round(behind, records_per_step=step_records, advance=advance)
        rounds += 1


def _follow(copy: Copy, is_to_end: Callable[[], bool], *, step_records: int, wait: Callable[[float], object]) -> int:
    from ottla.pipelines.transfer.steps import total

    while not is_to_end():
        behind = copy.behind()
        if not behind:
            wait(FOLLOW_SECONDS)
            continue
        with bar_of(f"following {copy.journal.topic}", total=total(behind)) as advance:
            copy.round(behind, records_per_step=step_records, advance=advance, is_to_end=is_to_end)
    return total(copy.behind())


def _move_groups(
    spark: SparkSession,
    admin: Admin,
    copy: Copy,
    place: Directory,
    *,
    groups: bool,
    named: Sequence[str],
    wait: Callable[[float], object],
) -> tuple[list[Move], int]:
    """Put groups where they belong in the new topic; returns their moves and how many could not be moved."""
    from ottla.pipelines.transfer import positions, repartitioning, topics

    old, new = copy.journal.topic, topics.existing(admin, copy.journal.new_topic)
    chosen = sorted({*named, *(positions.groups_of(admin, old) if groups else ())})
    if not chosen:
        return [], 0
    ends = topics.settled_ends(admin, new, wait=wait)
    offset_map = repartitioning.offset_map(spark, place)
    moves, failures = [], 0
    for group in chosen:
        try:
            move = positions.move_group(admin, offset_map, group, old=old, new=new.name, new_ends=ends)
            moves.append(move)
        except OttlaError as e:
            tell(f"group {group} was not moved: {explained(e)}")
            failures += 1
    return moves, failures


# --- the summary -----------------------------------------------------------------------------------------


def _tell_repartition(journal: Journal, lag: int, moves: Sequence[Move], place: str, *, as_json: bool) -> None:
    if as_json:
        moved: list[dict[str, Any]] = [
            {"group": move.group, "offsets": dict(move.offsets), "repeated": move.repeated} for move in moves
        ]
        write_json(
            {
                "topic": journal.topic,
                "new_topic": journal.new_topic,
                "records": journal.rows,
                "lag": lag,
                "map": place,
                "groups": moved,
            }
        )
        return
    lines = [
        f"copied {journal.rows:,} records of topic {journal.topic} to {journal.new_topic} with "
        f"{journal.partition_count} partitions; {lag:,} have arrived since; the map of offsets is in {place}"
    ]
    lines += [f"group {move.group} was moved; it will read {move.repeated:,} records again" for move in moves]
    write_lines(lines)
