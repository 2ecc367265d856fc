"""kafkajs from npm, installed once into `.cache/peers/kafkajs`, and one action of it at a time."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.missing import missing, program

FETCH_SECONDS_MAX = 300
ACTION_SECONDS_MAX = 60

_SOURCE = Path(__file__).parent / "kafkajs"
_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "peers" / "kafkajs"
_FILES = ("package.json", "package-lock.json", "client.js", "group.js")


class Kafkajs:
    """The client, ready to be run against an address."""

    def __init__(self, node: str, address: str) -> None:
        self._node = node
        self._address = address

    def run(self, action: str, **given: object) -> Any:
        """Do one thing; what it answers."""
        done = self._do(action, given)
        assert done.returncode == 0, f"{action} {given}: {done.stderr}"
        return json.loads(done.stdout)

    def failure(self, action: str, **given: object) -> str:
        """Do one thing that must fail; what it complains of."""
        done = self._do(action, given)
        assert done.returncode != 0, done.stdout
        return done.stderr

    @contextmanager
    def background(self, action: str, **given: object) -> Iterator[subprocess.Popen[str]]:
        """Do one thing that takes as long as others let it; it has ended when the block ends."""
        command = self.command("client.js", self._address, action, json.dumps(given))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def command(self, script: str, *arguments: str) -> list[str]:
        """How a script that runs for long is started; it finds the package beside itself."""
        return [self._node, str(_CACHE / script), *arguments]

    def _do(self, action: str, given: dict[str, object]) -> subprocess.CompletedProcess[str]:
        command = self.command("client.js", self._address, action, json.dumps(given))
        return subprocess.run(command, capture_output=True, text=True, timeout=ACTION_SECONDS_MAX, check=False)


def install(address: str) -> Kafkajs:
    """Bring the package, unless it is there; skips the test with the reason when that cannot be done."""
    node, npm = program("node"), program("npm")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_CACHE / "node_modules" / "kafkajs").is_dir() or _is_stale("package-lock.json"):
            _fetch(npm)
        for name in _FILES:
            shutil.copy(_SOURCE / name, _CACHE / name)
    return Kafkajs(node, address)


def _is_stale(name: str) -> bool:
    kept = _CACHE / name
    return not kept.is_file() or kept.read_bytes() != (_SOURCE / name).read_bytes()


def _fetch(npm: str) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_SOURCE / name, _CACHE / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command, cwd=_CACHE, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        missing(f"npm did not bring kafkajs within {FETCH_SECONDS_MAX} s")
    if done.returncode != 0:
        (_CACHE / "package-lock.json").unlink()
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        missing(f"npm could not bring kafkajs: {reason}")
