"""Apache Kafka's own jars and the Java that runs them, for tests that compare with the real thing.

The jars come from the Maven repository that the machine is set up for and stay in `.cache/peers`
between runs. This module fetches and finds; it knows no test.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

KAFKA_VERSION = "4.3.0"
JAVA_VERSION_MIN = 17
FETCH_SECONDS_MAX = 900
RETRY_SECONDS = 600
"""After a failed fetch nobody tries again for this long, or every process of a test run would wait for it."""

_POM = Path(__file__).with_name("pom.xml")
_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "peers" / f"kafka-{KAFKA_VERSION}"


class PeerMissing(Exception):
    """A peer cannot be had on this machine; the message says why and what to do."""


def jars(say: Callable[[str], None], *, cache: Path = _CACHE, maven: str = "mvn") -> Path:
    """The directory of Kafka's jars, fetched first if it is not there yet.

    Several processes may ask at once: the first fetches, the others wait for it.
    """
    if _is_complete(cache):
        return cache
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{cache}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(cache):
            _fetch_unless_just_failed(say, cache, maven)
    return cache


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


def _is_complete(cache: Path) -> bool:
    # The directory is renamed into place only when Maven is done, so its being there is enough,
    # unless the pom has asked for something else since.
    marker = cache / "pom.xml"
    return marker.is_file() and marker.read_bytes() == _POM.read_bytes()


def _fetch_unless_just_failed(say: Callable[[str], None], cache: Path, maven: str) -> None:
    failure = Path(f"{cache}.failed")
    if failure.exists() and time.time() - failure.stat().st_mtime < RETRY_SECONDS:
        raise PeerMissing(failure.read_text(encoding="utf-8"))
    try:
        _fetch(say, cache, maven)
    except PeerMissing as reason:
        failure.write_text(str(reason), encoding="utf-8")
        raise
    failure.unlink(missing_ok=True)


def _fetch(say: Callable[[str], None], cache: Path, maven: str) -> None:
    found = shutil.which(maven)
    if found is None:
        raise PeerMissing(
            "Maven (mvn) was not found, so Kafka's jars cannot be fetched; `make setup` installs it as root"
        )
    partial = Path(f"{cache}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shutil.copy(_POM, partial / "pom.xml")
    say(f"Fetching Apache Kafka {KAFKA_VERSION} with Maven, about 90 jars, once; this takes a minute or two.")
    command = [found, "--batch-mode", "--no-transfer-progress", "dependency:copy-dependencies", "-DoutputDirectory=."]
    try:
        run = subprocess.run(
            command, cwd=partial, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerMissing(f"Maven did not bring Kafka's jars within {FETCH_SECONDS_MAX} s") from error
    if run.returncode != 0:
        reason = next((line for line in run.stdout.splitlines() if line.startswith("[ERROR]")), "no reason given")
        raise PeerMissing(f"Maven could not bring Kafka's jars: {reason}")
    shutil.rmtree(cache, ignore_errors=True)
    partial.rename(cache)
    say(f"Kafka's {len(list(cache.glob('*.jar')))} jars are in place.")


def _java_version(binary: str) -> int:
    run = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'version "(\d+)', run.stderr + run.stdout)
    return int(found.group(1)) if found else 0


if __name__ == "__main__":
    # Before the tests start, so that the wait is seen; a failure is theirs to report.
    with contextlib.suppress(PeerMissing):
        jars(lambda line: print(f"ottla: {line}", flush=True))
