"""An archive of the classes that Apache Kafka's broker and its command-line tools need, so that they start quickly.

`tests.peers.tools` uses it where it is there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.client.kafka_server import kafka_server
from tests.peers import class_archive, kafka
from tests.peers.tools import Tools, archive

BROKER = "kafka.Kafka"
_ANNOUNCEMENT = "Noting which classes Kafka needs, so that it starts quickly, once."


def bring(say: Callable[[str], None]) -> None:
    """Make the archive if it is not there."""
    java, jars = kafka.java(), kafka.jars(say)
    wanted = archive(java, jars)
    if wanted.is_file():
        return
    say(_ANNOUNCEMENT)
    class_archive.bring(wanted, lambda options: _train(_Noting(java, jars, options)))


def _train(tools: Tools) -> None:
    """A broker, and a tool that it answers."""
    with tempfile.TemporaryDirectory() as scratch, kafka_server(tools, Path(scratch)) as address:
        asked = ("--bootstrap-server", address, "--create", "--topic", "training")
        tools.run("org.apache.kafka.tools.TopicCommand", *asked)


class _Noting(Tools):
    """The same programs; the broker's JVM writes down what it has loaded."""

    def __init__(self, java: Path, jars: Path, options: list[str]) -> None:
        super().__init__(java, jars)
        self._options = options

    def command(self, main: str, *arguments: str) -> list[str]:
        java, *rest = super().command(main, *arguments)
        return [java, *self._options, *rest] if main == BROKER else [java, *rest]
