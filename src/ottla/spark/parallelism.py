"""How many tasks a batch is worth: about as many as Spark can run at once.

A Python worker that plans a read is told nothing of the session. What it can see is its environment and, on Linux, the
command line of the Spark that started it, where the master is named. Where that says nothing, the cluster is taken to
be large: each partition gets a task of its own, as with Spark's own connector.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

TASKS_VARIABLE = "OTTLA_SPARK_TASKS"
"""Says how many tasks Spark can run at once; for clusters whose size cannot be seen."""
ANCESTORS_MAX = 4
"""Between a worker and the Spark that started it stands at most one process, the daemon that forks workers."""


def task_count(*, asked: int | None, range_count: int) -> int:
    """How many tasks to spread ranges over; `asked` is what the user said."""
    if asked is not None:
        return asked
    known = _slots_here()
    return range_count if known is None else known


_HAS_AFFINITY = hasattr(os, "sched_getaffinity")


@cache
def _slots_here() -> int | None:
    """Looked up once: neither the environment nor the Spark that started this process will be another."""
    return slots(
        os.environ, command_lines, cores=len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count() or 1
    )


def slots(
    environment: Mapping[str, str], command_lines: Callable[[], Iterator[list[str]]], *, cores: int
) -> int | None:
    """How many tasks Spark can run at once, as far as it can be seen; None: it cannot."""
    told = environment.get(TASKS_VARIABLE, "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    for words in command_lines():
        settings = _settings(words)
        if "spark.master" in settings:
            return _slots_of(settings, cores)
    return None


def _slots_of(settings: Mapping[str, str], cores: int) -> int | None:
    master = settings["spark.master"]
    if master == "local":
        return 1
    if local := re.match(r"local\[(\*|\d+)", master):
        return cores if local[1] == "*" else max(1, int(local[1]))
    if cluster := re.fullmatch(r"local-cluster\[(\d+),(\d+),\d+\]", master.replace(" ", "")):
        return int(cluster[1]) * int(cluster[2])
    for names in (
        ("spark.default.parallelism",),
        ("spark.cores.max",),
        ("spark.executor.instances", "spark.executor.cores"),
    ):
        told = [settings.get(name, "") for name in names]
        if all(text.isdecimal() and int(text) > 0 for text in told):
            found = 1
            for text in told:
                found *= int(text)
            return found
    return None


def _settings(words: list[str]) -> dict[str, str]:
    """The settings on a command line of Spark: `--conf name=value`, `--master place`, `-Dname=value`."""
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        text = following if word in ("--conf", "-c") else word.removeprefix("--conf=").removeprefix("-D")
        if word == "--master" or word == "--remote":
            text = f"spark.master={following}"
        name, equals, value = text.partition("=")
        if equals and name.startswith("spark."):
            found.setdefault(name, value)
    return found


def command_lines() -> Iterator[list[str]]:
    """Those of the processes that this one comes from, nearest first; none where the system does not show them."""
    process_id = os.getppid()
    for _ in range(ANCESTORS_MAX):
        place = Path("/proc") / str(process_id)
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
            status = (place / "stat").read_text(errors="replace")
            process_id = int(status.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
        yield words
        if process_id <= 1:
            return
