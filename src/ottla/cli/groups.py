"""`ottla groups`: list, describe, reset, delete."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Isolation, connected
from ottla.cli.failures import FAILED, MISUSED, CommandFailed, explained, tell
from ottla.cli.group_resets import parse_plan, parse_target, partitions_in, planned
from ottla.cli.moments import Moment
from ottla.cli.output import AsJson, write_json, write_lines, write_table
from ottla.clock import SystemClock
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.blocking.admin import Admin
    from ottla.client.group_admin import GroupDescription

_LIST_EXAMPLES = """\b
Examples:
  ottla groups list
  ottla groups list --long --state empty
  ottla groups list --json
"""
_DESCRIBE_EXAMPLES = """\b
Examples:
  ottla groups describe billing
  ottla groups describe billing --members
  ottla groups describe billing --isolation read_committed
  ottla groups describe billing --json | jq '.[0].lag'
"""
_RESET_EXAMPLES = """\b
Examples:
  ottla groups reset billing --to earliest --dry-run
  ottla groups reset billing --topic orders --to 2026-01-31T12:00:00Z
  ottla groups reset billing --topic orders:0,2 --to 1500
  ottla groups reset billing --to -1h
  ottla groups reset billing --shift-by -100
  ottla groups reset billing --to latest --dry-run --csv > plan.csv
  ottla groups reset billing --from-file plan.csv
"""
_DELETE_EXAMPLES = """\b
Examples:
  ottla groups delete billing
  ottla groups list --state empty | grep '^test-' | xargs ottla groups delete
"""

_PARTITION_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member", "host", "client")
_MEMBER_COLUMNS = ("group", "member", "instance", "client", "host", "partitions", "topics")

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)]
Groups = Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' names.", show_default=False)]


@app.command("list", epilog=_LIST_EXAMPLES)
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only groups in this state (stable, empty, ...); repeatable.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only groups of this kind (classic, consumer); repeatable.")
    ] = None,
    is_long: Annotated[bool, typer.Option("--long", "-l", help="Also their state and kind.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the names of all groups, a line each."""
    with connected(bootstrap) as client, client.admin() as admin:
        found = admin.list_groups(states=state or (), kinds=kind or ())
    if as_json:
        write_json([{"name": one.group, "state": one.state, "kind": one.kind} for one in found])
    elif is_long:
        write_table(("group", "state", "kind"), [(one.group, one.state, one.kind) for one in found])
    else:
        write_lines(one.group for one in found)


