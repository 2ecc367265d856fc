"""Apache Kafka's own jars and the Java that runs them, for tests that compare with the real thing.

Knows which jars and which Java; `maven` fetches. It knows no test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.peers import maven as fetching
from tests.peers.maven import PeerMissing as PeerMissing

KAFKA_VERSION = "4.3.0"
JAVA_VERSION_MIN = 17

_KAFKA = fetching.Peer(
    name="Kafka",
    pom=Path(__file__).with_name("pom.xml"),
    announcement=f"Fetching Apache Kafka {KAFKA_VERSION} with Maven, about 90 jars, once; this takes a minute or two.",
)
_CACHE = fetching.CACHE / f"kafka-{KAFKA_VERSION}"


def jars(say: Callable[[str], None], *, cache: Path = _CACHE, maven: str = "mvn") -> Path:
    """The directory of Kafka's jars, fetched first if it is not there yet."""
    return fetching.jars(_KAFKA, say, cache=cache, maven=maven)


def java() -> Path:
    """A Java that is new enough for Kafka's tools."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    candidates.append("java")
    for candidate in candidates:
        found = shutil.which(candidate)
        if found and _java_version(found) >= JAVA_VERSION_MIN:
            return Path(found)
    raise PeerMissing(f"no Java {JAVA_VERSION_MIN} or newer was found; `make setup` installs it as root")


def _java_version(binary: str) -> int:
    run = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'version "(\d+)', run.stderr + run.stdout)
    return int(found.group(1)) if found else 0


if __name__ == "__main__":
    from tests.peers import bring

    bring.main()
