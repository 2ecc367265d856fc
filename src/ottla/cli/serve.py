"""`ottla serve`: the server as a process.

Standard output gets one line, `ready HOST:PORT`, when clients may connect; everything else is logged to
standard error. What the server does is not known here.
"""

from __future__ import annotations

import errno
import logging
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from socket import gaierror
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.failures import MISUSED, CommandFailed, hush_standard_output
from ottla.cli.sources import Advertise, ConfigFile, DataDir, Listen, SetFlags, resolved
from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.broker.caller import Address
    from ottla.config import Settings

EXAMPLES = """\b
Examples:
  ottla serve
  ottla serve --data-dir /var/lib/ottla --listen 0.0.0.0:9092 --advertise broker.example:9092
  ottla serve --config ottla.toml --set num.partitions=6
  OTTLA_LISTENERS=127.0.0.1:0 ottla serve
"""

_UNBINDABLE = {
    errno.EADDRINUSE: "another program listens there: stop it, or choose another address with --listen HOST:PORT",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address: choose another with --listen HOST:PORT",
    errno.EACCES: "this user may not listen there: choose a port above 1023 with --listen HOST:PORT",
}
_UNKNOWN_HOST = "no machine of that name is known: choose another address with --listen HOST:PORT"


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class OneLine(logging.Formatter):
    """Time in UTC, level, where, what: one line each, so that a log can be searched by line."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        return " | ".join(line for line in super().format(record).splitlines() if line.strip())


def serve(
    data_dir: DataDir = None,
    listen: Listen = None,
    advertise: Advertise = None,
    config: ConfigFile = None,
    given: SetFlags = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", envvar="OTTLA_LOG_LEVEL", help="How much is logged to standard error.")
    ] = LogLevel.INFO,
) -> None:
    """Run a server until SIGTERM or SIGINT.

    Prints one line, `ready HOST:PORT`, when clients may connect. A flag beats the environment (OTTLA_ and the
    setting's name in capitals, dots as underscores), which beats the file, which beats the default.
    `ottla config list` names all settings.
    """
    settings = resolved(data_dir=data_dir, listen=listen, advertise=advertise, file=config, given=given)
    _log_to_standard_error(log_level)
    _run(settings)


def _run(settings: Settings) -> None:
    # The broker is most of what there is to import, and only this command needs it.
    from ottla.server.lifecycle import run

    try:
        run(settings, say_ready)
    except InvalidConfig as error:
        raise CommandFailed(str(error), MISUSED) from error
    except OSError as error:
        reason = _UNKNOWN_HOST if isinstance(error, gaierror) else _UNBINDABLE.get(error.errno or 0)
        if reason is None or error.filename is not None:
            raise
        addresses = ", ".join(settings.items("listeners"))
        raise CommandFailed(f"cannot listen on {addresses}: {reason}") from error


def say_ready(addresses: Sequence[Address]) -> None:
    """Tell whoever started this process that clients may connect, and where."""
    host, port = addresses[0]
    try:
        sys.stdout.write(f"ready [{host}]:{port}\n" if ":" in host else f"ready {host}:{port}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody wants to know. That is no reason not to serve.
        hush_standard_output()


def _log_to_standard_error(level: LogLevel) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logging.basicConfig(level=level.value.upper(), handlers=[handler])
