"""Kafka's TransactionsCommand against a server: what it prints, as rows."""

from __future__ import annotations

from tests.clients.server_process import ServerProcess
from tests.peers.tools import Tools

MAIN = "org.apache.kafka.tools.TransactionsCommand"


class TransactionsCommand:
    """The tool, told which server to use."""

    def __init__(self, tools: Tools, server: ServerProcess) -> None:
        self._tools = tools
        self._server = server

    def run(self, *arguments: str) -> str:
        """What it prints; it must end well."""
        return self._tools.run(MAIN, "--bootstrap-server", self._server.address, *arguments)

    def rows(self, *arguments: str) -> list[dict[str, str]]:
        """The table that it prints, by the names of its columns."""
        lines = [line.split("\t") for line in self.run(*arguments).splitlines() if "\t" in line]
        if not lines:
            return []
        names = [name.strip() for name in lines[0]]
        return [dict(zip(names, (cell.strip() for cell in line), strict=False)) for line in lines[1:]]
