"""`ottla configs`: the configs of a topic or of a broker that runs; show, set, unset."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, connected
from ottla.cli.failures import MISUSED, CommandFailed
from ottla.cli.output import AsJson, write_json, write_table
from ottla.cli.sources import assignments

_SHOW_EXAMPLES = """\b
Examples:
  ottla configs show --topic orders
  ottla configs show --topic orders retention.ms
  ottla configs show --broker 1 --changed --json
"""
_SET_EXAMPLES = """\b
Examples:
  ottla configs set --topic orders retention.ms=86400000 cleanup.policy=compact,delete
  ottla configs set --broker 1 log.retention.ms=3600000
"""
_UNSET_EXAMPLES = """\b
Examples:
  ottla configs unset --topic orders retention.ms
"""

app = typer.Typer(help="Show and change the configs of a topic or a running broker.", no_args_is_help=True)

OfTopic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic whose configs they are.")]
OfBroker = Annotated[int | None, typer.Option("--broker", metavar="ID", help="The broker whose configs they are.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only ask whether the server would do it.")]


@app.command("show", epilog=_SHOW_EXAMPLES)
def show(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Only these.", show_default=False)
    ] = None,
    topic: OfTopic = None,
    broker: OfBroker = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not at its default.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the configs of a topic or a broker, and which of them are not at their defaults."""
    _check_one(topic, broker)
    with connected(bootstrap) as client, client.admin() as admin:
        entries = admin.describe_configs(topic=topic, broker=broker)
    for name in names or ():
        if name not in entries:
            raise CommandFailed(f"there is no config {name}; leave it out to see all of them")
    shown = [entries[name] for name in (names or sorted(entries)) if not (changed and entries[name].is_default)]
    if as_json:
        keys = ("name", "value", "is_default", "read_only", "sensitive")
        write_json([{key: getattr(entry, key) for key in keys} for entry in shown])
    else:
        rows = [(one.name, one.value, "default" if one.is_default else "set") for one in shown]
        write_table(("name", "value", "from"), rows)


@app.command("set", epilog=_SET_EXAMPLES)
def set_(
    given: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="The new values.", show_default=False)],
    topic: OfTopic = None,
    broker: OfBroker = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change configs, all of them or none. It takes effect at once and survives a restart."""
    _check_one(topic, broker)
    values = assignments(given, option="")
    with connected(bootstrap) as client, client.admin() as admin:
        admin.alter_configs(topic=topic, broker=broker, set=values, validate_only=dry_run)


@app.command("unset", epilog=_UNSET_EXAMPLES)
def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The configs.", show_default=False)],
    topic: OfTopic = None,
    broker: OfBroker = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Bring configs back to their defaults."""
    _check_one(topic, broker)
    with connected(bootstrap) as client, client.admin() as admin:
        admin.alter_configs(topic=topic, broker=broker, delete=names, validate_only=dry_run)


def _check_one(topic: str | None, broker: int | None) -> None:
    if (topic is None) == (broker is None):
        raise CommandFailed("say whose configs are meant: --topic TOPIC or --broker ID", MISUSED)
