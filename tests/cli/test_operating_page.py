"""The page that fixes the defaults, held against the code and a real data directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from tests.cli.server_process import ROOT, serving

PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def cells(row: str) -> list[str]:
    return [cell.strip().strip("`") for cell in row.strip("|").split("|")]


DEFAULTS = [cells(row)[:2] for row in section("Defaults").splitlines() if row.startswith("| `")]
LIMITS = [cells(row)[1:] for row in section("Limits").splitlines() if row.startswith("|") and "`" in row]


@pytest.mark.parametrize(("name", "default"), DEFAULTS + LIMITS)
def test_the_page_has_the_defaults_that_the_code_has(name: str, default: str) -> None:
    setting = BROKER_CONFIGS[name]

    assert (setting.format(setting.default) or "") == default


def test_the_page_names_what_everybody_asks_for() -> None:
    asked = {"listeners", "log.dir", "node.id", "auto.create.topics.enable", "num.partitions"}

    assert asked <= {name for name, _ in DEFAULTS}


def test_the_page_has_a_number_of_partitions_for_every_internal_topic() -> None:
    assert {name for name in INTERNAL_TOPICS if re.search(rf"`{name}`\s+\d+", PAGE)} == set(INTERNAL_TOPICS)


def test_the_page_names_every_file_of_a_data_directory_in_use(tmp_path: Path) -> None:
    names = re.findall("`([^`]+)`", section("The data directory"))
    known = [_pattern(name) for name in names]
    with serving(tmp_path) as server:
        server.succeed("topics", "create", "orders", "--config", "segment.bytes=1000")
        for _ in range(3):
            server.succeed("produce", "orders", stdin=b"x" * 600)
        running = _below(tmp_path / "data")
    stopped = _below(tmp_path / "data")

    assert [name for name in running | stopped if not any(pattern.fullmatch(name) for pattern in known)] == []
    assert {"ottla.lock", "ottla.clean", "orders-0/", "partition.metadata"} <= running | stopped


def _pattern(name: str) -> re.Pattern[str]:
    parts = {
        "<topic>": "[a-zA-Z0-9._-]+",
        "<partition>": "[0-9]+",
        "<20 digits>": "[0-9]{20}",
        "<32 hex>": "[0-9a-f]{32}",
    }
    pattern = re.escape(name).replace(r"\*", ".*")
    for placeholder, meant in parts.items():
        pattern = pattern.replace(re.escape(placeholder), meant)
    return re.compile(pattern)


def _below(directory: Path) -> set[str]:
    return {path.name + ("/" if path.is_dir() else "") for path in directory.rglob("*")}
