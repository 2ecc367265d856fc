"""Programs that Debian packages: found, or installed by the project's own script where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from bench.peers.rounds import say
from tests.peers.maven import PeerMissing

ROOT = Path(__file__).resolve().parents[2]
INSTALL_S_MAX = 600


def installed(name: str) -> Path:
    """Where it is, without bringing it; raises PeerMissing where it is not."""
    found = shutil.which(name)
    if found is None:
        raise PeerMissing(f"{name} is not on the PATH")
    return Path(found)


@cache
def program(name: str, *packages: str) -> Path:
    """Where it is; raises PeerMissing where it is not and cannot be brought."""
    found = shutil.which(name)
    if found is None:
        install(*packages)
        found = shutil.which(name)
    if found is None:
        raise PeerMissing(f"{name} is not on the PATH, also after {' '.join(packages)} was installed")
    return Path(found)


def install(*packages: str) -> None:
    """Install Debian packages; raises PeerMissing where they cannot be had."""
    wanted = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PeerMissing(f"{wanted} is not installed, and only root can install it on Debian: apt install {wanted}")
    say(f"installing {wanted}")
    command = ["sh", str(ROOT / "scripts" / "apt.sh"), *packages]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"{wanted} could not be installed within {INSTALL_S_MAX} s") from None
    if run.returncode != 0:
        raise PeerMissing(f"{wanted} could not be installed: {' '.join(run.stderr.split())[-200:]}")


def version(path: Path, *arguments: str) -> str:
    """What a program says of itself, in one line."""
    run = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=30, check=False)
    return " ".join((run.stdout or run.stderr).split())
