"""Kafka's programs, started in half the time: the first short one leaves its loaded classes for all that follow.

Java calls this an archive of shared classes. One that does not fit, or is not there, is passed over by Java itself.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.peers.tools import Tools


class QuickTools(Tools):
    """The same programs; the archive is shared by all processes of a test run."""

    def __init__(self, java: Path, jars: Path, directory: Path) -> None:
        super().__init__(java, jars)
        self._archive = directory / "kafka.jsa"
        self._claim = directory / "kafka.jsa.claimed"

    def command(self, main: str, *arguments: str) -> list[str]:
        java, *rest = super().command(main, *arguments)
        # Java tells of archives that it does not like where the program writes, too.
        return (
            [java, "-Xlog:disable", f"-XX:SharedArchiveFile={self._archive}", *rest] if self.is_ready else [java, *rest]
        )

    @property
    def is_ready(self) -> bool:
        return self._archive.exists()

    def run(self, main: str, *arguments: str, text: str = "") -> str:
        if self.is_ready or not self._may_make():
            return super().run(main, *arguments, text=text)
        making = _Making(self, self._archive.with_suffix(".partial"))
        told = making.run(main, *arguments, text=text)
        making.finish(self._archive)
        return told

    def _may_make(self) -> bool:
        """One process of a test run makes it, once; the others do not wait for that."""
        try:
            os.close(os.open(self._claim, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class _Making(Tools):
    """Runs one program that writes the archive when it ends."""

    def __init__(self, tools: QuickTools, target: Path) -> None:
        super().__init__(tools._java, tools._jars)
        self._target = target

    def command(self, main: str, *arguments: str) -> list[str]:
        java, *rest = super().command(main, *arguments)
        return [java, "-Xlog:disable", f"-XX:ArchiveClassesAtExit={self._target}", *rest]

    def finish(self, archive: Path) -> None:
        if self._target.exists():
            self._target.rename(archive)
