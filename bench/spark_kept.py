"""The rows of each part of the Spark benchmark, kept between runs, so that one part can be measured again alone."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from bench.spark_rows import Row


class Part(msgspec.Struct, frozen=True):
    """What one part has found, and when."""

    taken: datetime
    rows: list[Row]


def keep(directory: Path, name: str, part: Part) -> None:
    """Keep a part, in place of what was kept of it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_bytes(msgspec.json.encode(part))


def kept(directory: Path, names: tuple[str, ...]) -> dict[str, Part]:
    """The parts that are kept, of these."""
    found = {name: directory / f"{name}.json" for name in names}
    return {name: msgspec.json.decode(file.read_bytes(), type=Part) for name, file in found.items() if file.is_file()}
