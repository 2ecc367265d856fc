"""`ottla transactions`: list, describe, abort."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, connected
from ottla.cli.failures import FAILED, MISUSED, CommandFailed, explained, tell
from ottla.cli.moments import parse_duration_ms
from ottla.cli.output import AsJson, Cell, write_json, write_lines, write_table
from ottla.clock import SystemClock
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.blocking.admin import Admin
    from ottla.client.transaction_admin import ProducerDescription, TransactionDescription

_LIST_EXAMPLES = """\b
Examples:
  ottla transactions list
  ottla transactions list --long --state ongoing
  ottla transactions list --older-than 10m
  ottla transactions list --pattern 'billing-.*' --json
"""
_DESCRIBE_EXAMPLES = """\b
Examples:
  ottla transactions describe billing-1
  ottla transactions describe billing-1 billing-2 --json
  ottla transactions describe --topic orders --partition 0
"""
_ABORT_EXAMPLES = """\b
Examples:
  ottla transactions abort billing-1
  ottla transactions list --older-than 1h | xargs ottla transactions abort
  ottla transactions abort --topic orders --partition 0 --start-offset 1500
"""

_COLUMNS = ("id", "state", "producer", "epoch", "timeout", "open for", "partitions")
_PRODUCER_COLUMNS = ("producer", "epoch", "last sequence", "last write", "coordinator epoch", "open since offset")
IS_OPEN = frozenset({"Ongoing", "PrepareAbort"})
"""The states in which an abort has something to abort."""

app = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The transactional ids.", show_default=False)]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic of a partition.")]
Partition = Annotated[int | None, typer.Option("--partition", min=0, metavar="N", help="A partition of the topic.")]


@app.command("list", epilog=_LIST_EXAMPLES)
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only those in this state (ongoing, completecommit, ...); repeatable."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="N", help="Only this producer's; repeatable.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="Only those that are open for longer (10m; ms, s, m, h, d, w)."
        ),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="Only ids that match this as a whole.")
    ] = None,
    is_long: Annotated[bool, typer.Option("--long", "-l", help="Also their state, producer and coordinator.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the transactional ids of the cluster, a line each."""
    older_than_ms = None if older_than is None else _duration_ms(older_than)
    with connected(bootstrap) as client, client.admin() as admin:
        found = admin.list_transactions(
            states=state or (), producer_ids=producer_id or (), older_than_ms=older_than_ms, pattern=pattern
        )
    if as_json:
        write_json(
            [
                {
                    "id": one.transactional_id,
                    "state": one.state,
                    "producer_id": one.producer_id,
                    "coordinator": one.coordinator,
                }
                for one in found
            ]
        )
    elif is_long:
        write_table(
            ("id", "state", "producer", "coordinator"),
            [(one.transactional_id, one.state, one.producer_id, one.coordinator) for one in found],
        )
    else:
        write_lines(one.transactional_id for one in found)


