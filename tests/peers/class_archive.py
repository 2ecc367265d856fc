"""Archives of Java's classes, taken apart and checked: with one, a big Java program is up in half the time.

An archive is made once for a Java and a set of jars, by a program that loads what later ones will need, and kept in
`.cache/peers`. Java itself passes over one that does not fit; then, and without one, all is the same, only slower.
What is run to make one is the business of whoever asks.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path

from tests.peers.maven import CACHE

# Java tells of archives that it does not like where the program writes, too.
_QUIET = "-Xlog:disable"


def place(name: str, *, java: Path, jars: Path, cache: Path = CACHE) -> Path:
    """Where the archive is or would be. With another Java or other jars it has another name, and so is made anew."""
    seen = [f"{path} {path.stat().st_mtime_ns}" for path in (java.resolve(), jars.resolve())]
    return cache / f"{name}-classes-{hashlib.sha256(' '.join(seen).encode()).hexdigest()[:16]}.jsa"


def options(archive: Path | None) -> list[str]:
    """What makes a JVM use an archive, if it is there."""
    return [_QUIET, f"-XX:SharedArchiveFile={archive}"] if archive is not None and archive.is_file() else []


def bring(archive: Path, make: Callable[[list[str]], None]) -> None:
    """Have it made unless it is there.

    `make` is given options for the JVM that is to write it, and comes back when that has ended; if nothing was written,
    there is no archive. Several processes may ask at once: the first makes it, the others wait for it.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    name = archive.name.partition("-classes-")[0]
    with open(archive.with_name(f"{name}-classes.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.is_file():
            return
        for old in archive.parent.glob(f"{name}-classes-*"):
            old.unlink()
        partial = archive.with_suffix(".partial")
        make([_QUIET, f"-XX:ArchiveClassesAtExit={partial}"])
        # Whoever looks for it finds either nothing or all of it.
        if partial.is_file():
            partial.rename(archive)
