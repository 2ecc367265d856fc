"""`ottla config`: the settings that a server started here and now would have, and what each of them means.

Talks to no server; `ottla configs` is for one that runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli.failures import MISUSED, CommandFailed
from ottla.cli.output import AsJson, write_json, write_lines, write_table
from ottla.cli.sources import Advertise, ConfigFile, DataDir, Listen, SetFlags, resolved
from ottla.config import Kind, Resolved, Scope, Setting, Source, Table, variable_of
from ottla.errors import InvalidConfig
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.topic_configs import TOPIC_CONFIGS

_SHOW_EXAMPLES = """\b
Examples:
  ottla config show
  ottla config show --config ottla.toml --set num.partitions=6 --changed
"""
_LIST_EXAMPLES = """\b
Examples:
  ottla config list
  ottla config list --topic --json
"""
_HELP_EXAMPLES = """\b
Examples:
  ottla config help num.partitions
  ottla config help retention.ms
"""

app = typer.Typer(help="Settings of a server: their values here, and what they mean.", no_args_is_help=True)


@app.command("show", epilog=_SHOW_EXAMPLES)
def show(
    data_dir: DataDir = None,
    listen: Listen = None,
    advertise: Advertise = None,
    config: ConfigFile = None,
    given: SetFlags = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not at its default.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print each setting that `ottla serve` would have with the same flags, and where it came from."""
    settings = resolved(data_dir=data_dir, listen=listen, advertise=advertise, file=config, given=given)
    shown = [one for one in settings if not changed or one.source is not Source.DEFAULT]
    if as_json:
        write_json([_resolved_json(one) for one in shown])
    else:
        write_table(("name", "value", "from"), [(one.setting.name, one.text, _origin(one)) for one in shown])


@app.command("list", epilog=_LIST_EXAMPLES)
def list_(
    topic: Annotated[bool, typer.Option("--topic", help="The configs of topics instead of the broker's.")] = False,
    as_json: AsJson = False,
) -> None:
    """List every setting with its type, its default and its meaning."""
    table = TOPIC_CONFIGS if topic else BROKER_CONFIGS
    if as_json:
        write_json([_setting_json(setting) for setting in table])
    else:
        columns = ("name", "type", "default", "meaning")
        rows = [(one.name, one.kind.name.lower(), one.format(one.default), one.help) for one in table]
        write_table(columns, rows)


@app.command("help", epilog=_HELP_EXAMPLES)
def help_(name: Annotated[str, typer.Argument(metavar="NAME", help="The setting.", show_default=False)]) -> None:
    """Explain one setting, of a broker or a topic."""
    found = [(table, table.find(name)) for table in (BROKER_CONFIGS, TOPIC_CONFIGS) if name in table.names()]
    if not found:
        _refuse(name)
    for number, (table, setting) in enumerate(found):
        if number:
            write_lines([""])
        write_lines(_explained(table, setting))


def _refuse(name: str) -> None:
    """Name the nearest setting of either table."""
    every = Table(
        "setting", {setting.name: setting for table in (TOPIC_CONFIGS, BROKER_CONFIGS) for setting in table}.values()
    )
    try:
        every.find(name)
    except InvalidConfig as error:
        raise CommandFailed(str(error), MISUSED) from error


def _explained(table: Table, setting: Setting) -> list[str]:
    is_topic = table is TOPIC_CONFIGS
    lines = [f"{setting.name} ({table.title}, {setting.kind.name.lower()})", f"  {setting.help}"]
    default = setting.format(setting.default)
    if setting.default_from:
        lines.append(f"  default: the broker's {setting.default_from}, {default} unless set")
    else:
        lines.append(f"  default: {'none' if default is None else default or 'empty'}")
    if setting.allowed():
        lines.append(f"  values: {setting.allowed()}")
    lines += [f"  also: {synonym.name}" for synonym in setting.synonyms]
    if is_topic:
        lines.append(f"  set it: ottla configs set --topic TOPIC {setting.name}=VALUE")
    else:
        lines.append(f"  set it: --set {setting.name}=VALUE, or {variable_of(setting.name)} in the environment")
        if setting.scope is Scope.READ_ONLY:
            lines.append("  a change takes a restart")
        else:
            lines.append(f"  can be changed while the broker runs: ottla configs set --broker ID {setting.name}=VALUE")
    return lines


def _origin(one: Resolved) -> str:
    if one.source is Source.DEFAULT or one.given_as == one.setting.name:
        return one.source.value
    return f"{one.source.value} ({one.given_as})"


def _resolved_json(one: Resolved) -> dict[str, object]:
    value = one.text if one.setting.sensitive or one.setting.kind is Kind.PASSWORD else one.value
    return {"name": one.setting.name, "value": value, "source": one.source.value, "given_as": one.given_as}


def _setting_json(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "type": setting.kind.name.lower(),
        "default": setting.default,
        "values": setting.allowed(),
        "changes": "while running" if setting.default_from or setting.scope is not Scope.READ_ONLY else "at a start",
        "also": [synonym.name for synonym in setting.synonyms],
        "meaning": setting.help,
    }