@app.command("describe", epilog=_DESCRIBE_EXAMPLES)
def describe(
    groups: Groups,
    members: Annotated[bool, typer.Option("--members", help="Show the members instead of the partitions.")] = False,
    isolation: Annotated[
        Isolation,
        typer.Option("--isolation", help="read_committed: a partition ends where the first open transaction begins."),
    ] = Isolation.READ_UNCOMMITTED,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show how far groups are: position, end and lag of every partition, and who reads it."""
    found: list[dict[str, Any]] = []
    with connected(bootstrap) as client, client.admin() as admin:
        failures = _each(groups, lambda name: found.append(_described(admin, name, isolation)))
    if as_json:
        write_json(found)
    elif found and members:
        write_table(_MEMBER_COLUMNS, [_member_row(one["name"], member) for one in found for member in one["members"]])
    elif found:
        write_table(("group", "state", *_PARTITION_COLUMNS), [row for one in found for row in _partition_rows(one)])
    _end(failures)


@app.command("reset", epilog=_RESET_EXAMPLES)
def reset(
    group: Group,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, an offset, -N for N records before the end, a time (ISO 8601, UTC unless it says "
            "otherwise, or milliseconds since 1970), or how long ago (-10m; ms, s, m, h, d, w; or PT10M).",
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="So many records on, or back if negative.")
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from-file", metavar="FILE", help="Lines of topic,partition,offset; - is standard input."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:N,N]",
            help="Only this topic, or these partitions of it; repeatable. Otherwise all that the group has read.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print topic,partition,offset, for --from-file.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set where a group goes on, and show it. The group must have no members: they would not notice.

    An offset that a partition does not have is brought to the nearest that it has. --dry-run changes nothing.
    """
    if sum(given is not None for given in (to, shift_by, from_file)) != 1:
        raise CommandFailed("say where to: one of --to, --shift-by and --from-file", MISUSED)
    if from_file is not None and topic:
        raise CommandFailed("--from-file names the topics itself: leave out --topic", MISUSED)
    if as_csv and as_json:
        raise CommandFailed("--csv and --json both say what is printed: leave one of them out", MISUSED)
    target = _target(group, to=to, from_file=from_file)
    with connected(bootstrap) as client, client.admin() as admin:
        _refuse_members(admin.describe_group(group))
        committed = {key: one.offset for key, one in admin.group_offsets(group).items()}
        if isinstance(target, dict):
            partitions = list(target)
        else:
            partitions = partitions_in(admin, topic or (), committed, group)
        steps = planned(admin, partitions, committed, target, shift=shift_by)
        for step in steps:
            if step.clamped_from is not None:
                place = f"{step.topic}-{step.partition}"
                tell(f"{place} has no offset {step.clamped_from}; {step.after} is the nearest that it has")
        if not dry_run:
            admin.alter_group_offsets(group, {(step.topic, step.partition): step.after for step in steps})
    if as_csv:
        write_lines(f"{step.topic},{step.partition},{step.after}" for step in steps)
    elif as_json:
        keys = ("topic", "partition", "before", "after")
        write_json([{key: getattr(step, key) for key in keys} for step in steps])
    else:
        write_table(
            ("topic", "partition", "before", "after"),
            [(step.topic, step.partition, step.before, step.after) for step in steps],
        )


@app.command("delete", epilog=_DELETE_EXAMPLES)
def delete(
    groups: Groups,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not mind one that is not there.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups with all their positions. They must have no members."""
    from ottla.client.errors_by_code import error_class
    from ottla.error_codes import ErrorCode

    not_there = error_class(ErrorCode.GROUP_ID_NOT_FOUND)
    with connected(bootstrap) as client, client.admin() as admin:

        def work(name: str) -> None:
            try:
                admin.delete_group(name)
            except not_there:
                if not if_exists:
                    raise CommandFailed(f"there is no group {name}") from None

        failures = _each(groups, work)
    _end(failures)


def _each(names: Sequence[str], work: Callable[[str], None]) -> int:
    """Do it for every name, whatever becomes of the others; returns the exit code."""
    code = 0
    for name in names:
        try:
            work(name)
        except (OttlaError, CommandFailed) as error:
            message = explained(error) if isinstance(error, OttlaError) else str(error)
            tell(f"{name}: {message}" if len(names) > 1 else message)
            code = code or (MISUSED if isinstance(error, ValueError) else FAILED)
    return code


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)


def _described(admin: Admin, name: str, isolation: Isolation) -> dict[str, Any]:
    group = admin.describe_group(name)
    if group is None:
        raise CommandFailed(f"there is no group {name}")
    readers = {key: member for member in group.members for key in member.partitions}
    lags = admin.group_lag(name, isolation=isolation.value)
    known = [one.lag for one in lags.values() if one.lag is not None]
    return {
        "name": group.group,
        "kind": group.kind,
        "state": group.state,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "lag": sum(known) if known else None,
        "members": [
            {
                "id": one.member_id,
                "instance": one.instance_id,
                "client": one.client_id,
                "host": one.host,
                "topics": one.topics,
                "pattern": one.pattern,
                "partitions": [{"topic": key.topic, "partition": key.partition} for key in one.partitions],
            }
            for one in group.members
        ],
        "partitions": [
            {
                "topic": key.topic,
                "partition": key.partition,
                "committed": None if one.committed is None else one.committed.offset,
                "metadata": None if one.committed is None else one.committed.metadata,
                "start": one.start,
                "end": one.end,
                "lag": one.lag,
                "member": readers[key].member_id if key in readers else None,
                "host": readers[key].host if key in readers else None,
                "client": readers[key].client_id if key in readers else None,
            }
            for key, one in lags.items()
        ],
    }


def _partition_rows(one: dict[str, Any]) -> list[tuple[str | int | None, ...]]:
    keys = _PARTITION_COLUMNS
    rows: list[tuple[str | int | None, ...]] = [
        (one["name"], one["state"], *(part[key] for key in keys)) for part in one["partitions"]
    ]
    return rows or [(one["name"], one["state"], *(None for _ in keys))]


def _member_row(name: str, member: dict[str, Any]) -> tuple[str | int | None, ...]:
    by_topic: dict[str, list[str]] = {}
    for part in member["partitions"]:
        by_topic.setdefault(part["topic"], []).append(str(part["partition"]))
    partitions = " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())
    topics = ",".join(member["topics"]) or member["pattern"]
    return name, member["id"], member["instance"], member["client"], member["host"], partitions, topics


def _refuse_members(described: GroupDescription | None) -> None:
    if described is not None and described.has_members:
        count = len(described.members)
        raise CommandFailed(
            f"group {described.group} is {described.state} with {count} member(s), who would not notice a reset; "
            "stop them and try again"
        )


def _target(group: str, *, to: str | None, from_file: str | None) -> Moment | dict[tuple[str, int], int]:
    """Where to, before any server is asked."""
    if from_file is not None:
        return parse_plan(_lines(from_file), group)
    try:
        return parse_target(to or "end", now_ms=SystemClock().now_ms())
    except ValueError as error:
        raise CommandFailed(f"--to: {error}", MISUSED) from error


def _lines(name: str) -> list[str]:
    text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    return text.splitlines()
