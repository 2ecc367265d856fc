"""How a command reaches its server, and how much of it a command sees."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ottla.client.blocking.client import Client

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
CLIENT_ID = "ottla-cli"


class Isolation(StrEnum):
    """Whether records of transactions that are not committed are read."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="OTTLA_BOOTSTRAP",
        help="A server of the cluster; several with commas.",
    ),
]


def connected(bootstrap: str) -> Client:
    """A client for one command. Nothing is sent before the first call that needs it."""
    # Here, because `serve` must not load the client.
    import ottla

    return ottla.connect(bootstrap, client_id=CLIENT_ID)
