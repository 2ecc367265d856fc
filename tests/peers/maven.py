"""Jars of other projects, brought by Maven once and kept in `.cache/peers` between runs.

The jars come from the Maven repository that the machine is set up for. What they are is in a pom; what they are for is
the business of whoever asks.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FETCH_SECONDS_MAX = 900
RETRY_SECONDS = 600
"""After a failed fetch nobody tries again for this long, or every process of a test run would wait for it."""

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "peers"


class PeerMissing(Exception):
    """A peer cannot be had on this machine; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What one pom brings."""

    name: str
    """As in "Kafka's jars"."""
    pom: Path
    announcement: str
    """What is said before the fetch, which takes a while."""


def jars(peer: Peer, say: Callable[[str], None], *, cache: Path, maven: str = "mvn") -> Path:
    """The directory of the jars, fetched first if it is not there yet.

    Several processes may ask at once: the first fetches, the others wait for it.
    """
    if _is_complete(peer, cache):
        return cache
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{cache}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(peer, cache):
            _fetch_unless_just_failed(peer, say, cache, maven)
    return cache


def _is_complete(peer: Peer, cache: Path) -> bool:
    # The directory is renamed into place only when Maven is done, so its being there is enough,
    # unless the pom has asked for something else since.
    marker = cache / "pom.xml"
    return marker.is_file() and marker.read_bytes() == peer.pom.read_bytes()


def _fetch_unless_just_failed(peer: Peer, say: Callable[[str], None], cache: Path, maven: str) -> None:
    failure = Path(f"{cache}.failed")
    if failure.exists() and time.time() - failure.stat().st_mtime < RETRY_SECONDS:
        raise PeerMissing(failure.read_text(encoding="utf-8"))
    try:
        _fetch(peer, say, cache, maven)
    except PeerMissing as reason:
        failure.write_text(str(reason), encoding="utf-8")
        raise
    failure.unlink(missing_ok=True)


def _fetch(peer: Peer, say: Callable[[str], None], cache: Path, maven: str) -> None:
    found = shutil.which(maven)
    if found is None:
        raise PeerMissing(
            f"Maven (mvn) was not found, so {peer.name}'s jars cannot be fetched; `make setup` installs it as root"
        )
    partial = Path(f"{cache}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shutil.copy(peer.pom, partial / "pom.xml")
    say(peer.announcement)
    command = [found, "--batch-mode", "--no-transfer-progress", "dependency:copy-dependencies", "-DoutputDirectory=."]
    try:
        run = subprocess.run(
            command, cwd=partial, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerMissing(f"Maven did not bring {peer.name}'s jars within {FETCH_SECONDS_MAX} s") from error
    if run.returncode != 0:
        reason = next((line for line in run.stdout.splitlines() if line.startswith("[ERROR]")), "no reason given")
        raise PeerMissing(f"Maven could not bring {peer.name}'s jars: {reason}")
    shutil.rmtree(cache, ignore_errors=True)
    partial.rename(cache)
    say(f"{peer.name}'s {len(list(cache.glob('*.jar')))} jars are in place.")
