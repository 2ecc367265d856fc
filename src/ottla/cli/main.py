"""All commands in one place, and what becomes of the errors that they raise.

The modules of the nouns import no client and no broker when they are imported: `serve` must be ready in a
fraction of a second, and every other command should feel as if it were.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ottla import __version__
from ottla.cli import (
    cluster,
    config,
    configs,
    consume,
    groups,
    pipeline,
    produce,
    repartition,
    serve,
    table,
    topics,
    transactions,
    transfer,
)
from ottla.cli.failures import CommandFailed, hush_standard_output, report
from ottla.errors import OttlaError

SHOW_CURSOR = "\x1b[?25h"
"""A progress bar hides it."""


class Commands(TyperGroup):
    """The commands, with one ending for all of them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            # Now, so that a reader who has gone is noticed here and not at the exit of the interpreter.
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever reads our output has had enough (`ottla consume orders | head`): nothing went wrong.
            hush_standard_output()
            raise typer.Exit(0) from None
        except (CommandFailed, OttlaError, OSError) as error:
            raise typer.Exit(report(error)) from None
        return result


app = typer.Typer(
    name="ottla",
    cls=Commands,
    help="Ottla: a Kafka-compatible event-streaming platform. Run the server, and talk to one.",
    epilog="Commands that talk to a server take --bootstrap HOST:PORT, or OTTLA_BOOTSTRAP from the environment.",
    no_args_is_help=True,
    add_completion=False,
    # Plain text: it can be piped, it needs no width, and its errors are short.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("produce", epilog=produce.EXAMPLES)(produce.produce)
app.command("consume", epilog=consume.EXAMPLES)(consume.consume)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.command("cluster", epilog=cluster.EXAMPLES)(cluster.cluster)
app.add_typer(config.app, name="config")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(table.app, name="table")
app.command("export", epilog=transfer.EXPORT_EXAMPLES)(transfer.export)
app.command("import", epilog=transfer.IMPORT_EXAMPLES)(transfer.import_)
app.command("repartition", epilog=repartition.EXAMPLES)(repartition.repartition)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ottla {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """What stands before the command's name."""


def run() -> None:
    """The program `ottla`."""
    _open_missing_streams()
    # Whoever starts a program with interrupts ignored means it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
    app(prog_name="ottla")


def _end_at_once(number: int, frame: object) -> None:
    """An interrupt ends a command where it stands, and does not wait for a server that may never answer.

    The program ends by the signal itself, so that a shell knows why. `serve` has a handler of its own.
    """
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)
        sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _open_missing_streams() -> None:
    """Put the null device where a standard stream was closed, or the next file to be opened would take its number."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - open as long as the program
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
