"""`ottla topics`: list, create, describe, delete, add partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, connected
from ottla.cli.failures import FAILED, explained, tell
from ottla.cli.output import AsJson, write_json, write_lines, write_table
from ottla.cli.progress import progress
from ottla.cli.sources import assignments
from ottla.errors import OttlaError, TopicNotFound

if TYPE_CHECKING:
    from ottla.client.admin import TopicDescription
    from ottla.client.blocking.admin import Admin

_LIST_EXAMPLES = """\b
Examples:
  ottla topics list
  ottla topics list --json
"""
_CREATE_EXAMPLES = """\b
Examples:
  ottla topics create orders --partitions 6
  ottla topics create users --config cleanup.policy=compact --config segment.ms=3600000
"""
_DESCRIBE_EXAMPLES = """\b
Examples:
  ottla topics describe orders
  ottla topics describe orders --json
"""
_DELETE_EXAMPLES = """\b
Examples:
  ottla topics delete orders
  ottla topics list | grep '^test-' | xargs ottla topics delete
"""
_ADD_EXAMPLES = """\b
Examples:
  ottla topics add-partitions orders 12
"""

app = typer.Typer(help="List, create, describe, delete topics; add partitions.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.", show_default=False)]


@app.command("list", epilog=_LIST_EXAMPLES)
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Also those that the cluster made for itself.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the names of all topics, a line each."""
    with connected(bootstrap) as client, client.admin() as admin:
        names = admin.list_topics(internal=internal)
    if as_json:
        write_json([{"name": name} for name in names])
    else:
        write_lines(names)


@app.command("create", epilog=_CREATE_EXAMPLES)
def create(
    topics: Topics,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="How many; the server's default if not given.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", help="How many copies; the server's default if not given.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="A config of the topic; repeatable.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Leave one alone that is there.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create topics; done when they can be used."""
    configs = assignments(config or (), option="--config")
    made: list[TopicDescription] = []
    with connected(bootstrap) as client, client.admin() as admin:
        create_one = admin.get_or_create_topic if if_not_exists else admin.create_topic

        def work(name: str) -> None:
            made.append(create_one(name, partitions=partitions, replication_factor=replication_factor, configs=configs))

        failures = _each("creating", topics, work)
    if as_json:
        write_json([{"name": one.name, "id": _id(one), "partitions": one.partition_count} for one in made])
    _end(failures)


@app.command("describe", epilog=_DESCRIBE_EXAMPLES)
def describe(topics: Topics, as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the partitions of topics: who holds them, where they begin and end."""
    found: list[dict[str, Any]] = []
    with connected(bootstrap) as client, client.admin() as admin:
        failures = _each("describing", topics, lambda name: found.append(_described(admin, name)))
    if as_json:
        write_json(found)
    elif found:
        columns = ("topic", "partition", "leader", "replicas", "in-sync", "start", "end")
        write_table(columns, [_row(topic["name"], one) for topic in found for one in topic["partitions"]])
    _end(failures)


@app.command("delete", epilog=_DELETE_EXAMPLES)
def delete(
    topics: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not mind one that is not there.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with all their records."""
    with connected(bootstrap) as client, client.admin() as admin:

        def work(name: str) -> None:
            try:
                admin.delete_topic(name)
            except TopicNotFound:
                if not if_exists:
                    raise

        failures = _each("deleting", topics, work)
    _end(failures)


@app.command("add-partitions", epilog=_ADD_EXAMPLES)
def add_partitions(
    topic: Topic,
    total: Annotated[
        int, typer.Argument(metavar="TOTAL", help="How many it shall have; more than it has.", show_default=False)
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Bring a topic to a larger number of partitions. Keys may go to other partitions than before."""
    with connected(bootstrap) as client, client.admin() as admin:
        admin.add_partitions(topic, new_total=total)


def _each(doing: str, names: list[str], work: Callable[[str], None]) -> int:
    """Do it for every name, whatever becomes of the others; returns how many failed."""
    failures = 0
    with progress(doing, total=len(names)) as advance:
        for name in names:
            try:
                work(name)
            except OttlaError as error:
                tell(f"{name}: {explained(error)}" if len(names) > 1 else explained(error))
                failures += 1
            advance(1)
    return failures


def _end(failures: int) -> None:
    if failures:
        raise typer.Exit(FAILED)


def _described(admin: Admin, name: str) -> dict[str, Any]:
    from ottla.client.values import OffsetSpec, TopicPartition

    topic = admin.describe_topic(name)
    if topic is None:
        raise TopicNotFound(name)
    # One without a leader cannot be asked; the others can.
    led = [TopicPartition(name, one.partition) for one in topic.partitions if one.leader is not None]
    starts = admin.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST))

    def offset(found: Any) -> int | None:
        return None if found is None else int(found.offset)

    return {
        "name": topic.name,
        "id": _id(topic),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "start": offset(starts.get(TopicPartition(name, one.partition))),
                "end": offset(ends.get(TopicPartition(name, one.partition))),
            }
            for one in topic.partitions
        ],
    }


def _id(topic: TopicDescription) -> str | None:
    return str(UUID(bytes=bytes(topic.topic_id))) if any(topic.topic_id) else None


def _row(name: str, one: dict[str, Any]) -> tuple[str | int | None, ...]:
    replicas, in_sync = (",".join(map(str, one[field])) for field in ("replicas", "in_sync"))
    return name, one["partition"], one["leader"], replicas, in_sync, one["start"], one["end"]
