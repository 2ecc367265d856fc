"""Where `serve` and `config` find the settings: a TOML file, the environment, flags."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli.failures import MISUSED, CommandFailed, explained
from ottla.config import Settings
from ottla.errors import InvalidConfig
from ottla.metadata.broker_configs import BROKER_CONFIGS

OTHER_VARIABLES = frozenset(
    {"OTTLA_BOOTSTRAP", "OTTLA_CONFIG", "OTTLA_KERNEL", "OTTLA_KERNEL_CFLAGS", "OTTLA_LOG_LEVEL"}
)
"""Variables that begin as a setting's does and are none."""

DataDir = Annotated[
    str | None, typer.Option("--data-dir", metavar="DIR", help="The data directory. Sets log.dir.", show_default=False)
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen", metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one. Sets listeners."
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        "--advertise", metavar="HOST:PORT", help="The address that clients are told. Sets advertised.listeners."
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", envvar="OTTLA_CONFIG", help="A TOML file with settings.")
]
SetFlags = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting by its name; may be given more than once."),
]


def resolved(
    *, data_dir: str | None, listen: str | None, advertise: str | None, file: Path | None, given: Sequence[str] | None
) -> Settings:
    """Every setting of a broker with its value and where that stood; CommandFailed for what cannot be."""
    flags = assignments(given or (), option="--set")
    for option, name, value in (
        ("--data-dir", "log.dir", data_dir),
        ("--listen", "listeners", listen),
        ("--advertise", "advertised.listeners", advertise),
    ):
        if value is None:
            continue
        if name in flags:
            raise CommandFailed(f"{option} and --set {name} say the same thing: leave one of them out", MISUSED)
        flags[name] = value
    try:
        return Settings.resolve(
            BROKER_CONFIGS,
            file=_document(file),
            environment=os.environ,
            flags=flags,
            other_variables=OTHER_VARIABLES,
        )
    except InvalidConfig as error:
        raise CommandFailed(str(error), MISUSED) from error


def assignments(given: Sequence[str], *, option: str) -> dict[str, str]:
    """`name=value` texts as a mapping, each name once."""
    found: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator or not name:
            raise CommandFailed(f"{option} {text}: write NAME=VALUE".lstrip(), MISUSED)
        if name in found:
            raise CommandFailed(f"{option} {name} is given twice: leave one of them out".lstrip(), MISUSED)
        found[name] = value
    return found


def _document(file: Path | None) -> Mapping[str, Any] | None:
    if file is None:
        return None
    # Only those who have a file pay for the parser.
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandFailed(f"--config {explained(error)}", MISUSED) from error
    except ValueError as error:
        raise CommandFailed(f"--config {file}: {error}; TOML is expected", MISUSED) from error
