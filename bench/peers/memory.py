"""How much memory a process and everything that it has started hold, as the kernel counts it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from bench.spark_cpu import read_usages, tree

_FIELD = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB$", re.MULTILINE)


class Memory(NamedTuple):
    """Of a process or of several together."""

    rss_mb: float
    """Resident now."""
    hwm_mb: float
    """Resident at most, since it began."""


def parse_status(text: str) -> Memory:
    """The text of /proc/PID/status; a process that has ended holds nothing."""
    found = {name: int(kilobytes) / 1024 for name, kilobytes in _FIELD.findall(text)}
    return Memory(found.get("VmRSS", 0.0), found.get("VmHWM", 0.0))


def memory_of(root: int) -> Memory:
    """The whole tree. Pages that two of its processes share count twice."""
    parts = []
    for process in tree(root, read_usages()):
        try:
            parts.append(parse_status(Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")))
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has just ended.
    return Memory(sum(part.rss_mb for part in parts), sum(part.hwm_mb for part in parts))
