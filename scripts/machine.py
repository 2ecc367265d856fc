"""What a published figure must say about where it was taken: processor, memory, kernel, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path


def describe() -> str:
    """The machine and its Python in one line."""
    memory = _first_match("/proc/meminfo", r"MemTotal:\s+(\d+)")
    memory_gb = f"{int(memory) / 2**20:.0f} GB, " if memory else ""
    cores = len(os.sched_getaffinity(0))
    return f"{processor()}, {cores} cores, {memory_gb}Linux {platform.release()}, Python {platform.python_version()}"


def processor() -> str:
    """The processor's name as the kernel gives it."""
    return _first_match("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.machine()


def versions(*packages: str) -> str:
    """The installed versions of `packages`, in one line."""
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


def _first_match(path: str, pattern: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text(encoding="utf-8"))
    except OSError:
        return None
    return found.group(1).strip() if found else None
