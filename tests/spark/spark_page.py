"""The page for Spark users, taken apart: its programs, its commands and its tables."""

from __future__ import annotations

import re

from tests.spark.programs import ROOT

PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:9092"
"""Where the page expects a broker."""
_BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
_PROGRAMS = [text for language, text in _BLOCKS if language == "python"]


def programs(address: str) -> list[str]:
    """What a reader types into one Python after the other, with another broker's address."""
    return [text.replace(ADDRESS, address) for text in _PROGRAMS if not _is_pipeline(text)]


def pipeline(address: str) -> str:
    """The file of a declarative pipeline."""
    (text,) = [text for text in _PROGRAMS if _is_pipeline(text)]
    return text.replace(ADDRESS, address)


def _is_pipeline(text: str) -> bool:
    return "pipelines as dp" in text


def ottla_commands() -> list[str]:
    """What follows `ottla` in each command that ends by itself."""
    lines = [line for language, text in _BLOCKS if not language for line in text.splitlines()]
    commands = [line.partition("#")[0].split() for line in lines if line.startswith(".venv/bin/ottla ")]
    return [" ".join(command[1:]) for command in commands if command[1] != "serve"]


def first_cells(title: str) -> set[str]:
    """All that is set as code in the first cell of each row of a section's table."""
    rows = [row for row in section(title).splitlines() if row.startswith("| `")]
    return {name for row in rows for name in re.findall("`([^`]+)`", row.split("|")[1])}


def section(title: str) -> str:
    found = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, f"the page has no section {title}"
    return found
