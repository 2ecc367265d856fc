"""Lines that tests want printed after the last test, also when several processes run them.

Every process appends to its own file in one shared directory; the process that owns the terminal
reads them all at the end. Tables of counts (say, how often each crash point was hit) are summed over
processes before they are printed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path


class Report:
    """What one process of the test run has to say at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """Shared by all processes of this run, and empty when it starts."""

    def say(self, section: str, line: str) -> None:
        """Print `line` under the heading `section`."""
        self._append({"section": section, "line": line})

    def count(self, section: str, counts: dict[str, int]) -> None:
        """Add to the table `section`; equal names are summed over all tests and processes."""
        self._append({"section": section, "counts": counts})

    def _append(self, entry: dict[str, object]) -> None:
        with open(self.directory / f"{os.getpid()}.report", "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def collect(directory: Path) -> dict[str, list[str]]:
    """The finished lines of each section: what was said, then what was counted."""
    said: dict[str, list[str]] = {}
    counted: dict[str, Counter[str]] = {}
    for path in sorted(directory.glob("*.report")):
        for text in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(text)
            said.setdefault(entry["section"], [])
            if "line" in entry:
                said[entry["section"]].append(entry["line"])
            else:
                counted.setdefault(entry["section"], Counter()).update(entry["counts"])
    for section, counts in counted.items():
        width = max((len(name) for name in counts), default=0)
        said[section] += [f"{name:<{width}}  {counts[name]:>9,}" for name in sorted(counts)]
    return said