@app.command("describe", epilog=_DESCRIBE_EXAMPLES)
def describe(
    ids: Ids = None,
    topic: Topic = None,
    partition: Partition = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show what is known of transactional ids, or, with --topic and --partition, who writes to a partition.

    A producer of a partition whose transaction no coordinator knows of hangs: nobody who reads only what is committed
    gets past the offset at which it began. `abort` with that offset ends it.
    """
    place = _place(ids, topic, partition)
    with connected(bootstrap) as client, client.admin() as admin:
        if place is not None:
            producers = admin.describe_producers([place])
            _show_producers([one for found in producers.values() for one in found], as_json=as_json)
            return
        found: list[TransactionDescription] = []
        code = 0
        for name in ids or ():
            one = admin.describe_transaction(name)
            if one is None:
                tell(f"nothing is known of transactional id {name}")
                code = FAILED
            else:
                found.append(one)
    _show(found, as_json=as_json)
    if code:
        raise typer.Exit(code)


@app.command("abort", epilog=_ABORT_EXAMPLES)
def abort(
    ids: Ids = None,
    topic: Topic = None,
    partition: Partition = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, metavar="N", help="Where the transaction begins in the partition."),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort what transactional ids have open, and fence their producers, which have to start anew.

    With --topic, --partition and --start-offset, abort one that hangs in a partition, whoever began it.
    """
    place = _place(ids, topic, partition)
    if (place is None) != (start_offset is None):
        raise CommandFailed("--topic, --partition and --start-offset go together", MISUSED)
    with connected(bootstrap) as client, client.admin() as admin:
        if place is not None and start_offset is not None:
            gone = admin.abort_hanging(*place, start_offset=start_offset)
            _tell_hanging(place, start_offset, gone, as_json=as_json)
            return
        code = _abort_each(admin, ids or [], as_json=as_json)
    if code:
        raise typer.Exit(code)


def _abort_each(admin: Admin, ids: list[str], *, as_json: bool) -> int:
    """Whatever becomes of the others."""
    code = 0
    done: list[dict[str, Any]] = []
    for name in ids:
        try:
            before = admin.abort_transaction(name)
        except OttlaError as error:
            tell(f"{name}: {explained(error)}" if len(ids) > 1 else explained(error))
            code = FAILED
            continue
        was_open = before.state in IS_OPEN
        done.append(
            {
                "id": name,
                "aborted": was_open,
                "state_before": before.state,
                "producer_id": before.producer_id,
                "producer_epoch": before.producer_epoch,
                "partitions": _places(before),
            }
        )
        if not as_json:
            what = (
                f"aborted in {len(before.partitions)} partition(s)" if was_open else f"had none open ({before.state})"
            )
            write_lines([f"{name}: {what}; producer {before.producer_id} is fenced at epoch {before.producer_epoch}"])
    if as_json:
        write_json(done)
    return code


def _tell_hanging(place: tuple[str, int], start_offset: int, gone: ProducerDescription, *, as_json: bool) -> None:
    topic, partition = place
    if as_json:
        write_json(
            {
                "topic": topic,
                "partition": partition,
                "start_offset": start_offset,
                "producer_id": gone.producer_id,
                "producer_epoch": gone.producer_epoch,
            }
        )
        return
    whose = f"producer {gone.producer_id}, epoch {gone.producer_epoch}"
    write_lines([f"{topic}-{partition}: aborted the transaction of {whose}, open since offset {start_offset}"])


def _show(found: list[TransactionDescription], *, as_json: bool) -> None:
    now_ms = SystemClock().now_ms()
    if as_json:
        write_json(
            [
                {
                    "id": one.transactional_id,
                    "state": one.state,
                    "producer_id": one.producer_id,
                    "producer_epoch": one.producer_epoch,
                    "timeout_ms": one.timeout_ms,
                    "started_ms": one.started_ms,
                    "partitions": _places(one),
                }
                for one in found
            ]
        )
    elif found:
        write_table(_COLUMNS, [_row(one, now_ms) for one in found])


def _row(one: TransactionDescription, now_ms: int) -> tuple[Cell, ...]:
    by_topic: dict[str, list[str]] = {}
    for topic, partition in one.partitions:
        by_topic.setdefault(topic, []).append(str(partition))
    return (
        one.transactional_id,
        one.state,
        one.producer_id,
        one.producer_epoch,
        _seconds(one.timeout_ms),
        None if one.started_ms is None else _seconds(max(0, now_ms - one.started_ms)),
        " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()),
    )


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g}s"


def _places(one: TransactionDescription) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in one.partitions]


def _show_producers(found: list[ProducerDescription], *, as_json: bool) -> None:
    if as_json:
        write_json(
            [
                {
                    "producer_id": one.producer_id,
                    "producer_epoch": one.producer_epoch,
                    "last_sequence": one.last_sequence,
                    "last_timestamp_ms": one.last_timestamp_ms,
                    "coordinator_epoch": one.coordinator_epoch,
                    "open_since_offset": one.open_since_offset,
                }
                for one in found
            ]
        )
        return
    write_table(
        _PRODUCER_COLUMNS,
        [
            (
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                _moment(one.last_timestamp_ms),
                one.coordinator_epoch,
                one.open_since_offset,
            )
            for one in found
        ],
    )


def _moment(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        # A record's timestamp is whatever its producer says.
        return str(timestamp_ms)


def _place(ids: list[str] | None, topic: str | None, partition: int | None) -> tuple[str, int] | None:
    """The partition that was named; None: transactional ids were."""
    if (topic is None) != (partition is None):
        raise CommandFailed("--topic and --partition go together", MISUSED)
    if bool(ids) == (topic is not None):
        raise CommandFailed("name transactional ids, or a partition with --topic and --partition", MISUSED)
    return None if topic is None or partition is None else (topic, partition)


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise CommandFailed(f"--older-than: {error}", MISUSED) from error
