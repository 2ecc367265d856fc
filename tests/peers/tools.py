"""Run the programs in Apache Kafka's jars: its command-line tools, and a broker of its own.

Knows how to start Java and how to end what it started; what the programs are asked is the tests' business.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers import class_archive

TOOL_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60

# Programs that run for a second or two: start quickly, stay small.
_SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def archive(java: Path, jars: Path) -> Path:
    """Where the archive of Kafka's classes is, if it has been made."""
    return class_archive.place("kafka", java=java, jars=jars)


class Tools:
    """Kafka's programs on this machine."""

    def __init__(self, java: Path, jars: Path) -> None:
        self._java = java
        self._jars = jars
        self._classes = class_archive.options(archive(java, jars))

    def command(self, main: str, *arguments: str) -> list[str]:
        return [str(self._java), *_SMALL, *self._classes, "-cp", f"{self._jars}/*", main, *arguments]

    def run(self, main: str, *arguments: str, text: str = "") -> str:
        """What a program prints, complaints last, when it is given `text` to read; it must end well."""
        finished = subprocess.run(
            self.command(main, *arguments),
            input=text,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS_MAX,
            check=False,
        )
        assert finished.returncode == 0, f"{main} {arguments}: {finished.stdout[-2000:]}{finished.stderr[-2000:]}"
        # Java itself mentions options that it finds in the environment.
        complaints = [line for line in finished.stderr.splitlines() if not line.startswith("Picked up ")]
        return finished.stdout + "".join(f"{line}\n" for line in complaints)

    @contextmanager
    def background(self, main: str, *arguments: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs until the block ends, and has ended in order when this returns."""
        with open(output, "wb") as sink:
            process = subprocess.Popen(self.command(main, *arguments), stdout=sink, stderr=subprocess.STDOUT)
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS_MAX)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
