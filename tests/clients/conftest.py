"""The servers that real clients talk to."""

from __future__ import annotations

from tests.clients.server_process import make_server, ottla_server

__all__ = ["make_server", "ottla_server"]
