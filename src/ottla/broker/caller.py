"""Who sent a request, as far as the broker must know."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """Where something can be reached."""

    host: str
    port: int


class Caller(NamedTuple):
    """One connection, or the program that embeds the broker."""

    advertised: Address
    """What this caller is told to connect to: the address it has reached us at, unless another is set."""
    host: str = "in-process"
    client_id: str | None = None
    takes_ranges: bool = False
    """Whether responses to it may hold ranges of files in the place of records; a socket's may."""
