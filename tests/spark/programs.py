"""Programs that need a Spark of their own: run to their end in a fresh process, as a user would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers import spark_start

ROOT = Path(__file__).resolve().parents[2]
PROGRAM_SECONDS_MAX = 600


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """As in a new shell: nothing of the Spark that this process may have, and our package on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "OTTLA"))}
    quick = {name: value for name, value in os.environ.items() if name == spark_start.VARIABLE}
    return {**kept, **quick, "PYTHONPATH": str(ROOT / "src"), **(more or {})}


def run(command: Sequence[str], directory: Path, *, more: Mapping[str, str] | None = None) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(
        list(command),
        cwd=directory,
        env=environment(more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    # What Java says at length comes after what Python said, or before it.
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[:8000]}\n...\n{done.stderr[-4000:]}"
    return done.stdout


def run_python(source: str, directory: Path, *arguments: str, more: Mapping[str, str] | None = None) -> str:
    """What a Python program prints, given as text."""
    program = directory / "program.py"
    program.write_text(source, encoding="utf-8")
    return run([sys.executable, str(program), *arguments], directory, more=more)
